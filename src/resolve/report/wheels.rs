//! What stands against the wheels of a project.

use std::fmt;

use version_ranges::Ranges;

use super::{MOST_REPEATED, Teller, files, versions};
use crate::resolve::Abort;
use crate::resolve::candidate::Index;
use crate::resolve::derivation::Fact;
use crate::resolve::explanation::{Cause, CauseKind};
use crate::resolve::known::{Offer, Project, Unfit};
use crate::resolve::range::{Pick, range_of};
use crate::resolve::requirement::Requirement;
use crate::resolve::words::{listed, sentence, sentence_behind_colon, short_list};
use crate::wheel::ProjectName;

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tags => out.write_str("its tags do not fit"),
            Self::Python(wanted) => write!(out, "it needs Python {wanted}"),
            Self::Refused(reason) => write!(out, "refused for this device: {}", reason.text),
            Self::Metadata(why) => out.write_str(why),
        }
    }
}

impl<I: Index> Teller<'_, '_, I> {
    /// Tells why no wheel of a project lies where one was looked for.
    pub(super) fn missing(&mut self, name: &ProjectName, facts: &[Fact]) -> Result<(), Abort<I::Error>> {
        let range = facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::NoWheel { package, range } if package.project() == Some(name) => Some(range),
                _ => None,
            })
            .fold(Ranges::empty(), |all, range| all.union(range));
        if range.is_empty() {
            return Ok(());
        }
        let project = self.known.project(name)?;
        if project.offers.is_empty() {
            let text = format!("No project {name} is known here.");
            self.push(CauseKind::NoSuchProject, name, Vec::new(), text);
            return Ok(());
        }
        let there: Vec<&Offer> = project.offers.iter().filter(|offer| range.contains(&offer.pick)).collect();
        if there.is_empty() {
            let others_fail = facts.iter().any(|fact| match fact {
                Fact::Needs { owner, .. } => owner.project() == Some(name),
                Fact::Unusable { package, .. } => package.project() == Some(name),
                Fact::NoWheel { .. } => false,
            });
            if !others_fail {
                self.no_such_version(name, &range, &project, facts);
            }
            return Ok(());
        }
        self.unfit(name, &there);
        Ok(())
    }

    /// Tells that no wheel has a version that is asked for, and which pre-release is almost one.
    fn no_such_version(
        &mut self,
        name: &ProjectName,
        range: &Ranges<Pick>,
        project: &Project,
        facts: &[Fact],
    ) {
        let mut asked: Vec<Requirement> = Vec::new();
        for fact in facts {
            if let Fact::Needs { owner, picks, needed, .. } = fact
                && needed.project() == Some(name)
            {
                for requirement in self.stated(owner, picks, name) {
                    let asks_more = !requirement.specifiers.is_empty()
                        && range.subset_of(&range_of(&requirement.specifiers));
                    if asks_more && !asked.iter().any(|known| known.specifiers == requirement.specifiers) {
                        asked.push(requirement);
                    }
                }
            }
        }
        asked.extend(self.asked.constraints.get(name).into_iter().flatten().cloned());
        let texts = asked.iter().map(|requirement| requirement.specifiers.to_string());
        let mut texts: Vec<String> = texts.take(MOST_REPEATED).collect();
        if asked.len() > MOST_REPEATED {
            texts.push(format!("{} more", asked.len() - MOST_REPEATED));
        }
        let wanted = if texts.is_empty() { "what is asked".to_owned() } else { listed(&texts, "and") };
        let usable: Vec<&Offer> = project.offers.iter().filter(|offer| offer.unfit.is_none()).collect();
        let (rest, shown) = if usable.is_empty() {
            (" (none of them fits this device)", project.offers.iter().collect())
        } else {
            ("", usable)
        };
        let text = format!("No version of {name} satisfies {wanted}; known: {}{rest}.", versions(&shown));
        self.push(CauseKind::NoSuchVersion, name, Vec::new(), text);

        // `==2.5.0` and `>=2.5.0` leave out 2.5.0a0, which is often what a vendor calls its build of 2.5.0.
        let almost: Vec<&Offer> = project
            .offers
            .iter()
            .filter(|offer| {
                let version = &offer.candidate.version;
                let release = Pick::wheel(&version.only_release().with_epoch(version.epoch()), 0);
                version.any_prerelease() && range.contains(&release)
            })
            .collect();
        if let Some(offer) = almost.first() {
            let state = match &offer.unfit {
                None => format!("ask for {name}=={} to have it", offer.candidate.version_text),
                Some(unfit) => format!("and {unfit}"),
            };
            let text = format!(
                "{name} {} is a pre-release of what is asked, so {wanted} leaves it out: {state}.",
                versions(&almost)
            );
            self.push(CauseKind::PreRelease, name, files(&almost), text);
        }
    }

    /// Tells why wheels that exist may not be chosen, alike ones together.
    fn unfit(&mut self, name: &ProjectName, there: &[&Offer]) {
        let mut groups: Vec<(Option<&Unfit>, Vec<&Offer>)> = Vec::new();
        for offer in there {
            let unfit = offer.unfit.as_ref();
            if unfit.is_none() && offer.candidate.yanked.is_none() {
                continue;
            }
            match groups.iter_mut().find(|(other, _)| alike(*other, unfit)) {
                Some((_, offers)) => offers.push(offer),
                None => groups.push((unfit, vec![offer])),
            }
        }
        for (unfit, offers) in groups {
            self.tell_unfit(name, unfit, &offers);
        }
    }

    /// Tells of some wheels of a project the same reason against them.
    fn tell_unfit(&mut self, name: &ProjectName, unfit: Option<&Unfit>, offers: &[&Offer]) {
        let (device, what) = (&self.known.target.device, versions(offers));
        let many = offers.len() > 1;
        let (is, was, needs) = if many { ("are", "were", "need") } else { ("is", "was", "needs") };
        let mut because = None;
        let (kind, text) = match unfit {
            None => {
                let why = offers
                    .iter()
                    .filter_map(|offer| offer.candidate.yanked.as_deref())
                    .find(|why| !why.is_empty());
                let why = why.map_or(String::new(), |why| format!(" ({why})"));
                (
                    CauseKind::Yanked,
                    format!(
                        "{name} {what} {was} yanked{why}: only a == in the request takes a yanked wheel."
                    ),
                )
            }
            Some(Unfit::Tags) => (
                CauseKind::Tags,
                format!(
                    "{name} {what} {is} built for another Python or platform: {}.",
                    listed(&short_list(&files(offers)), "and")
                ),
            ),
            Some(Unfit::Python(wanted)) => (
                CauseKind::RequiresPython,
                format!("{name} {what} {needs} Python {wanted}; {device} has {}.", self.known.target.python),
            ),
            Some(Unfit::Refused(reason)) => {
                because = Some((**reason).clone());
                let remedy = sentence(&reason.remedy);
                let space = if remedy.is_empty() { "" } else { " " };
                (
                    CauseKind::Refused,
                    format!(
                        "{name} {what} {is} there, but refused for {device}: {}{space}{remedy}",
                        sentence_behind_colon(&reason.text)
                    ),
                )
            }
            Some(Unfit::Metadata(why)) => {
                (CauseKind::Unusable, format!("{name} {what} cannot be used: {}", sentence_behind_colon(why)))
            }
        };
        self.causes.push(Cause {
            kind,
            project: Some(name.clone()),
            files: files(offers),
            reason: because,
            text,
        });
    }

    /// Tells which wheels of a project turned out to be unusable, newest first.
    pub(super) fn unusable(&mut self, name: &ProjectName, facts: &[Fact]) -> Result<(), Abort<I::Error>> {
        let project = self.known.project(name)?;
        for offer in &project.offers {
            let why = facts.iter().find_map(|fact| match fact {
                Fact::Unusable { package, picks, why }
                    if package.project() == Some(name) && picks.contains(&offer.pick) =>
                {
                    Some(why)
                }
                _ => None,
            });
            let Some(why) = why else { continue };
            let unfit = match self.known.seen_metadata(offer) {
                Some(Err(unfit)) => unfit,
                _ => Unfit::Metadata(why.clone()),
            };
            self.tell_unfit(name, Some(&unfit), &[offer]);
        }
        Ok(())
    }
}

/// Whether two reasons are told in one sentence.
fn alike(left: Option<&Unfit>, right: Option<&Unfit>) -> bool {
    match (left, right) {
        (Some(Unfit::Refused(left)), Some(Unfit::Refused(right))) => {
            left.code == right.code && left.found == right.found
        }
        _ => left == right,
    }
}
