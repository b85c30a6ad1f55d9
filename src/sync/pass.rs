//! A pass over all projects that are wanted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::sync::Semaphore;

use super::gather::Gathered;
use super::losses::losses;
use super::pages::Pages;
use super::plan::{Knowledge, PassedOver, Plan, Want, plan};
use super::report::{
    DeviceReport, Kept, Missing, Nearest, Package, Planned, Refused, Report, Shadowed, State, Why,
};
use super::requirements::Requirement;
use super::set::Sets;
use super::shelf::{Entry, Shelf};
use super::take::{Budget, Keeping, Taken, Taker};
use super::{Error, Listener, Means, Request};
use crate::digest::Sha256;
use crate::policy::{DeviceProfile, Reason};
use crate::wheel::{Machine, ProjectName};

/// Projects that are worked on at the same time; how many wheels are fetched at once is another number.
const PROJECTS_AT_ONCE: usize = 8;

/// A pass over single projects, at work.
struct Pass {
    shelf: Arc<Shelf>,
    devices: Arc<Vec<DeviceProfile>>,
    stopped: BTreeSet<String>,
    keep: usize,
    tries: Option<usize>,
    dry_run: bool,
}

/// Does one pass. What upstreams do wrong is in the report; an error means that the pass ended early.
pub async fn run(request: Request, means: Means, listener: Listener) -> Result<Report, Error> {
    let devices = Arc::new(request.devices);
    let taker = Taker {
        means,
        devices: Arc::clone(&devices),
        listener,
        permits: Semaphore::new(request.jobs.clamp(1, Semaphore::MAX_PERMITS)),
        budget: Budget::new(request.most_bytes),
        now: jiff::Timestamp::now().to_string(),
        accept_changed: Arc::new(request.accept_changed),
    };
    let shelf = Arc::new(Shelf::new(taker, Pages::new(request.sources)));
    let rows =
        devices.iter().map(|device| DeviceReport { device: device.id.clone(), ..DeviceReport::default() });
    let mut report = Report { devices: rows.collect(), dry_run: request.dry_run, ..Report::default() };
    let stopped = stop_at_losses(&shelf, request.accept_losses && !request.dry_run, &mut report).await?;
    if request.dependencies {
        let mut sets = Sets {
            shelf: Arc::clone(&shelf),
            devices,
            keep: request.keep,
            tries: request.tries,
            jobs: request.jobs.max(1),
            dry_run: request.dry_run,
            pending: HashMap::new(),
        };
        sets.run(&request.requirements, &stopped, &mut report).await?;
    } else {
        let (keep, tries, dry_run) = (request.keep, request.tries, request.dry_run);
        let pass = Pass { shelf: Arc::clone(&shelf), devices, stopped, keep, tries, dry_run };
        pass.run(&request.requirements, &mut report).await?;
    }
    if !request.dry_run {
        replace(&shelf, &mut report).await?;
    }
    if let Some(most) = request.most_bytes.filter(|_| request.dry_run) {
        report.limit_plan(most, request.dependencies);
    }
    report.gone.sort();
    report.gone.dedup();
    report.shadowed.sort();
    report.shadowed.dedup();
    Ok(report)
}

/// Lets those files that were accepted in place of others count under their names, and says what became of each.
async fn replace(shelf: &Shelf, report: &mut Report) -> Result<(), Error> {
    let (mut held, mut replaced) = (held_in_place_of_others(shelf), BTreeMap::new());
    while let Some((file, upstream, new)) = held.pop() {
        let (store, now) = (Arc::clone(&shelf.taker.means.store), shelf.taker.now.clone());
        let replacing = move || store.replace(&upstream, &file, &new, &now).map(|old| (file, old));
        if let (file, Some(old)) = tokio::task::spawn_blocking(replacing).await?? {
            replaced.insert(file, (old, new));
        }
    }
    let notes = shelf.taker.accept_changed.iter().map(|file| match replaced.get(file) {
        Some((old, new)) => format!(
            "{file}: sha256 {new} counts from now on, as --accept-changed says; snapshots that list {old} keep that"
        ),
        None => format!("{file}: nothing was taken in its place; --accept-changed was of no use here"),
    });
    report.notes.extend(notes);
    Ok(())
}

