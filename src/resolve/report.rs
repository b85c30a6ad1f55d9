//! Why there is no set, in sentences.

use std::collections::{BTreeSet, HashSet};
use std::fmt::{self, Write as _};

use version_ranges::Ranges;

use super::candidate::Index;
use super::derivation::{Fact, facts};
use super::explanation::{Cause, CauseKind, Explanation};
use super::known::{Known, Offer, Project, Unfit};
use super::nearest::nearest;
use super::provider::{Asked, Package};
use super::range::{Pick, range_of};
use super::requirement::Requirement;
use super::words::{capital, listed, sentence, sentence_behind_colon, short_list};
use super::{Abort, Derivation};
use crate::wheel::ProjectName;

/// Most causes that are told; a person reads no more.
const MOST_CAUSES: usize = 24;

/// Most causes that are looked for at all; of those beyond it is only said that there are more.
const MOST_SOUGHT: usize = 200;

/// Most requirements of the request that its explanation repeats.
const MOST_REPEATED: usize = 40;

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

/// Explains a derivation.
pub(super) fn explain<I: Index>(
    known: &Known<'_, I>,
    asked: &Asked,
    derivation: &Derivation,
) -> Result<Explanation, Abort<I::Error>> {
    let teller = Teller { known, asked, facts: facts(derivation), causes: Vec::new() };
    let mut causes = teller.tell()?;
    let more = causes.len().saturating_sub(MOST_CAUSES);
    causes.truncate(MOST_CAUSES);
    let mut requested: Vec<String> =
        asked.requirements.iter().take(MOST_REPEATED).map(Requirement::short).collect();
    if asked.requirements.len() > MOST_REPEATED {
        requested.push(format!("{} more", asked.requirements.len() - MOST_REPEATED));
    }
    let mut text = format!("Nothing satisfies {} for {}.", listed(&requested, "and"), known.target.device);
    for cause in &causes {
        text.push('\n');
        text.push_str(&cause.text);
    }
    if more > 0 {
        let _infallible = write!(text, "\nThere are {more} more facts of this kind.");
    }
    let (how, instead) = nearest(known, asked).unwrap_or_default();
    if !instead.is_empty() {
        let _infallible = write!(text, "\nThis would work{how}: {}.", listed(&instead, "with"));
    }
    Ok(Explanation { text, causes, instead, elsewhere: Vec::new() })
}

/// A vendor's pre-release that is newer than the final release which was taken instead.
pub(super) fn passed_over(project: &Project, asked: &Ranges<Pick>, chosen: &Offer) -> Option<String> {
    if chosen.candidate.version.any_prerelease() {
        return None;
    }
    project
        .offers
        .iter()
        .filter(|offer| offer.unfit.is_none() && offer.candidate.yanked.is_none())
        .find(|offer| {
            let version = &offer.candidate.version;
            version.any_prerelease()
                && version.is_local()
                && *version > chosen.candidate.version
                && asked.contains(&offer.pick)
        })
        .map(|offer| {
            format!(
                "{project} {version} was passed over for {chosen}, since it is a pre-release: ask for \
                 {project}=={version} to have it",
                project = offer.candidate.project,
                version = offer.candidate.version_text,
                chosen = chosen.candidate.version_text,
            )
        })
}

struct Teller<'t, 'a, I: Index> {
    known: &'t Known<'a, I>,
    asked: &'t Asked,
    facts: Vec<Fact>,
    causes: Vec<Cause>,
}

impl<I: Index> Teller<'_, '_, I> {
    /// Goes through the facts project by project: which wheels are missing, which cannot be used, what the others need.
    fn tell(mut self) -> Result<Vec<Cause>, Abort<I::Error>> {
        let mut told = BTreeSet::new();
        let facts = std::mem::take(&mut self.facts);
        let mut pairs = BTreeSet::new();
        for fact in &facts {
            if self.causes.len() > MOST_SOUGHT {
                break;
            }
            let package = match fact {
                Fact::Needs { owner, .. } => owner,
                Fact::NoWheel { package, .. } | Fact::Unusable { package, .. } => package,
            };
            if let Some(name) = package.project()
                && told.insert(name)
            {
                self.of_project(name, &facts)?;
            }
            if let Fact::Needs { owner, needed, .. } = fact
                && pairs.insert((owner, needed.project()))
            {
                self.contradiction(owner, needed);
                self.needs(owner, needed, &facts)?;
            }
        }
        for fact in &facts {
            if self.causes.len() > MOST_SOUGHT {
                break;
            }
            if let Fact::Needs { needed, .. } = fact
                && let Some(name) = needed.project()
                && told.insert(name)
            {
                self.of_project(name, &facts)?;
            }
        }
        Ok(self.causes)
    }

    fn of_project(&mut self, name: &ProjectName, facts: &[Fact]) -> Result<(), Abort<I::Error>> {
        self.constraints(name);
        self.missing(name, facts)?;
        self.unusable(name, facts)
    }

    fn push(&mut self, kind: CauseKind, project: &ProjectName, files: Vec<String>, text: String) {
        self.causes.push(Cause { kind, project: Some(project.clone()), files, reason: None, text });
    }

