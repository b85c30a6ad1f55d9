//! A pass, from what is asked to the report.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::losses::losses;
use super::pages::Pages;
use super::plan::Knowledge;
use super::report::{DeviceReport, Report};
use super::set::Sets;
use super::shelf::Shelf;
use super::single::Singles;
use super::take::{Budget, Taker};
use super::{Error, Listener, Means, Request};
use crate::digest::Sha256;

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
        let singles = Singles { shelf: Arc::clone(&shelf), devices, stopped, keep, tries, dry_run };
        singles.run(&request.requirements, &mut report).await?;
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