/// Files that may count in place of others and that the store has: name, upstream, digest.
fn held_in_place_of_others(shelf: &Shelf) -> Vec<(String, String, Sha256)> {
    let mut held = Vec::new();
    for (_, entry) in shelf.all() {
        let gathered = entry.gathered();
        held.extend(gathered.replacing.iter().filter_map(|index| {
            let (candidate, upstream) = (gathered.candidates.get(*index)?, gathered.from.get(*index)?);
            match &candidate.knowledge {
                Knowledge::Facts { facts, held: true, .. } => {
                    Some((candidate.name.text.clone(), upstream.clone(), facts.sha256))
                }
                _ => None,
            }
        }));
    }
    held
}

/// Finds out which upstreams lost most of what they had; yields the devices whose pass is over by that.
async fn stop_at_losses(shelf: &Shelf, accept: bool, report: &mut Report) -> Result<BTreeSet<String>, Error> {
    let (losses, places) = losses(&shelf.pages, &shelf.taker.means, accept, &shelf.taker.now).await?;
    report.losses = losses;
    let mut stopped = BTreeSet::new();
    for place in places {
        let Some((source, devices)) = shelf.pages.sources.get(place) else { continue };
        let name = &source.upstream.name;
        let Some(loss) = report.losses.iter().find(|loss| loss.upstream == *name) else { continue };
        let text = format!(
            "{name} no longer lists {} of {} files known from it, of {} of {} projects nothing at all; nothing was changed. \
             If that is right, give --accept-losses: what is there stays",
            loss.lost_files, loss.files, loss.lost_projects, loss.projects
        );
        for row in report.devices.iter_mut().filter(|row| devices.contains(&row.device)) {
            row.error = Some(row.error.take().unwrap_or_else(|| text.clone().into()));
            stopped.insert(row.device.clone());
        }
    }
    Ok(stopped)
}

