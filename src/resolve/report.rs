//! Why there is no set, in sentences.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use version_ranges::Ranges;

use super::candidate::Index;
use super::derivation::{Fact, facts};
use super::explanation::{Cause, CauseKind, Explanation};
use super::known::{Known, Offer, Project};
use super::nearest::nearest;
use super::provider::Asked;
use super::range::Pick;
use super::requirement::Requirement;
use super::words::{listed, short_list};
use super::{Abort, Derivation};
use crate::wheel::ProjectName;

mod needs;
mod wheels;

/// Most causes that are told; a person reads no more.
const MOST_CAUSES: usize = 24;

/// Most causes that are looked for at all; of those beyond it is only said that there are more.
const MOST_SOUGHT: usize = 200;

/// Most requirements of the request that its explanation repeats.
const MOST_REPEATED: usize = 40;

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

/// Goes through a derivation, and puts into words what led to it.
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

    /// Tells what is known of a project, apart from what it needs.
    fn of_project(&mut self, name: &ProjectName, facts: &[Fact]) -> Result<(), Abort<I::Error>> {
        self.constraints(name);
        self.missing(name, facts)?;
        self.unusable(name, facts)
    }

    fn push(&mut self, kind: CauseKind, project: &ProjectName, files: Vec<String>, text: String) {
        self.causes.push(Cause { kind, project: Some(project.clone()), files, reason: None, text });
    }
}

/// The file names of wheels.
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
