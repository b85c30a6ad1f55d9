//! A pass over whole sets: for each device resolve against the upstreams, inspect what decides, fetch what is chosen.
//!
//! Resolving reads names, index pages, metadata and known facts. What it chooses and nobody has inspected yet is fetched,
//! smallest first: a refused file of two megabytes spares one of nine hundred that needs it. After each refusal it resolves
//! anew. When all of a set is known to run, its wheels go into the store; of all others the facts stay.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::plan::Knowledge;
use super::report::Report;
use super::shelf::Shelf;
use super::take::Pending;
use super::view::{Excluded, Found, Pick, Place, solve};
use super::{Error, Requirement};
use crate::digest::Sha256;
use crate::policy::{self, DeviceProfile};
use crate::resolve::Request;
use crate::resolve::closure::{Brief, Wheel, closure_by};
use crate::wheel::{Facts, ProjectName};
use goal::{Goal, Outcome, Role};

mod explain;
mod fetch;
mod goal;
mod tell;

/// Most rounds of one pass. Each inspects at least one wheel, or rules one out.
const MOST_ROUNDS: usize = 2_000;

/// Refusals of one device after which a search ends where no other limit is given.
const MOST_REFUSALS: usize = 200;

/// A pass at work.
pub(super) struct Sets {
    pub(super) shelf: Arc<Shelf>,
    pub(super) devices: Arc<Vec<DeviceProfile>>,
    /// How many versions are kept of each requirement.
    pub(super) keep: usize,
    /// After how many refused wheels a search ends.
    pub(super) tries: Option<usize>,
    /// How many wheels are inspected in one round.
    pub(super) jobs: usize,
    pub(super) dry_run: bool,
    /// What was fetched and waits for the rest of its set.
    pub(super) pending: HashMap<Sha256, Pending>,
}

/// What a device has to have fetched.
#[derive(Default)]
struct Wanted {
    /// Nobody knows what they hold.
    unknown: BTreeSet<Place>,
    /// They are admitted, and their bytes are not there.
    absent: BTreeSet<Place>,
}

impl Sets {
    /// Finds the sets of all devices that are not `stopped`, and fetches them.
    pub(super) async fn run(
        &mut self,
        requirements: &[Requirement],
        stopped: &BTreeSet<String>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let parsed: Vec<_> = requirements.iter().filter_map(|one| one.to_string().parse().ok()).collect();
        let label: Vec<String> = requirements.iter().map(ToString::to_string).collect();
        let mut goals: Vec<Goal> = Vec::new();
        for (at, device) in self.devices.iter().enumerate() {
            for requirement in requirements.iter().filter(|one| !one.applies_to(device)) {
                report.notes.push(format!("{requirement}: its marker does not hold on {}", device.id));
            }
            if !stopped.contains(&device.id) {
                let request = Request { requirements: parsed.clone(), ..Request::default() };
                goals.push(Goal::new(at, request, label.join(", "), Role::Whole));
            }
        }
        self.pursue(&mut goals, report).await?;
        self.apart(&mut goals, report).await?;
        self.older(&mut goals, report).await?;
        self.explain(&mut goals).await?;
        let places: Vec<Place> = goals.iter().flat_map(Goal::picks).map(|pick| pick.place.clone()).collect();
        self.ask_sizes(&places).await;
        for goal in &goals {
            self.tell(goal, requirements, report);
        }
        self.tell_projects(&goals, report);
        Ok(())
    }

    /// Where all requirements do not go together, looks for each with what it needs; and where the upstreams lack some of
    /// that, for its own wheel alone: another upstream, or a local build, may bring the rest.
    async fn apart(&mut self, goals: &mut Vec<Goal>, report: &mut Report) -> Result<(), Error> {
        let mut apart = Vec::new();
        for goal in goals.iter().filter(|goal| matches!(goal.outcome, Outcome::None(_))) {
            let requirements =
                goal.request.requirements.iter().filter(|_| goal.request.requirements.len() > 1);
            apart.extend(requirements.map(|requirement| {
                let request = Request { requirements: vec![requirement.clone()], ..Request::default() };
                Goal::new(goal.device, request, requirement.text.clone(), Role::Apart)
            }));
        }
        self.pursue(&mut apart, report).await?;
        goals.extend(apart);
        let lacking = goals.iter().filter(|goal| goal.request.requirements.len() == 1 && goal.lacks());
        let mut alone: Vec<Goal> = lacking
            .map(|goal| Goal::new(goal.device, goal.request.clone(), goal.label.clone(), Role::Alone))
            .collect();
        self.pursue(&mut alone, report).await?;
        for goal in alone.iter_mut().filter(|goal| !goal.picks().is_empty()) {
            goal.notes.push(format!("{}: without what it needs, which no upstream has", goal.label));
        }
        goals.extend(alone);
        Ok(())
    }

