//! The upstreams and the store as one device's resolving sees them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pep440_rs::Version;
use tokio::runtime::Handle;

use super::Error;
use super::plan::Knowledge;
use super::report::Event;
use super::shelf::{Declared, Shelf, parse};
use crate::digest::Sha256;
use crate::policy::{self, Code, DeviceProfile, Reason};
use crate::resolve::closure::Abi;
use crate::resolve::{self, Explanation, Failure, Index, Lookup, Metadata, Request, Target};
use crate::wheel::{Facts, Machine, ProjectName, SupportedTags, WheelFilename};
use crate::wording::with_causes;

/// A candidate: its project, and its place there.
pub(super) type Place = (ProjectName, usize);

/// Candidates that a device may not have for a reason that shows only beside the rest of a set.
pub(super) type Excluded = HashMap<Place, Reason>;

/// What resolving found.
pub(super) enum Found {
    /// A set.
    Set(Vec<Pick>, Vec<String>),
    /// There is none.
    None(Box<Explanation>),
    /// The request cannot be answered as it stands, or would take too much.
    Refused(String),
    /// Something that would have to be known was not reached.
    Unreached(Event),
}

/// One wheel of a set.
#[derive(Debug, Clone)]
pub(super) struct Pick {
    pub(super) place: Place,
    /// Projects of the set that it needs.
    pub(super) requires: Vec<ProjectName>,
}

/// Why a lookup failed.
#[derive(Debug, thiserror::Error)]
enum LookupError {
    #[error(transparent)]
    Pass(#[from] Error),
    #[error("{}", .0.text)]
    Unreached(Event),
}

/// How far a wheel's name is from what a device takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Misfit {
    /// It fits, or is refused for what it holds.
    None,
    /// It is for another Python.
    Python,
    /// It is for another machine, or another release of the system.
    Machine,
    /// It is for another system.
    System,
}

struct View<'a> {
    shelf: Arc<Shelf>,
    runtime: Handle,
    device: &'a DeviceProfile,
    /// The device whose upstreams are asked.
    asking: &'a DeviceProfile,
    excluded: &'a Excluded,
    tags: SupportedTags,
    target: Target,
    places: HashMap<(String, Option<Sha256>, String), usize>,
    reached: BTreeSet<ProjectName>,
    /// Files whose requirements only the whole wheel tells.
    hidden: BTreeSet<String>,
    /// Whether what wheels need is left out.
    alone: bool,
}

/// Resolves for a device, over the upstreams that serve `asking`; yields the projects that were looked at as well.
///
/// Blocks, and waits for the network by `runtime`: to be called on a thread of its own.
pub(super) fn solve(
    shelf: &Arc<Shelf>,
    runtime: &Handle,
    (device, asking): (&DeviceProfile, &DeviceProfile),
    request: &Request,
    excluded: &Excluded,
    alone: bool,
) -> Result<(Found, BTreeSet<ProjectName>), Error> {
    let number = |part: u32| u16::try_from(part).unwrap_or(u16::MAX);
    let python = (number(device.python.major()), number(device.python.minor()));
    let target = Target::of(device);
    let mut view = View {
        shelf: Arc::clone(shelf),
        runtime: runtime.clone(),
        device,
        asking,
        excluded,
        tags: SupportedTags::new(python, &device.platform_tags),
        target: target.clone(),
        places: HashMap::new(),
        reached: BTreeSet::new(),
        hidden: BTreeSet::new(),
        alone,
    };
    for requirement in &request.requirements {
        view.expect(requirement);
    }
    let found = match resolve::resolve(request, &target, &mut view) {
        Ok(resolution) => {
            let mut notes = resolution.notes;
            let mut picks = Vec::new();
            for pinned in resolution.packages {
                let candidate = pinned.candidate;
                if view.hidden.contains(&candidate.file) {
                    notes.push(format!(
                        "{}: its upstream tells nothing of what it needs before it is fetched",
                        candidate.file
                    ));
                }
                let key = (candidate.file, candidate.sha256, candidate.upstream);
                let Some(&index) = view.places.get(&key) else { continue };
                picks.push(Pick { place: (candidate.project, index), requires: pinned.requires });
            }
            Found::Set(picks, notes)
        }
        Err(Failure::Unsatisfiable(explanation)) => Found::None(explanation),
        Err(Failure::Request(error)) => Found::Refused(with_causes(&error)),
        Err(Failure::Limit(limit)) => Found::Refused(limit.to_string()),
        Err(Failure::Index(LookupError::Pass(error))) => return Err(error),
        Err(Failure::Index(LookupError::Unreached(event))) => Found::Unreached(event),
    };
    Ok((found, view.reached))
}