    /// Tells that the request contradicts itself.
    fn contradiction(&mut self, owner: &Package, needed: &Package) {
        let (Package::Root, Some(name)) = (owner, needed.project()) else { return };
        if !self.asked.range(name).is_empty() {
            return;
        }
        let asked = self.stated(owner, &Ranges::full(), name);
        let constraints = self.asked.constraints.get(name).into_iter().flatten().cloned();
        let mut texts: Vec<String> = asked.into_iter().chain(constraints).map(|one| one.short()).collect();
        let more = texts.len().saturating_sub(MOST_REPEATED);
        texts.truncate(MOST_REPEATED);
        if more > 0 {
            texts.push(format!("{more} more"));
        }
        let text = format!("No version can be {} at once.", listed(&texts, "and"));
        self.push(CauseKind::Conflict, name, Vec::new(), text);
    }

    fn constraints(&mut self, name: &ProjectName) {
        let texts: Vec<String> =
            self.asked.constraints.get(name).into_iter().flatten().map(Requirement::short).collect();
        if !texts.is_empty() {
            let text = format!("The constraint {} applies.", listed(&texts, "and"));
            self.push(CauseKind::Constraint, name, Vec::new(), text);
        }
    }

    /// Tells why no wheel of a project lies where one was looked for.
    fn missing(&mut self, name: &ProjectName, facts: &[Fact]) -> Result<(), Abort<I::Error>> {
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
    fn unusable(&mut self, name: &ProjectName, facts: &[Fact]) -> Result<(), Abort<I::Error>> {
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

    /// Tells what the wheels of one project need of another, those that need the same together.
    fn needs(&mut self, owner: &Package, needed: &Package, facts: &[Fact]) -> Result<(), Abort<I::Error>> {
        let (Some(name), Some(other)) = (owner.project(), needed.project()) else { return Ok(()) };
        // An extra always needs its own project; of interest is where a wheel states another version of itself for it.
        if name == other && !matches!(owner, Package::Extra(..)) {
            return Ok(());
        }
        let project = self.known.project(name)?;
        let mut groups: Vec<(String, Vec<&Offer>)> = Vec::new();
        for fact in facts {
            let Fact::Needs { owner: same, picks, needed: also, .. } = fact else { continue };
            if same != owner || also.project() != Some(other) {
                continue;
            }
            for offer in project.offers.iter().filter(|offer| picks.contains(&offer.pick)) {
                let stated = self.stated(owner, &Ranges::singleton(offer.pick.clone()), other);
                let metadata = self.known.seen_metadata(offer).and_then(Result::ok);
                // What METADATA does not say is told with its reason.
                let is_beside = |requirement: &Requirement| {
                    metadata.as_ref().is_some_and(|metadata| metadata.beside.contains(requirement))
                };
                let told = |requirement: &Requirement| {
                    if is_beside(requirement) { requirement.text.clone() } else { requirement.short() }
                };
                let texts: Vec<String> = stated.iter().map(told).collect();
                if texts.is_empty() {
                    continue;
                }
                let text = listed(&texts, "and");
                match groups.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, offers)) if offers.iter().any(|known| known.pick == offer.pick) => {}
                    Some((_, offers)) => offers.push(offer),
                    None => groups.push((text, vec![offer])),
                }
            }
        }
        let usable = project.offers.iter().filter(|offer| offer.unfit.is_none()).count();
        for (text, mut offers) in groups {
            offers.sort_by_key(|offer| offer.pick.place());
            let verb = if offers.len() > 1 && offers.len() < usable { "need" } else { "needs" };
            let what = if offers.len() > 1 && offers.len() == usable {
                format!("every {owner}")
            } else {
                format!("{owner} {}", versions(&offers))
            };
            let told = format!("{} {verb} {text}.", capital(&what));
            self.push(CauseKind::Needs, name, files(&offers), told);
        }
        Ok(())
    }

    /// What wheels state of a project that they need, each text once; for the request, what it asks.
    fn stated(&self, owner: &Package, picks: &Ranges<Pick>, needed: &ProjectName) -> Vec<Requirement> {
        let mut stated: Vec<Requirement> = Vec::new();
        let mut texts = HashSet::new();
        let mut add = |requirement: &Requirement| {
            if requirement.project == *needed && texts.insert(requirement.short()) {
                stated.push(requirement.clone());
            }
        };
        let Some(name) = owner.project() else {
            self.asked.requirements.iter().for_each(add);
            return stated;
        };
        let extra = match owner {
            Package::Extra(_, extra) => Some(extra.as_str()),
            _ => None,
        };
        let Some(project) = self.known.seen(name) else { return stated };
        for offer in project.offers.iter().filter(|offer| picks.contains(&offer.pick)) {
            if let Some(Ok(metadata)) = self.known.seen_metadata(offer) {
                let asks = self.known.asks(&metadata).into_iter();
                asks.filter(|requirement| {
                    requirement.applies(&self.known.target.environment, extra) == Ok(true)
                })
                .for_each(&mut add);
            }
        }
        stated
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

fn files(offers: &[&Offer]) -> Vec<String> {
    offers.iter().map(|offer| offer.candidate.file.clone()).collect()
}

/// The versions of wheels: `2.5.1`, `2.5.1 and 2.4.0`, `2.5.1, 2.5.0, 2.4.1 and 9 older`.
fn versions(offers: &[&Offer]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for offer in offers {
        if !texts.contains(&offer.candidate.version_text) {
            texts.push(offer.candidate.version_text.clone());
        }
    }
    listed(&short_list(&texts), "and")
}
