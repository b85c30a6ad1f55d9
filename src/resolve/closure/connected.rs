//! The same for one project: only the projects that its wheels' fate depends on are looked up.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Change, Need, Wheel, closure_by, need, sonames};
use crate::policy::{DeviceProfile, Policy};
use crate::resolve::target::Target;
use crate::wheel::ProjectName;

/// The known wheels of projects, looked up by a function as the rules need them.
///
/// What it says of a wheel is what [`closure_by`] says over all known wheels: a wheel's fate depends on what it needs, never
/// on what needs it. Which of that is looked up, is as little as can be: for a wheel that links nothing open, the GPU projects
/// that it needs and those that it was compiled against; for one that does, all that it leads to; for its notes, what it needs
/// itself.
pub struct Connected<'p, F> {
    device: &'p DeviceProfile,
    policy: &'p Policy,
    target: Target,
    lookup: F,
    known: HashMap<ProjectName, Arc<[Wheel]>>,
    parsed: HashMap<String, Option<Need>>,
}

impl<F> std::fmt::Debug for Connected<'_, F> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Connected").field("device", &self.device.id).finish_non_exhaustive()
    }
}

/// How much of what a project needs has to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    /// The GPU projects among it, and all of it for wheels with open links.
    Pairs,
    /// That, and what its wheels need themselves.
    Needs,
    /// All that it leads to.
    All,
}

impl<'p, F, E> Connected<'p, F>
where
    F: FnMut(&ProjectName) -> Result<Vec<Wheel>, E>,
{
    /// Nothing is looked up yet.
    pub fn new(device: &'p DeviceProfile, policy: &'p Policy, lookup: F) -> Self {
        let target = Target::of(device);
        Self { device, policy, target, lookup, known: HashMap::new(), parsed: HashMap::new() }
    }

    /// Why wheels of a project are refused, by place in what the lookup gave for it.
    pub fn refusals(&mut self, project: &ProjectName) -> Result<Vec<(usize, Change)>, E> {
        let mut changes = self.changes_to(project, Depth::Pairs)?;
        changes.retain(|(_, change)| !change.refusals.is_empty());
        Ok(changes)
    }

    /// The same with notes.
    pub fn changes(&mut self, project: &ProjectName) -> Result<Vec<(usize, Change)>, E> {
        self.changes_to(project, Depth::Needs)
    }

    /// The projects that were looked up, those without any wheel included.
    pub fn looked_up(&self) -> impl Iterator<Item = &ProjectName> {
        self.known.keys()
    }

    fn changes_to(&mut self, project: &ProjectName, depth: Depth) -> Result<Vec<(usize, Change)>, E> {
        let reached = self.reach(project, depth)?;
        let mut wheels: Vec<Wheel> = self.wheels(project)?.to_vec();
        let own = wheels.len();
        for other in reached.keys().filter(|other| *other != project) {
            wheels.extend(self.wheels(other)?.iter().cloned());
        }
        let mut changes = closure_by(&wheels, self.device, self.policy);
        changes.retain(|(at, _)| *at < own);
        Ok(changes)
    }

    /// The projects that matter for one, with how much of what they need does.
    fn reach(&mut self, project: &ProjectName, depth: Depth) -> Result<BTreeMap<ProjectName, Depth>, E> {
        let mut reached: BTreeMap<ProjectName, Depth> = BTreeMap::new();
        let mut queue = vec![(project.clone(), depth)];
        while let Some((project, depth)) = queue.pop() {
            if reached.get(&project).is_some_and(|known| *known >= depth) {
                continue;
            }
            for wheel in &*self.wheels(&project)? {
                if !self.policy.lists(&project, wheel.verdict) {
                    continue;
                }
                let is_open = !sonames::open(&wheel.brief, self.device).is_empty();
                for need in self.needs(wheel) {
                    let wanted = if is_open || depth == Depth::All {
                        Depth::All
                    } else if depth == Depth::Needs || self.policy.requires_gpu(&need) {
                        Depth::Pairs
                    } else {
                        continue;
                    };
                    queue.push((need, wanted));
                }
                let partners = wheel.brief.abi.partners(Some(&project));
                queue.extend(partners.map(|partner| (partner, Depth::Pairs)));
            }
            reached.insert(project, depth);
        }
        Ok(reached)
    }

    fn wheels(&mut self, project: &ProjectName) -> Result<Arc<[Wheel]>, E> {
        if let Some(known) = self.known.get(project) {
            return Ok(Arc::clone(known));
        }
        let wheels: Arc<[Wheel]> = (self.lookup)(project)?.into();
        self.known.insert(project.clone(), Arc::clone(&wheels));
        Ok(wheels)
    }

    /// The projects that a wheel needs on the device.
    fn needs(&mut self, wheel: &Wheel) -> Vec<ProjectName> {
        let mut needs = Vec::new();
        for text in &wheel.brief.facts.requires_dist {
            if !self.parsed.contains_key(text) {
                self.parsed.insert(text.clone(), need(text, &self.target));
            }
            needs.extend(self.parsed.get(text).and_then(Option::as_ref).map(|need| need.project.clone()));
        }
        needs.extend(wheel.brief.abi.built_against.iter().map(|against| against.project.clone()));
        needs
    }
}
