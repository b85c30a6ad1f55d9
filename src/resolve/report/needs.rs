//! What the request, its constraints and the metadata of wheels ask for.

use std::collections::HashSet;

use version_ranges::Ranges;

use super::{MOST_REPEATED, Teller, files, versions};
use crate::resolve::Abort;
use crate::resolve::candidate::Index;
use crate::resolve::derivation::Fact;
use crate::resolve::explanation::CauseKind;
use crate::resolve::known::Offer;
use crate::resolve::provider::Package;
use crate::resolve::range::Pick;
use crate::resolve::requirement::Requirement;
use crate::resolve::words::{capital, listed};
use crate::wheel::ProjectName;

impl<I: Index> Teller<'_, '_, I> {
    /// Tells that the request contradicts itself.
    pub(super) fn contradiction(&mut self, owner: &Package, needed: &Package) {
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

    /// Tells which constraints there are on a project.
    pub(super) fn constraints(&mut self, name: &ProjectName) {
        let texts: Vec<String> =
            self.asked.constraints.get(name).into_iter().flatten().map(Requirement::short).collect();
        if !texts.is_empty() {
            let text = format!("The constraint {} applies.", listed(&texts, "and"));
            self.push(CauseKind::Constraint, name, Vec::new(), text);
        }
    }

    /// Tells what the wheels of one project need of another, those that need the same together.
    pub(super) fn needs(
        &mut self,
        owner: &Package,
        needed: &Package,
        facts: &[Fact],
    ) -> Result<(), Abort<I::Error>> {
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
    pub(super) fn stated(
        &self,
        owner: &Package,
        picks: &Ranges<Pick>,
        needed: &ProjectName,
    ) -> Vec<Requirement> {
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
