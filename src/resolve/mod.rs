//! A consistent set of wheels for a device, or why there is none. Pure: looking wheels up is the caller's part ([`Index`]).
//!
//! A request is requirements and constraints (PEP 508); a [`Target`] is what a device profile says of Python, markers and CUDA;
//! an [`Index`] yields the wheels of a project, those that the device may not have included, since explanations name them.
//! The same input gives the same answer, byte for byte.
//!
//! Choices that the specifications leave open:
//!
//! - Of a project the newest version is taken; of one version the wheel built for the device's CUDA, then the one with the
//!   higher local label, then the better tag.
//! - A pre-release is the last choice: it is taken where no final release leads to a set.
//! - A yanked wheel is taken only if the request itself pins its version by `==`.
//! - A requirement of a URL is an error in a request, and makes a wheel that states one unusable.

mod candidate;
pub mod closure;
mod derivation;
mod explanation;
mod known;
mod lock;
mod markers;
mod nearest;
mod provider;
mod range;
mod report;
mod requirement;
mod requirements_file;
mod rows;
mod target;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use candidate::{Candidate, Index, Lookup, Metadata, NotMetadata};
pub use explanation::{Cause, CauseKind, Explanation};
pub use lock::{Lock, LockError, json, pylock, requirements_txt};
pub use markers::{Environment, Marker, Missing, NotAMarker, Variable};
pub use requirement::{NotARequirement, Requirement};
pub use requirements_file::{BadLine, Line, read_requirements};
pub use rows::{KnownFile, request_conflicts, resolve_rows};
pub use target::Target;

use known::Known;
use provider::{Asked, Package, Provider, ask};
use range::Pick;

use crate::wheel::ProjectName;

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// What has to be installed.
    pub requirements: Vec<Requirement>,
    /// What limits versions without asking for a project.
    pub constraints: Vec<Requirement>,
    /// Whether a pre-release is as good as a final release.
    pub prereleases: bool,
    /// How much work may be done.
    pub limits: Limits,
    /// Ends the work from outside.
    pub stop: Stop,
}

/// Most requirements and constraints of one request. A set of a large application has some 500; the work grows with the
/// square of their number.
pub const MOST_REQUESTED: usize = 5_000;

/// Ends the work on a request from another thread.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the work at its next step.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How much work a request may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Decisions of the solver. A set of 300 projects takes some 1,000.
    pub steps: u32,
    /// Decisions on a project that had been decided before. What the solver learns by each makes the next one slower, so this
    /// is what bounds time and memory of an entangled request.
    pub backtracks: u32,
    /// Wheels whose names are read.
    pub candidates: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 20_000, backtracks: 3_000, candidates: 200_000 }
    }
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Too many decisions.
    #[error("no answer after {0} steps: the request is too entangled; pin some of the projects in it")]
    Steps(u32),
    /// Too many decisions taken back.
    #[error(
        "no answer after {0} decisions were taken back: the request is too entangled; pin some of the projects in it"
    )]
    Backtracks(u32),
    /// It was stopped from outside.
    #[error(
        "no answer in the time that there is: the request is too entangled; pin some of the projects in it"
    )]
    Time,
    /// Too much is asked for.
    #[error("{0} requirements and constraints are too many: at most {MOST_REQUESTED} are taken")]
    Requested(usize),
    /// Too many wheels.
    #[error("more than {0} wheels would have to be read; ask for fewer projects")]
    Candidates(usize),
}

/// What is wrong with a request itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A marker depends on what the profile does not state.
    #[error("{requirement}")]
    Missing {
        /// The requirement.
        requirement: String,
        /// What is missing.
        source: Missing,
    },
    /// A requirement names a URL.
    #[error("{requirement}: a URL is not taken; add the wheel to the mirror and ask for its version")]
    Url {
        /// The requirement.
        requirement: String,
    },
    /// A constraint names extras.
    #[error("{requirement}: a constraint limits versions, it cannot ask for extras")]
    ConstraintWithExtras {
        /// The requirement.
        requirement: String,
    },
}

/// A consistent set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolution {
    /// The wheels, by project.
    pub packages: Vec<Pinned>,
    /// What to know of it.
    pub notes: Vec<String>,
}

/// One wheel of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The wheel.
    pub candidate: Candidate,
    /// Its metadata.
    pub metadata: Arc<Metadata>,
    /// Extras that are asked for.
    pub extras: Vec<String>,
    /// Projects of the set that it needs.
    pub requires: Vec<ProjectName>,
    /// Whether the request names it.
    pub requested: bool,
}

/// Why there is no set.
#[derive(Debug, thiserror::Error)]
pub enum Failure<E: std::error::Error + 'static> {
    /// Nothing satisfies the request.
    #[error("{}", .0.text)]
    Unsatisfiable(Box<Explanation>),
    /// The request cannot be answered as it stands.
    #[error(transparent)]
    Request(RequestError),
    /// It would take too much.
    #[error(transparent)]
    Limit(Limit),
    /// A lookup failed.
    #[error(transparent)]
    Index(E),
}

