//! pubgrub over what is known: packages are projects, and projects with one extra; versions are wheels.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use pubgrub::{Dependencies, DependencyProvider, PackageResolutionStatistics};
use version_ranges::Ranges;

use super::candidate::Index;
use super::known::{Known, Offer};
use super::range::{Pick, pins, range_of};
use super::requirement::Requirement;
use super::{Abort, Limit, Request};
use crate::wheel::ProjectName;

/// How many conflicts a package may have before it is decided earlier than the order of discovery says.
const CONFLICTS_TOLERATED: u32 = 5;

/// What pubgrub decides on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Package {
    /// The request.
    Root,
    /// A project.
    Project(ProjectName),
    /// A project with an extra; its versions are those of the project, on which each depends.
    Extra(ProjectName, String),
}

impl Package {
    pub(super) fn project(&self) -> Option<&ProjectName> {
        match self {
            Self::Root => None,
            Self::Project(name) | Self::Extra(name, _) => Some(name),
        }
    }
}

impl fmt::Display for Package {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => out.write_str("the request"),
            Self::Project(name) => write!(out, "{name}"),
            Self::Extra(name, extra) => write!(out, "{name}[{extra}]"),
        }
    }
}

/// A request with its markers evaluated.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) requirements: Vec<Requirement>,
    pub(super) constraints: BTreeMap<ProjectName, Vec<Requirement>>,
    pub(super) prereleases: bool,
}

impl Asked {
    /// What constraints allow of a project.
    pub(super) fn constrained(&self, name: &ProjectName) -> Ranges<Pick> {
        self.constraints
            .get(name)
            .into_iter()
            .flatten()
            .fold(Ranges::full(), |range, constraint| range.intersection(&range_of(&constraint.specifiers)))
    }

    /// What the request asks of a project, constraints included.
    pub(super) fn range(&self, name: &ProjectName) -> Ranges<Pick> {
        self.requirements
            .iter()
            .filter(|requirement| requirement.project == *name)
            .fold(self.constrained(name), |range, requirement| {
                range.intersection(&range_of(&requirement.specifiers))
            })
    }

    /// Versions of a project that the request pins by `==`, so that they may be yanked (PEP 592).
    pub(super) fn pinned(&self, name: &ProjectName) -> Ranges<Pick> {
        let constraints = self.constraints.get(name).into_iter().flatten();
        self.requirements
            .iter()
            .filter(|requirement| requirement.project == *name)
            .chain(constraints)
            .filter(|requirement| requirement.specifiers.iter().any(pins))
            .fold(Ranges::empty(), |range, requirement| range.union(&range_of(&requirement.specifiers)))
    }
}

/// One run of the solver.
pub(super) struct Provider<'k, 'a, I: Index> {
    pub(super) known: &'k Known<'a, I>,
    pub(super) asked: &'k Asked,
    pinned: RefCell<HashMap<ProjectName, Ranges<Pick>>>,
    found: RefCell<HashMap<Package, u32>>,
    last: RefCell<HashMap<ProjectName, Pick>>,
    steps: Cell<u32>,
    backtracks: Cell<u32>,
}

impl<'k, 'a, I: Index> Provider<'k, 'a, I> {
    pub(super) fn new(known: &'k Known<'a, I>, asked: &'k Asked) -> Self {
        Self {
            known,
            asked,
            pinned: RefCell::default(),
            found: RefCell::default(),
            last: RefCell::default(),
            steps: Cell::new(0),
            backtracks: Cell::new(0),
        }
    }