impl Pass {
    async fn run(&self, requirements: &[Requirement], report: &mut Report) -> Result<(), Error> {
        let mut projects: Vec<(ProjectName, Vec<&Requirement>)> = Vec::new();
        for requirement in requirements {
            match projects.iter_mut().find(|(project, _)| *project == requirement.project) {
                Some((_, requirements)) => requirements.push(requirement),
                None => projects.push((requirement.project.clone(), vec![requirement])),
            }
        }
        if self.devices.iter().all(|device| self.stopped.contains(&device.id)) {
            return Ok(());
        }
        let work = projects.iter().map(|(project, requirements)| self.project(project, requirements));
        // Under a limit the order decides who gets what is left, so it has to be that of the requirements.
        let at_once = if self.shelf.taker.budget.is_limited() { 1 } else { PROJECTS_AT_ONCE };
        let mut parts = stream::iter(work).buffered(at_once);
        let mut failure = None;
        while let Some(part) = parts.next().await {
            match part {
                Ok(part) => report.add(part),
                // What else is under way still comes to its end.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn project(&self, project: &ProjectName, requirements: &[&Requirement]) -> Result<Report, Error> {
        let mut report = Report::default();
        let entry = self.shelf.entry(project).await?;
        report.add_project(&self.shelf, &self.devices, project, &entry);
        let mut gathered = std::mem::take(&mut *entry.gathered());

        let served: Vec<Vec<usize>> = self
            .devices
            .iter()
            .map(|device| {
                let serving = self.shelf.pages.serving(device);
                self.shelf.owned(project, &gathered, &serving).owner.into_iter().collect()
            })
            .collect();
        let mut wants = Vec::new();
        for requirement in requirements {
            for (device, upstreams) in self.devices.iter().zip(&served) {
                if self.stopped.contains(&device.id) {
                    continue;
                }
                if !requirement.applies_to(device) {
                    report.notes.push(format!("{requirement}: its marker does not hold on {}", device.id));
                    continue;
                }
                wants.push(Want {
                    device,
                    policy: &self.shelf.taker.means.policy,
                    requirement,
                    upstreams,
                    keep: self.keep,
                    tries: self.tries,
                });
            }
        }
        let plans = self.settle(&wants, &mut gathered, &mut report).await?;
        for (want, plan) in wants.iter().zip(&plans) {
            self.tell(want, plan, &gathered, &entry.asked, &mut report).await;
        }
        report.drop_same_packages();
        Ok(report)
    }

    /// Plans and fetches until the plans ask for nothing more.
    async fn settle(
        &self,
        wants: &[Want<'_>],
        gathered: &mut Gathered,
        report: &mut Report,
    ) -> Result<Vec<Plan>, Error> {
        let mut checked = BTreeSet::new();
        // Each round learns something about at least one candidate, and there are at most three things to learn of one.
        let rounds = gathered.candidates.len().saturating_mul(3).saturating_add(1);
        let mut plans = Vec::new();
        for _round in 0..rounds {
            plans = wants.iter().map(|want| plan(want, &gathered.candidates)).collect();
            let fetch: BTreeSet<usize> =
                plans.iter().flat_map(|plan: &Plan| plan.fetch.iter().copied()).collect();
            if self.check_metadata(&fetch, &mut checked, gathered).await {
                continue;
            }
            if fetch.is_empty() || self.dry_run {
                break;
            }
            let work = fetch.into_iter().filter_map(|index| {
                let candidate = gathered.candidates.get(index)?;
                let origin = gathered.origins.get(index)?.as_ref()?;
                let size = gathered.size(index);
                Some(async move {
                    let taken = self.shelf.taker.take(candidate, origin, size, Keeping::AtOnce).await?;
                    Ok::<_, Error>((index, taken))
                })
            });
            // Where one fails, those that are under way still come to their end.
            let taken = join_all(work).await.into_iter().collect::<Result<Vec<(usize, Taken)>, Error>>()?;
            for (index, taken) in taken {
                report.incidents.extend(taken.incidents);
                report.unreachable.extend(taken.unreachable);
                if let Some(bytes) = taken.bytes {
                    report.downloads = report.downloads.saturating_add(1);
                    report.bytes = report.bytes.saturating_add(bytes);
                }
                if let Some(candidate) = gathered.candidates.get_mut(index) {
                    candidate.knowledge = taken.knowledge;
                }
            }
        }
        Ok(plans)
    }

    /// Reads `Requires-Python` out of the metadata beside wheels that are about to be fetched; whether that told anything.
    async fn check_metadata(
        &self,
        fetch: &BTreeSet<usize>,
        checked: &mut BTreeSet<usize>,
        gathered: &mut Gathered,
    ) -> bool {
        let work = fetch.iter().copied().filter(|index| checked.insert(*index)).filter_map(|index| {
            let candidate = gathered.candidates.get(index)?;
            let origin = gathered.origins.get(index)?.as_ref()?;
            Some(async move { (index, self.shelf.taker.requires_python(candidate, origin).await) })
        });
        let found = join_all(work.collect::<Vec<_>>()).await;
        let mut told = false;
        for (index, requires_python) in found {
            if let (Some(candidate), Some(_)) = (gathered.candidates.get_mut(index), &requires_python) {
                candidate.requires_python = requires_python;
                told = true;
            }
        }
        told
    }

    /// Writes a settled plan into the report.
    async fn tell(
        &self,
        want: &Want<'_>,
        plan: &Plan,
        gathered: &Gathered,
        asked: &[String],
        report: &mut Report,
    ) {
        let device = &want.device.id;
        let requirement = want.requirement.to_string();
        for (index, judgement) in &plan.keep {
            let Some(candidate) = gathered.candidates.get(*index) else { continue };
            let Knowledge::Facts { facts, fresh, .. } = &candidate.knowledge else { continue };
            let state = if *fresh { State::Fetched } else { State::Held };
            report.put_packages(device, package_of(gathered, *index, state, Some(facts.size)));
            report.kept.push(Kept {
                device: device.clone(),
                requirement: requirement.clone(),
                project: candidate.name.project.clone(),
                version: candidate.name.version_text().to_owned(),
                file: candidate.name.text.clone(),
                sha256: facts.sha256,
                size: facts.size,
                upstream: gathered.from.get(*index).cloned().unwrap_or_default(),
                verdict: judgement.verdict,
                fetched: *fresh,
            });
        }
        for (index, judgement) in &plan.refused {
            let Some(candidate) = gathered.candidates.get(*index) else { continue };
            let (sha256, fetched) = match &candidate.knowledge {
                Knowledge::Facts { facts, fresh, .. } => (Some(facts.sha256), *fresh),
                _ => (None, false),
            };
            report.refused.push(Refused {
                device: device.clone(),
                requirement: requirement.clone(),
                file: candidate.name.text.clone(),
                sha256,
                verdict: judgement.verdict,
                reasons: judgement.reasons.clone(),
                fetched,
            });
        }
        for (_, why) in &plan.passed_over {
            let counter = report.skipped.entry(key(why)).or_default();
            *counter = counter.saturating_add(1);
        }
        if plan.passed_over.iter().any(|(_, why)| *why == PassedOver::GaveUp) {
            report.notes.push(format!(
                "{requirement} for {device}: the search ended after {} refused versions; the next pass goes on from there",
                self.tries.unwrap_or_default()
            ));
        }
        self.tell_planned(want, plan, gathered, report).await;
        let over_limit = plan.out_of_reach.iter().any(|index| {
            gathered
                .candidates
                .get(*index)
                .is_some_and(|candidate| matches!(candidate.knowledge, Knowledge::OverLimit))
        });
        report.stopped_at_limit |= over_limit;
        if plan.keep.is_empty() && plan.fetch.is_empty() {
            report.missing.push(missing(want, plan, gathered, asked));
        }
    }

    async fn tell_planned(&self, want: &Want<'_>, plan: &Plan, gathered: &Gathered, report: &mut Report) {
        for index in plan.fetch.iter().copied() {
            let (Some(candidate), Some(Some(origin))) =
                (gathered.candidates.get(index), gathered.origins.get(index))
            else {
                continue;
            };
            let device = want.device.id.clone();
            let (state, why) = match candidate.knowledge {
                Knowledge::Facts { .. } => (State::ToFetch, Why::Admitted),
                _ => (State::ToInspect, Why::ToInspect),
            };
            let size = match gathered.size(index) {
                Some(size) => Some(size),
                None => self.shelf.taker.size(origin).await,
            };
            report.put_packages(&device, package_of(gathered, index, state, size));
            let same = |planned: &&mut Planned| {
                planned.file == candidate.name.text && planned.upstream == origin.upstream
            };
            if let Some(planned) = report.planned.iter_mut().find(same) {
                if !planned.devices.contains(&device) {
                    planned.devices.push(device);
                }
                continue;
            }
            report.planned.push(Planned {
                file: candidate.name.text.clone(),
                size,
                upstream: origin.upstream.clone(),
                devices: vec![device],
                why,
            });
        }
    }
}

impl Report {
    /// Adds the report on one project.
    fn add(&mut self, part: Self) {
        // No other project has the same packages.
        for row in part.devices {
            self.put_packages(&row.device, row.packages);
        }
        self.shadowed.extend(part.shadowed);
        self.kept.extend(part.kept);
        self.planned.extend(part.planned);
        self.refused.extend(part.refused);
        for (reason, number) in part.skipped {
            self.count(reason, number);
        }
        self.missing.extend(part.missing);
        self.incidents.extend(part.incidents);
        self.unreachable.extend(part.unreachable);
        self.gone.extend(part.gone);
        self.notes.extend(part.notes);
        self.stopped_at_limit |= part.stopped_at_limit;
        self.downloads = self.downloads.saturating_add(part.downloads);
        self.bytes = self.bytes.saturating_add(part.bytes);
    }

    fn count(&mut self, reason: String, number: u64) {
        let counter = self.skipped.entry(reason).or_default();
        *counter = counter.saturating_add(number);
    }

    fn put_packages(&mut self, device: &str, packages: impl IntoIterator<Item = Package>) {
        match self.devices.iter_mut().find(|row| row.device == device) {
            Some(row) => row.packages.extend(packages),
            None => self.devices.push(DeviceReport {
                device: device.to_owned(),
                packages: packages.into_iter().collect(),
                ..DeviceReport::default()
            }),
        }
    }

    /// Leaves each package of a device once, though several requirements name it.
    fn drop_same_packages(&mut self) {
        for row in &mut self.devices {
            let mut seen = HashSet::new();
            row.packages.retain(|package| seen.insert(package.clone()));
        }
    }

    /// Adds what looking a project up told.
    pub(super) fn add_project(
        &mut self,
        lookups: &Shelf,
        devices: &[DeviceProfile],
        project: &ProjectName,
        entry: &Entry,
    ) {
        let gathered = entry.gathered();
        self.unreachable.extend(entry.unreachable.iter().cloned());
        self.incidents.extend(gathered.incidents.iter().cloned());
        self.gone.extend(gathered.gone.iter().cloned());
        for (reason, number) in &gathered.skipped {
            self.count(reason.clone(), *number);
        }
        for device in devices {
            let owned = lookups.owned(project, &gathered, &lookups.pages.serving(device));
            let from = owned.owner.map(|order| lookups.pages.name(order).to_owned());
            for order in owned.shadowed {
                let upstream = lookups.pages.name(order);
                let same = |row: &&mut Shadowed| {
                    row.project == *project && row.owner == from && row.upstream == upstream
                };
                match self.shadowed.iter_mut().find(same) {
                    Some(row) => row.devices.push(device.id.clone()),
                    None => self.shadowed.push(Shadowed {
                        project: project.clone(),
                        owner: from.clone(),
                        upstream: upstream.to_owned(),
                        devices: vec![device.id.clone()],
                    }),
                }
            }
        }
    }
}

fn package_of(gathered: &Gathered, index: usize, state: State, size: Option<u64>) -> Option<Package> {
    let name = &gathered.candidates.get(index)?.name;
    Some(Package {
        name: name.project.clone(),
        version: name.version_text().to_owned(),
        file: name.text.clone(),
        size,
        sha256: gathered.sha256(index),
        upstream: gathered.from.get(index).cloned().unwrap_or_default(),
        state,
    })
}

/// The name under which a file that was passed over is counted: that of its first reason.
fn key(why: &PassedOver) -> String {
    match why {
        PassedOver::Version => "version".to_owned(),
        PassedOver::Yanked => "yanked".to_owned(),
        PassedOver::PreRelease => "pre-release".to_owned(),
        PassedOver::Older => "older".to_owned(),
        PassedOver::GaveUp => "gave-up".to_owned(),
        PassedOver::Listing(reasons) => reasons
            .first()
            .and_then(|reason| serde_json::to_value(reason.code).ok()?.as_str().map(ToOwned::to_owned))
            .unwrap_or_else(|| "listing".to_owned()),
    }
}

/// Why a device gets nothing for a requirement, and the file that came nearest.
fn missing(want: &Want<'_>, plan: &Plan, gathered: &Gathered, asked: &[String]) -> Missing {
    let name = |index: usize| gathered.candidates.get(index).map(|candidate| candidate.name.text.clone());
    let entry = |text: String, nearest: Option<Nearest>| Missing {
        device: want.device.id.clone(),
        requirement: want.requirement.to_string(),
        text,
        nearest,
    };
    if let Some((file, candidate)) =
        plan.out_of_reach.first().and_then(|index| Some((name(*index)?, gathered.candidates.get(*index)?)))
    {
        let why = match candidate.knowledge {
            Knowledge::OverLimit => "would pass the size limit",
            _ => "could not be fetched",
        };
        return entry(format!("{file} {why}"), None);
    }
    let nearest = nearest(plan, gathered)
        .and_then(|(index, reasons)| Some(Nearest { file: name(index)?, reasons: reasons.to_vec() }));
    if let Some(nearest) = nearest {
        let why = nearest.reasons.first().map_or_else(String::new, sentence);
        return entry(format!("no file fits; {} comes nearest: {why}", nearest.file), Some(nearest));
    }
    let yanked = plan.passed_over.iter().any(|(_, why)| *why == PassedOver::Yanked);
    if yanked {
        return entry(
            "all files that fit the request are yanked; pin one with == to get it".to_owned(),
            None,
        );
    }
    if plan.passed_over.is_empty() {
        let text = if gathered.listed_by.is_empty() {
            let asked = if asked.is_empty() { "none could be asked".to_owned() } else { asked.join(", ") };
            format!("no upstream lists {} (asked: {asked})", want.requirement.project)
        } else {
            format!("{} list no wheel of it for this device", gathered.listed_by.join(", "))
        };
        return entry(text, None);
    }
    let newest = gathered.candidates.iter().max_by(|one, other| one.name.version.cmp(&other.name.version));
    let newest = newest.map_or("", |candidate| candidate.name.version_text());
    entry(format!("no version fits the request; the newest that is listed is {newest}"), None)
}

/// The candidate that came nearest: one that was looked into before one that its name rules out. Of the latter, one for
/// the device's kind of machine before one for another system; then the one whose first reason comes last in the order of
/// reasons, and of equal ones the newest.
fn nearest<'p>(plan: &'p Plan, gathered: &Gathered) -> Option<(usize, &'p [Reason])> {
    let first = |reasons: &[Reason]| reasons.first().map(|reason| reason.code);
    let refused = plan.refused.iter().map(|(index, judgement)| (*index, judgement.reasons.as_slice()));
    let listed = plan.passed_over.iter().filter_map(|(index, why)| match why {
        PassedOver::Listing(reasons) => Some((*index, reasons.as_slice())),
        _ => None,
    });
    let by_name = |(index, reasons): &(usize, &[Reason])| {
        let name = gathered.candidates.get(*index).map(|candidate| &candidate.name);
        (name.map(Machine::of), first(reasons), name.map(|name| name.version.clone()))
    };
    refused.rev().max_by_key(|(_, reasons)| first(reasons)).or_else(|| listed.max_by_key(by_name))
}

fn sentence(reason: &Reason) -> String {
    if reason.remedy.is_empty() { reason.text.clone() } else { format!("{}; {}", reason.text, reason.remedy) }
}