impl View<'_> {
    /// Lets a project be looked up in the background, if the requirement applies.
    fn expect(&self, requirement: &resolve::Requirement) {
        let applies = requirement.applies(&self.target.environment, None) == Ok(true);
        if applies && self.shelf.seen(&requirement.project).is_none() {
            let (lookups, project) = (Arc::clone(&self.shelf), requirement.project.clone());
            // Who needs it waits for the same lookup, and hears of its error.
            drop(self.runtime.spawn(async move { drop(lookups.entry(&project).await) }));
        }
    }

    /// Why the device may not have a candidate, as far as that is known.
    fn refusal(&self, place: &Place, candidate: &super::Candidate) -> Option<Reason> {
        if let Some(reason) = self.excluded.get(place) {
            return Some(reason.clone());
        }
        let policy = &self.shelf.taker.means.policy;
        match &candidate.knowledge {
            Knowledge::Facts { facts, .. } => {
                let judgement = policy::judge(facts, self.device, policy);
                if policy.lists(&candidate.name.project, judgement.verdict) {
                    return None;
                }
                judgement.reasons.into_iter().next()
            }
            Knowledge::Lied(reason) => Some((**reason).clone()),
            _ => {
                let page = candidate.requires_python.as_deref();
                policy::judge_listing(&candidate.name, page, self.device, policy).into_iter().next()
            }
        }
    }

    /// Whether a name's platform is one of the device's.
    fn runs_on_platform(&self, name: &WheelFilename) -> bool {
        let fits = |platform: &String| platform == "any" || self.device.platform_tags.contains(platform);
        name.platform.iter().any(fits)
    }

    /// The versions of PyTorch that may be chosen, with their string ABI as far as it is known.
    fn torch(&self, name: &ProjectName) -> Result<Vec<(Version, Option<bool>)>, LookupError> {
        let entry = self.runtime.block_on(self.shelf.entry(name))?;
        let gathered = entry.gathered();
        let offered = self.shelf.offered(name, &gathered, self.asking);
        let torch = offered.into_iter().filter_map(|index| {
            let candidate = gathered.candidates.get(index)?;
            let cxx11 = match &candidate.knowledge {
                Knowledge::Facts { facts, .. } => Abi::of(facts).cxx11,
                _ => None,
            };
            let place = (name.clone(), index);
            self.refusal(&place, candidate).is_none().then(|| (candidate.name.version.clone(), cxx11))
        });
        Ok(torch.collect())
    }

    fn declared_by(facts: &Facts) -> Result<Arc<Metadata>, String> {
        parse(&facts.requires_dist, facts.requires_python.as_deref(), &facts.provides_extra)
    }
}