/// Why the solver stopped early.
#[derive(Debug, thiserror::Error)]
enum Abort<E: std::error::Error + 'static> {
    #[error(transparent)]
    Limit(Limit),
    #[error(transparent)]
    Index(E),
}

impl<E: std::error::Error + 'static> From<Abort<E>> for Failure<E> {
    fn from(abort: Abort<E>) -> Self {
        match abort {
            Abort::Limit(limit) => Self::Limit(limit),
            Abort::Index(error) => Self::Index(error),
        }
    }
}

/// Finds the wheels that satisfy a request on a device.
pub fn resolve<I: Index>(
    request: &Request,
    target: &Target,
    index: &mut I,
) -> Result<Resolution, Failure<I::Error>> {
    let count = request.requirements.len().saturating_add(request.constraints.len());
    if count > MOST_REQUESTED {
        return Err(Failure::Limit(Limit::Requested(count)));
    }
    let asked = ask(request, target).map_err(Failure::Request)?;
    let known = Known::new(index, target, request.limits, request.stop.clone());
    loop {
        match solve(&known, &asked)? {
            Ok(resolution) => match clash(&resolution).filter(|project| known.join(project)) {
                // Each round joins another project of those that were looked up.
                Some(_) => {}
                None => return Ok(resolution),
            },
            Err(derivation) => {
                let explanation = report::explain(&known, &asked, &derivation);
                derivation::dismantle(*derivation);
                return Err(Failure::Unsatisfiable(Box::new(explanation?)));
            }
        }
    }
}

/// A project of a set whose version is not one that another wheel of the set can be installed beside.
fn clash(resolution: &Resolution) -> Option<ProjectName> {
    let version: BTreeMap<&ProjectName, &pep440_rs::Version> = resolution
        .packages
        .iter()
        .map(|package| (&package.candidate.project, &package.candidate.version))
        .collect();
    let mut beside = resolution.packages.iter().flat_map(|package| &package.metadata.beside);
    let clash = beside.find(|requirement| {
        version.get(&requirement.project).is_some_and(|version| {
            !range::range_of(&requirement.specifiers).contains(&Pick::wheel(version, 0))
        })
    });
    clash.map(|requirement| requirement.project.clone())
}

/// How pubgrub tells that there is no set.
type Derivation = pubgrub::DerivationTree<Package, version_ranges::Ranges<Pick>, provider::Why>;

/// One run of the solver: a set, or why there is none.
fn solve<I: Index>(
    known: &Known<'_, I>,
    asked: &Asked,
) -> Result<Result<Resolution, Box<Derivation>>, Abort<I::Error>> {
    let provider = Provider::new(known, asked);
    match pubgrub::resolve(&provider, Package::Root, Pick::root()) {
        Ok(selected) => Ok(Ok(assemble(known, asked, &selected.into_iter().collect())?)),
        Err(pubgrub::PubGrubError::NoSolution(derivation)) => Ok(Err(Box::new(derivation))),
        Err(
            pubgrub::PubGrubError::ErrorRetrievingDependencies { source, .. }
            | pubgrub::PubGrubError::ErrorChoosingVersion { source, .. }
            | pubgrub::PubGrubError::ErrorInShouldCancel(source),
        ) => Err(source),
    }
}

fn assemble<I: Index>(
    known: &Known<'_, I>,
    asked: &Asked,
    selected: &BTreeMap<Package, Pick>,
) -> Result<Resolution, Abort<I::Error>> {
    let requested: BTreeSet<&ProjectName> =
        asked.requirements.iter().map(|requirement| &requirement.project).collect();
    let mut resolution = Resolution::default();
    for (package, pick) in selected {
        let Package::Project(name) = package else { continue };
        let project = known.project(name)?;
        let Some(offer) = project.offer(pick) else { continue };
        let Ok(metadata) = known.metadata(offer)? else { continue };
        let extras: Vec<String> = selected
            .keys()
            .filter_map(|other| match other {
                Package::Extra(of, extra) if of == name => Some(extra.clone()),
                _ => None,
            })
            .collect();
        for extra in extras.iter().filter(|extra| !metadata.provides_extra.contains(extra)) {
            resolution.notes.push(format!("{} has no extra {extra:?}", offer.candidate.file));
        }
        let needs = |requirement: &&Requirement| {
            std::iter::once(None)
                .chain(extras.iter().map(|extra| Some(extra.as_str())))
                .any(|extra| requirement.applies(&known.target.environment, extra) == Ok(true))
        };
        let requires: BTreeSet<ProjectName> = metadata
            .requires_dist
            .iter()
            .filter(needs)
            .map(|requirement| requirement.project.clone())
            .filter(|other| other != name)
            .collect();
        if requested.contains(name) {
            resolution.notes.extend(report::passed_over(&project, &asked.range(name), offer));
        }
        resolution.packages.push(Pinned {
            candidate: offer.candidate.clone(),
            metadata,
            extras,
            requires: requires.into_iter().collect(),
            requested: requested.contains(name),
        });
    }
    Ok(resolution)
}
