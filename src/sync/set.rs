//! A pass over whole sets: for each device resolve against the upstreams, inspect what decides, fetch what is chosen.
//!
//! Resolving reads names, index pages, metadata and known facts. What it chooses and nobody has inspected yet is fetched,
//! smallest first: a refused file of two megabytes spares one of nine hundred that needs it. After each refusal it resolves
//! anew. When all of a set is known to run, its wheels go into the store; of all others the facts stay.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::runtime::Handle;

use super::plan::Knowledge;
use super::report::Report;
use super::shelf::Shelf;
use super::take::{Keeping, Pending, Taken, chain};
use super::view::{Excluded, Found, Pick, Place, solve};
use super::{Error, Requirement};
use crate::digest::Sha256;
use crate::policy::{self, DeviceProfile};
use crate::resolve::Request;
use crate::resolve::closure::{Brief, Wheel, closure_by};
use crate::wheel::{Facts, ProjectName};
use goal::{Goal, Outcome, Role};

mod explain;
mod goal;
mod tell;

/// Most rounds of one pass. Each inspects at least one wheel, or rules one out.
const MOST_ROUNDS: usize = 2_000;

/// Refusals of one device after which a search ends where no other limit is given.
const MOST_REFUSALS: usize = 200;

/// Wheels up to this size are fetched together, whatever their order: waiting for each costs more than a few of them.
const SMALL: u64 = 32 << 20;

/// How many times larger than the smallest a wheel may be to be inspected with it.
const LARGER: u64 = 4;

/// Heads of files that are asked for at the same time.
const HEADS_AT_ONCE: usize = 8;

/// A pass at work.
pub(super) struct Sets {
    pub(super) shelf: Arc<Shelf>,
    pub(super) devices: Arc<Vec<DeviceProfile>>,
    pub(super) keep: usize,
    pub(super) tries: Option<usize>,
    pub(super) jobs: usize,
    pub(super) dry_run: bool,
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

    /// Keeps what was fetched before an error of our own, and says what is still to be fetched.
    async fn broken_off(&mut self, goals: &[Goal], error: Error) -> Error {
        for goal in goals {
            if let Err(second) = self.put(goal).await {
                tracing::warn!("not all that was fetched could be kept: {}", chain(&second));
                break;
            }
        }
        if !error.is_full() {
            return error;
        }
        let places: BTreeSet<&Place> = goals.iter().flat_map(Goal::picks).map(|pick| &pick.place).collect();
        let left = places.into_iter().filter_map(|(project, index)| {
            let entry = self.shelf.seen(project)?;
            let gathered = entry.gathered();
            match gathered.candidates.get(*index)?.knowledge {
                Knowledge::Unknown => Some(gathered.size(*index).unwrap_or(0)),
                _ => None,
            }
        });
        let (mut files, mut bytes) = (0_usize, 0_u64);
        for size in left {
            (files, bytes) = (files.saturating_add(1), bytes.saturating_add(size));
        }
        Error::Full { files, bytes, source: Box::new(error) }
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

    /// Asks for the sizes that pages do not state.
    async fn ask_sizes(&self, places: impl IntoIterator<Item = &Place>) {
        let asked = places.into_iter().filter_map(|(project, index)| {
            let entry = self.shelf.seen(project)?;
            let gathered = entry.gathered();
            if gathered.size(*index).is_some() || gathered.sizes.contains_key(index) {
                return None;
            }
            let origin = gathered.origins.get(*index)?.clone()?;
            Some((Arc::clone(&entry), *index, origin))
        });
        let asked: Vec<_> = asked.collect();
        let asking = asked.into_iter().map(|(entry, index, origin)| async move {
            let size = self.shelf.taker.size(&origin).await;
            entry.gathered().sizes.insert(index, size);
        });
        stream::iter(asking).buffer_unordered(HEADS_AT_ONCE).collect::<Vec<()>>().await;
    }

    /// The smallest of some files, and others that do not much delay what they tell.
    async fn smallest(&self, places: &BTreeSet<Place>) -> Vec<Place> {
        self.ask_sizes(places).await;
        let size = |place: &Place| {
            let entry = self.shelf.seen(&place.0)?;
            entry.gathered().size(place.1)
        };
        let mut sized: Vec<(u64, Place)> =
            places.iter().map(|place| (size(place).unwrap_or(u64::MAX), place.clone())).collect();
        sized.sort();
        let limit = sized.first().map_or(0, |(size, _)| size.saturating_mul(LARGER).max(SMALL));
        let batch = sized.into_iter().take(self.jobs).filter(|(size, _)| *size <= limit);
        batch.map(|(_, place)| place).collect()
    }

    async fn take(&mut self, batch: &[Place], report: &mut Report) -> Result<(), Error> {
        let fetcher = &self.shelf.taker;
        let work = batch.iter().filter_map(|place| {
            let entry = self.shelf.seen(&place.0)?;
            let (candidate, origin) = entry.candidate(place.1)?;
            let size = entry.gathered().size(place.1);
            Some(async move {
                let taken = match &origin {
                    Some(origin) => Some(fetcher.take(&candidate, origin, size, Keeping::Later).await?),
                    None => None,
                };
                Ok::<_, Error>((entry, place.1, taken))
            })
        });
        // Where one fails, those that are under way still come to their end.
        let mut failure = None;
        for outcome in join_all(work).await {
            let (entry, index, taken) = match outcome {
                Ok(taken) => taken,
                Err(error) => {
                    failure = failure.or(Some(error));
                    continue;
                }
            };
            // A file that the store lost and no upstream lists any more cannot be had.
            let mut taken = taken.unwrap_or_else(|| Taken::without_download(Knowledge::Unreachable));
            taken.tell(report);
            if let Some(pending) = taken.pending {
                self.pending.insert(pending.facts.sha256, pending);
            }
            if let Some(candidate) = entry.gathered().candidates.get_mut(index) {
                candidate.knowledge = taken.knowledge;
            }
        }
        failure.map_or(Ok(()), Err)
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

    /// Takes a whole set into the store.
    async fn store(&mut self, goal: &mut Goal) -> Result<(), Error> {
        let has_all = goal.picks().iter().all(|pick| self.facts(&pick.place).is_some());
        if !has_all || self.dry_run {
            return Ok(());
        }
        self.put(goal).await?;
        if let Outcome::Set(picks) = std::mem::replace(&mut goal.outcome, Outcome::Open) {
            goal.outcome = Outcome::Whole(picks);
        }
        Ok(())
    }

    /// Takes what is there of a set into the store.
    async fn put(&mut self, goal: &Goal) -> Result<(), Error> {
        let facts: Vec<Arc<Facts>> = goal.picks().iter().filter_map(|pick| self.facts(&pick.place)).collect();
        for facts in facts {
            let Some(pending) = self.pending.remove(&facts.sha256) else { continue };
            let store = Arc::clone(&self.shelf.taker.means.store);
            let putting =
                move || store.put(pending.spool, &pending.facts, &pending.metadata, &pending.provenance);
            tokio::task::spawn_blocking(putting).await??;
        }
        Ok(())
    }
}