    /// The best wheel in a range: final releases before pre-releases.
    ///
    /// Of the specification's "pre-releases are accepted if no final release satisfies" this takes the widest reading: a
    /// pre-release is the last choice, but one, so a set is found wherever there is any.
    fn best(&self, name: &ProjectName, range: &Ranges<Pick>) -> Result<Option<Pick>, Abort<I::Error>> {
        let project = self.known.project(name)?;
        let mut pinned = self.pinned.borrow_mut();
        let pinned = pinned.entry(name.clone()).or_insert_with(|| self.asked.pinned(name));
        let usable = |offer: &&Offer| {
            offer.unfit.is_none()
                && (offer.candidate.yanked.is_none() || pinned.contains(&offer.pick))
                && range.contains(&offer.pick)
        };
        let mut usable_offers = project.offers.iter().filter(usable);
        if self.asked.prereleases {
            return Ok(usable_offers.next().map(|offer| offer.pick.clone()));
        }
        let mut first = None;
        for offer in usable_offers {
            if !offer.candidate.version.any_prerelease() {
                return Ok(Some(offer.pick.clone()));
            }
            first = first.or_else(|| Some(offer.pick.clone()));
        }
        Ok(first)
    }

    fn depend(
        &self,
        owner: &Package,
        pick: &Pick,
        requirement: &Requirement,
        into: &mut Vec<(Package, Ranges<Pick>)>,
    ) -> Result<(), String> {
        if requirement.url.is_some() {
            return Err(format!(
                "it needs {}, a URL; only versions from this index are used",
                requirement.text
            ));
        }
        let range =
            range_of(&requirement.specifiers).intersection(&self.asked.constrained(&requirement.project));
        let base = Package::Project(requirement.project.clone());
        let extras =
            requirement.extras.iter().map(|extra| Package::Extra(requirement.project.clone(), extra.clone()));
        for package in std::iter::once(base).chain(extras) {
            if package == *owner {
                if !range.contains(pick) {
                    return Err(format!("it needs {} of itself", requirement.short()));
                }
                continue;
            }
            let next = u32::try_from(self.found.borrow().len()).unwrap_or(u32::MAX);
            self.found.borrow_mut().entry(package.clone()).or_insert(next);
            into.push((package, range.clone()));
        }
        Ok(())
    }
}

/// Why a wheel cannot be used, as pubgrub keeps it.
pub(super) type Why = String;

impl<I: Index> DependencyProvider for Provider<'_, '_, I> {
    type P = Package;
    type V = Pick;
    type VS = Ranges<Pick>;
    type Priority = (bool, u32, bool, Reverse<u32>);
    type M = Why;
    type Err = Abort<I::Error>;

    fn prioritize(
        &self,
        package: &Package,
        range: &Ranges<Pick>,
        statistics: &PackageResolutionStatistics,
    ) -> Self::Priority {
        let conflicts = statistics.conflict_count();
        let found = self.found.borrow().get(package).copied().unwrap_or(u32::MAX);
        (
            *package == Package::Root,
            if conflicts > CONFLICTS_TOLERATED { conflicts } else { 0 },
            is_one_version(range),
            Reverse(found),
        )
    }

    fn choose_version(&self, package: &Package, range: &Ranges<Pick>) -> Result<Option<Pick>, Self::Err> {
        match package {
            Package::Root => Ok(Some(Pick::root())),
            Package::Project(name) => {
                let best = self.best(name, range)?;
                if let Some(pick) = &best
                    && self.last.borrow_mut().insert(name.clone(), pick.clone()).is_some()
                {
                    self.backtracks.set(self.backtracks.get().saturating_add(1));
                    if self.backtracks.get() > self.known.limits.backtracks {
                        return Err(Abort::Limit(Limit::Backtracks(self.known.limits.backtracks)));
                    }
                }
                Ok(best)
            }
            // Its project was mostly decided before: any other wheel would be a conflict.
            Package::Extra(name, _) => match self.last.borrow().get(name) {
                Some(pick) if range.contains(pick) => Ok(Some(pick.clone())),
                _ => self.best(name, range),
            },
        }
    }

