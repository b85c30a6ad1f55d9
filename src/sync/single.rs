//! A pass over requirements each by itself: the wheels of its own project, without what they need.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;

use super::Error;
use super::gather::Gathered;
use super::plan::{Plan, Want, plan};
use super::report::Report;
use super::requirements::Requirement;
use super::shelf::Shelf;
use super::take::{Keeping, Taken};
use crate::policy::DeviceProfile;
use crate::wheel::ProjectName;

mod tell;

/// Projects that are worked on at the same time; how many wheels are fetched at once is another number.
const PROJECTS_AT_ONCE: usize = 8;

/// A pass at work.
pub(super) struct Singles {
    pub(super) shelf: Arc<Shelf>,
    pub(super) devices: Arc<Vec<DeviceProfile>>,
    /// Ids of the devices whose pass is over before it begins.
    pub(super) stopped: BTreeSet<String>,
    /// How many versions are kept of each requirement.
    pub(super) keep: usize,
    /// After how many refused wheels a search ends.
    pub(super) tries: Option<usize>,
    pub(super) dry_run: bool,
}

impl Singles {
    /// Finds and fetches the wheels of each requirement, for all devices that are not stopped.
    pub(super) async fn run(&self, requirements: &[Requirement], report: &mut Report) -> Result<(), Error> {
        let mut projects: Vec<(ProjectName, Vec<&Requirement>)> = Vec::new();
        let mut places: HashMap<&ProjectName, usize> = HashMap::new();
        for requirement in requirements {
            let place = *places.entry(&requirement.project).or_insert(projects.len());
            match projects.get_mut(place) {
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
        self.shelf.tell(project, &entry, &self.devices, &mut report);
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
            for (index, mut taken) in taken {
                taken.tell(report);
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
}