    /// Looks for the next older versions of each requirement, as many as are kept.
    async fn older(&mut self, goals: &mut Vec<Goal>, report: &mut Report) -> Result<(), Error> {
        let mut first = 0;
        for _ in 1..self.keep {
            let last = goals.len();
            let mut next = Vec::new();
            for goal in goals.get(first..last).unwrap_or_default() {
                for requirement in &goal.request.requirements {
                    let pick = goal.picks().iter().find(|pick| pick.place.0 == requirement.project);
                    let Some(version) = pick.and_then(|pick| {
                        let entry = self.shelf.seen(&pick.place.0)?;
                        let gathered = entry.gathered();
                        Some(gathered.candidates.get(pick.place.1)?.name.version.clone().without_local())
                    }) else {
                        continue;
                    };
                    let Ok(below) = format!("{}<{version}", requirement.project).parse() else { continue };
                    let mut constraints = goal.request.constraints.clone();
                    constraints.push(below);
                    let label = requirement.text.clone();
                    let request = Request {
                        requirements: vec![requirement.clone()],
                        constraints,
                        ..Request::default()
                    };
                    next.push(Goal::new(goal.device, request, label, Role::Older));
                }
            }
            if next.is_empty() {
                break;
            }
            self.pursue(&mut next, report).await?;
            goals.extend(next);
            first = last;
        }
        Ok(())
    }

    /// Resolves, inspects and fetches until there is nothing more to do for any goal.
    async fn pursue(&mut self, goals: &mut [Goal], report: &mut Report) -> Result<(), Error> {
        for _round in 0..MOST_ROUNDS {
            let (mut wanted, mut again) = (Wanted::default(), false);
            for goal in goals.iter_mut().filter(|goal| goal.is_open()) {
                self.resolve(goal).await?;
                let Outcome::Set(picks) = &goal.outcome else { continue };
                let own = self.wanted(picks);
                if own.unknown.is_empty() {
                    let excluded = self.excluded(goal).await?;
                    if !excluded.is_empty() {
                        goal.excluded.extend(excluded);
                        again = true;
                        continue;
                    }
                }
                if own.unknown.is_empty() && own.absent.is_empty() {
                    self.store(goal).await?;
                }
                wanted.unknown.extend(own.unknown);
                wanted.absent.extend(own.absent);
            }
            if self.dry_run && !again {
                break;
            }
            let inspects = !wanted.unknown.is_empty();
            let batch = if self.dry_run {
                Vec::new()
            } else if inspects {
                self.smallest(&wanted.unknown).await
            } else {
                wanted.absent.into_iter().collect()
            };
            if batch.is_empty() && !again {
                break;
            }
            let taken = self.take(&batch, report).await;
            if let Err(error) = taken {
                return Err(self.broken_off(goals, error).await);
            }
            for goal in goals.iter_mut().filter(|goal| goal.is_open()) {
                self.count_refusals(goal, &batch);
            }
        }
        // What an outage or the limit cut short is still what will be wanted: the next pass goes on from there.
        for goal in goals.iter_mut() {
            if matches!(goal.outcome, Outcome::Set(_)) && !self.dry_run {
                self.put(goal).await?;
            }
        }
        Ok(())
    }

    async fn resolve(&self, goal: &mut Goal) -> Result<(), Error> {
        let Some(device) = self.devices.get(goal.device) else { return Ok(()) };
        let alone = goal.role == Role::Alone;
        let solve = || {
            let devices = (device.clone(), device.clone());
            self.solve(devices, goal.request.clone(), goal.excluded.clone(), alone)
        };
        let (mut found, mut reached) = solve().await?;
        if matches!(found, Found::None(_)) && self.shelf.recheck(&reached).await {
            (found, reached) = solve().await?;
        }
        goal.reached.extend(reached);
        goal.notes.clear();
        goal.outcome = match found {
            Found::Set(picks, notes) => {
                goal.notes = notes;
                Outcome::Set(picks)
            }
            Found::None(explanation) => Outcome::None(explanation),
            Found::Refused(text) => Outcome::Failed(text),
            Found::Unreached(event) => Outcome::Unreached(event),
        };
        Ok(())
    }