    fn get_dependencies(
        &self,
        package: &Package,
        pick: &Pick,
    ) -> Result<Dependencies<Package, Ranges<Pick>, Why>, Self::Err> {
        let mut into = Vec::new();
        let Some(name) = package.project() else {
            for requirement in &self.asked.requirements {
                if let Err(why) = self.depend(package, pick, requirement, &mut into) {
                    return Ok(Dependencies::Unavailable(why));
                }
            }
            return Ok(Dependencies::Available(merged(into).into_iter().collect()));
        };
        let project = self.known.project(name)?;
        let Some(offer) = project.offer(pick) else {
            return Ok(Dependencies::Unavailable("it is not there".to_owned()));
        };
        let metadata = match self.known.metadata(offer)? {
            Ok(metadata) => metadata,
            Err(unfit) => return Ok(Dependencies::Unavailable(unfit.to_string())),
        };
        let extra = match package {
            Package::Extra(_, extra) => {
                into.push((Package::Project(name.clone()), Ranges::singleton(pick.clone())));
                Some(extra.as_str())
            }
            _ => None,
        };
        for requirement in self.known.asks(&metadata) {
            match requirement.applies(&self.known.target.environment, extra) {
                Ok(true) => {
                    if let Err(why) = self.depend(package, pick, requirement, &mut into) {
                        return Ok(Dependencies::Unavailable(why));
                    }
                }
                Ok(false) => {}
                Err(variable) => {
                    return Ok(Dependencies::Unavailable(format!(
                        "its requirement {:?} depends on {variable}, which the profile of {} does not state",
                        requirement.text, self.known.target.device
                    )));
                }
            }
        }
        Ok(Dependencies::Available(merged(into).into_iter().collect()))
    }

    fn should_cancel(&self) -> Result<(), Self::Err> {
        self.steps.set(self.steps.get().saturating_add(1));
        if self.steps.get() > self.known.limits.steps {
            return Err(Abort::Limit(Limit::Steps(self.known.limits.steps)));
        }
        if self.known.stop.is_stopped() {
            return Err(Abort::Limit(Limit::Time));
        }
        Ok(())
    }
}

/// Whether a range is that of one `==`.
fn is_one_version(range: &Ranges<Pick>) -> bool {
    let mut bounds = range.iter();
    let (Some((low, high)), None) = (bounds.next(), bounds.next()) else { return false };
    let (std::ops::Bound::Included(low), std::ops::Bound::Included(high)) = (low, high) else { return false };
    low.same_version(high)
}

/// One range for each package: a request of thousands of lines about one project is one dependency.
fn merged(dependencies: Vec<(Package, Ranges<Pick>)>) -> Vec<(Package, Ranges<Pick>)> {
    let mut places: HashMap<Package, usize> = HashMap::new();
    let mut merged: Vec<(Package, Ranges<Pick>)> = Vec::new();
    for (package, range) in dependencies {
        if let Some((_, known)) = places.get(&package).and_then(|&place| merged.get_mut(place)) {
            *known = known.intersection(&range);
        } else {
            places.insert(package.clone(), merged.len());
            merged.push((package, range));
        }
    }
    merged
}

/// Evaluates a request's markers.
pub(super) fn ask(request: &Request, known_device: &super::Target) -> Result<Asked, super::RequestError> {
    use super::RequestError;
    let mut asked = Asked { prereleases: request.prereleases, ..Asked::default() };
    for (requirements, constrains) in [(&request.requirements, false), (&request.constraints, true)] {
        for requirement in requirements {
            let applies = requirement.applies(&known_device.environment, None).map_err(|variable| {
                RequestError::Missing {
                    requirement: requirement.text.clone(),
                    source: super::markers::Missing { variable, device: known_device.device.clone() },
                }
            })?;
            if !applies {
                continue;
            }
            if requirement.url.is_some() {
                return Err(RequestError::Url { requirement: requirement.text.clone() });
            }
            if !constrains {
                asked.requirements.push(requirement.clone());
            } else if requirement.extras.is_empty() {
                asked.constraints.entry(requirement.project.clone()).or_default().push(requirement.clone());
            } else {
                return Err(RequestError::ConstraintWithExtras { requirement: requirement.text.clone() });
            }
        }
    }
    Ok(asked)
}
