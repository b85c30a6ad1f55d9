//! What was looked up so far: each project's wheels best first, and their metadata. Solving may run several times over it.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use super::candidate::{Candidate, Index, Lookup, Metadata};
use super::range::Pick;
use super::requirement::Requirement;
use super::target::Target;
use super::{Abort, Limit, Limits, Stop};
use crate::policy::Reason;
use crate::wheel::ProjectName;

/// The wheels of one project, best first, with which of them may be chosen.
#[derive(Debug)]
pub(super) struct Project {
    pub(super) offers: Vec<Offer>,
}

/// One wheel in its place.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) candidate: Candidate,
    pub(super) pick: Pick,
    /// Why it may not be chosen.
    pub(super) unfit: Option<Unfit>,
}

/// Why a wheel may not be chosen, whatever is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Its tags do not fit.
    Tags,
    /// Its `Requires-Python` excludes the device's Python.
    Python(String),
    /// The device may not have it.
    Refused(Box<Reason>),
    /// Its metadata cannot be used.
    Metadata(String),
}

/// The metadata of a wheel, or why it cannot be used.
type Usable = Result<Arc<Metadata>, Unfit>;

/// A cache over an index, with the limits on how much is read.
pub(super) struct Known<'a, I: Index> {
    pub(super) target: &'a Target,
    pub(super) limits: Limits,
    pub(super) stop: Stop,
    index: RefCell<&'a mut I>,
    projects: RefCell<HashMap<ProjectName, Rc<Project>>>,
    metadata: RefCell<HashMap<(ProjectName, usize), Usable>>,
    read: Cell<usize>,
    joined: RefCell<BTreeSet<ProjectName>>,
}

impl<'a, I: Index> Known<'a, I> {
    pub(super) fn new(index: &'a mut I, target: &'a Target, limits: Limits, stop: Stop) -> Self {
        Self {
            target,
            limits,
            stop,
            index: RefCell::new(index),
            projects: RefCell::default(),
            metadata: RefCell::default(),
            read: Cell::new(0),
            joined: RefCell::default(),
        }
    }

    /// The wheels of a project.
    pub(super) fn project(&self, name: &ProjectName) -> Result<Rc<Project>, Abort<I::Error>> {
        if let Some(project) = self.projects.borrow().get(name) {
            return Ok(Rc::clone(project));
        }
        if self.stop.is_stopped() {
            return Err(Abort::Limit(Limit::Time));
        }
        let candidates = self.index.borrow_mut().candidates(name).map_err(Abort::Index)?;
        self.read.set(self.read.get().saturating_add(candidates.len()));
        if self.read.get() > self.limits.candidates {
            return Err(Abort::Limit(Limit::Candidates(self.limits.candidates)));
        }
        let project = Rc::new(Project::new(candidates, self.target));
        self.projects.borrow_mut().insert(name.clone(), Rc::clone(&project));
        Ok(project)
    }

    /// The metadata of a project's wheel, or why it cannot be used.
    pub(super) fn metadata(&self, offer: &Offer) -> Result<Result<Arc<Metadata>, Unfit>, Abort<I::Error>> {
        let place = offer.pick.place().unwrap_or_default();
        let key = (offer.candidate.project.clone(), place);
        if let Some(known) = self.metadata.borrow().get(&key) {
            return Ok(known.clone());
        }
        let lookup = self.index.borrow_mut().metadata(&offer.candidate).map_err(Abort::Index)?;
        let found = match lookup {
            Lookup::Metadata(metadata) => match &metadata.requires_python {
                Some(wanted) if !wanted.contains(&self.target.python) => {
                    Err(Unfit::Python(wanted.to_string()))
                }
                _ => Ok(metadata),
            },
            Lookup::Refused(reason) => Err(Unfit::Refused(Box::new(reason))),
            Lookup::Unusable(why) => Err(Unfit::Metadata(why)),
        };
        self.metadata.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    /// What a wheel asks for: its requirements, and what it asks of projects beside it, where it requires them as well or they
    /// are in the set anyway.
    pub(super) fn asks<'m>(&self, metadata: &'m Metadata) -> Vec<&'m Requirement> {
        let joined = self.joined.borrow();
        let required = |name: &ProjectName| {
            let environment = &self.target.environment;
            let names = |requirement: &&Requirement| requirement.project == *name;
            let mut of_it = metadata.requires_dist.iter().filter(names);
            of_it.any(|requirement| requirement.applies(environment, None) == Ok(true))
        };
        let counts = |requirement: &&Requirement| {
            joined.contains(&requirement.project) || required(&requirement.project)
        };
        metadata.requires_dist.iter().chain(metadata.beside.iter().filter(counts)).collect()
    }

    /// From now on all wheels ask of that project what they ask of it beside them; false if they did before.
    pub(super) fn join(&self, project: &ProjectName) -> bool {
        self.joined.borrow_mut().insert(project.clone())
    }

    /// The metadata of a wheel, if it was looked up.
    pub(super) fn seen_metadata(&self, offer: &Offer) -> Option<Result<Arc<Metadata>, Unfit>> {
        let place = offer.pick.place().unwrap_or_default();
        self.metadata.borrow().get(&(offer.candidate.project.clone(), place)).cloned()
    }

    /// The wheels of a project, if they were looked up.
    pub(super) fn seen(&self, name: &ProjectName) -> Option<Rc<Project>> {
        self.projects.borrow().get(name).cloned()
    }
}

impl Project {
    /// Sorts the wheels: newest first; of one public version the one built for the device's CUDA, then the higher local label,
    /// then the better tag, then the higher build tag.
    fn new(mut candidates: Vec<Candidate>, target: &Target) -> Self {
        candidates.sort_by_cached_key(|candidate| {
            (
                Reverse(candidate.version.clone().without_local()),
                Reverse(target.is_built_for(&candidate.version)),
                Reverse(candidate.version.clone()),
                candidate.tag_priority.unwrap_or(u32::MAX),
                Reverse(candidate.build.clone()),
                candidate.file.clone(),
                candidate.sha256.map(|sha256| sha256.to_string()),
            )
        });
        let offers = candidates
            .into_iter()
            .enumerate()
            .map(|(place, candidate)| Offer {
                pick: Pick::wheel(&candidate.version, u32::try_from(place).unwrap_or(u32::MAX)),
                unfit: unfit(&candidate, target),
                candidate,
            })
            .collect();
        Self { offers }
    }

    /// The wheel that a pick means.
    pub(super) fn offer(&self, pick: &Pick) -> Option<&Offer> {
        self.offers.get(pick.place()?)
    }
}

fn unfit(candidate: &Candidate, target: &Target) -> Option<Unfit> {
    if let Some(reason) = &candidate.refused {
        return Some(Unfit::Refused(Box::new(reason.clone())));
    }
    if candidate.tag_priority.is_none() {
        return Some(Unfit::Tags);
    }
    let wanted = candidate.requires_python.as_ref()?;
    match wanted.parse::<pep440_rs::VersionSpecifiers>() {
        Ok(specifiers) if specifiers.contains(&target.python) => None,
        // A text that nobody can read excludes nothing: pip ignores it as well.
        Err(_) => None,
        Ok(_) => Some(Unfit::Python(wanted.clone())),
    }
}