impl Index for View<'_> {
    type Error = LookupError;

    fn candidates(&mut self, project: &ProjectName) -> Result<Vec<resolve::Candidate>, LookupError> {
        self.reached.insert(project.clone());
        let entry = self.runtime.block_on(self.shelf.entry(project))?;
        let gathered = entry.gathered();
        let mut candidates: Vec<(Misfit, resolve::Candidate)> = Vec::new();
        for index in self.shelf.offered(project, &gathered, self.asking) {
            let Some(candidate) = gathered.candidates.get(index) else { continue };
            let name = &candidate.name;
            let facts = match &candidate.knowledge {
                Knowledge::Facts { facts, .. } => Some(facts),
                _ => None,
            };
            let upstream = gathered.from.get(index).cloned().unwrap_or_default();
            let sha256 = gathered.sha256(index);
            self.places.insert((name.text.clone(), sha256, upstream.clone()), index);
            let refused = self.refusal(&(project.clone(), index), candidate);
            let misfit = match refused.as_ref().map(|reason| reason.code) {
                Some(Code::PythonTag) if self.runs_on_platform(name) => Misfit::Python,
                Some(Code::PythonTag | Code::PlatformTag) if Machine::of(name) == Machine::OtherSystem => {
                    Misfit::System
                }
                Some(Code::PythonTag | Code::PlatformTag) => Misfit::Machine,
                _ => Misfit::None,
            };
            let candidate = resolve::Candidate {
                project: project.clone(),
                version: name.version.clone(),
                version_text: facts
                    .and_then(|facts| facts.version.clone())
                    .unwrap_or_else(|| name.version_text().to_owned()),
                file: name.text.clone(),
                sha256,
                size: gathered.size(index),
                url: String::new(),
                upload_time: None,
                tag_priority: self.tags.priority(name),
                build: name.build.clone(),
                requires_python: candidate.requires_python.clone(),
                yanked: candidate.yanked.clone(),
                upstream,
                refused,
            };
            candidates.push((misfit, candidate));
        }
        // Of each version those that come nearest by their names: builds for other systems explain nothing beside them.
        let mut nearest: HashMap<Version, Misfit> = HashMap::new();
        for (misfit, candidate) in &candidates {
            let known = nearest.entry(candidate.version.clone()).or_insert(*misfit);
            *known = (*known).min(*misfit);
        }
        candidates.retain(|(misfit, candidate)| nearest.get(&candidate.version) == Some(misfit));
        Ok(candidates.into_iter().map(|(_, candidate)| candidate).collect())
    }

    fn metadata(&mut self, candidate: &resolve::Candidate) -> Result<Lookup, LookupError> {
        let project = &candidate.project;
        let key = (candidate.file.clone(), candidate.sha256, candidate.upstream.clone());
        let gone = || Lookup::Unusable("it is not known any more".to_owned());
        let Some(&index) = self.places.get(&key) else { return Ok(gone()) };
        let entry = self.runtime.block_on(self.shelf.entry(project))?;
        let Some((known, _)) = entry.candidate(index) else { return Ok(gone()) };
        let parsed = if let Knowledge::Facts { facts, .. } = &known.knowledge {
            let abi = Abi::of(facts);
            let beside =
                if self.alone { Vec::new() } else { abi.beside(project, |torch| self.torch(torch))? };
            Self::declared_by(facts).map(|metadata| Arc::new(Metadata { beside, ..(*metadata).clone() }))
        } else {
            match self.runtime.block_on(self.shelf.declared(&entry, index)) {
                Declared::Metadata(requires_dist, parsed) => {
                    let policy = &self.shelf.taker.means.policy;
                    let pins = policy::judge_metadata(&known.name, &requires_dist, self.device, policy);
                    if let Some(reason) = pins {
                        return Ok(Lookup::Refused(reason));
                    }
                    parsed
                }
                // What it needs shows when it is inspected; then there is another round.
                Declared::Hidden => {
                    self.hidden.insert(candidate.file.clone());
                    Ok(Arc::default())
                }
                Declared::Unreached(event) => return Err(LookupError::Unreached(event)),
            }
        };
        Ok(match parsed {
            Ok(metadata) if self.alone => {
                let (requires_dist, beside) = (Vec::new(), Vec::new());
                Lookup::Metadata(Arc::new(Metadata { requires_dist, beside, ..(*metadata).clone() }))
            }
            Ok(metadata) => {
                for requirement in &metadata.requires_dist {
                    self.expect(requirement);
                }
                Lookup::Metadata(metadata)
            }
            Err(why) => Lookup::Unusable(why),
        })
    }
}