    async fn solve(
        &self,
        devices: (DeviceProfile, DeviceProfile),
        request: Request,
        excluded: Excluded,
        alone: bool,
    ) -> Result<(Found, BTreeSet<ProjectName>), Error> {
        let (lookups, runtime) = (Arc::clone(&self.shelf), Handle::current());
        let solving = move || solve(&lookups, &runtime, (&devices.0, &devices.1), &request, &excluded, alone);
        tokio::task::spawn_blocking(solving).await?
    }

    fn wanted(&self, picks: &[Pick]) -> Wanted {
        let mut wanted = Wanted::default();
        for pick in picks {
            let Some(entry) = self.shelf.seen(&pick.place.0) else { continue };
            let gathered = entry.gathered();
            let Some(candidate) = gathered.candidates.get(pick.place.1) else { continue };
            match &candidate.knowledge {
                Knowledge::Unknown => {
                    wanted.unknown.insert(pick.place.clone());
                }
                Knowledge::Facts { held: false, .. } => {
                    wanted.absent.insert(pick.place.clone());
                }
                _ => {}
            }
        }
        wanted
    }

    fn facts(&self, place: &Place) -> Option<Arc<Facts>> {
        let entry = self.shelf.seen(&place.0)?;
        let gathered = entry.gathered();
        match &gathered.candidates.get(place.1)?.knowledge {
            Knowledge::Facts { facts, .. } => Some(Arc::clone(facts)),
            _ => None,
        }
    }

    /// The wheels of a set that the device's index would not list beside the others, with what the store has of their projects.
    async fn excluded(&self, goal: &Goal) -> Result<Excluded, Error> {
        let Some(device) = self.devices.get(goal.device).cloned() else { return Ok(Excluded::new()) };
        let places: Vec<Place> = goal.picks().iter().map(|pick| pick.place.clone()).collect();
        let chosen: Vec<Arc<Facts>> = places.iter().filter_map(|place| self.facts(place)).collect();
        if chosen.len() != places.len() {
            return Ok(Excluded::new());
        }
        let means = self.shelf.taker.means.clone();
        let work = move || -> Result<Excluded, Error> {
            let mut known = chosen.clone();
            for (project, _) in &places {
                for row in means.store.rows(project)? {
                    if row.held && !chosen.iter().any(|facts| facts.sha256 == row.facts.sha256) {
                        known.push(row.facts);
                    }
                }
            }
            let wheel = |facts: Arc<Facts>| Wheel {
                verdict: policy::judge(&facts, &device, &means.policy).verdict,
                brief: Arc::new(Brief::of(&facts)),
            };
            let wheels: Vec<Wheel> = known.into_iter().map(wheel).collect();
            let mut excluded = Excluded::new();
            for (at, change) in closure_by(&wheels, &device, &means.policy) {
                if let (Some(place), Some(reason)) = (places.get(at), change.refusals.into_iter().next()) {
                    excluded.insert(place.clone(), reason);
                }
            }
            Ok(excluded)
        };
        tokio::task::spawn_blocking(work).await?
    }

    /// Counts what was fetched for a goal and is refused; ends it where there was too much of it.
    fn count_refusals(&self, goal: &mut Goal, batch: &[Place]) {
        let Some(device) = self.devices.get(goal.device) else { return };
        let policy = &self.shelf.taker.means.policy;
        let refused = goal.picks().iter().filter(|pick| batch.contains(&pick.place)).filter(|pick| {
            self.facts(&pick.place).is_some_and(|facts| {
                !policy.lists(&pick.place.0, policy::judge(&facts, device, policy).verdict)
            })
        });
        let refused = refused.count();
        goal.refusals = goal.refusals.saturating_add(refused);
        let most = self.tries.unwrap_or(MOST_REFUSALS);
        if refused > 0 && goal.refusals >= most {
            goal.outcome = Outcome::Failed(format!(
                "the search for {} ended after {most} refused wheels; the next pass goes on from there",
                goal.label
            ));
        }
    }
}
