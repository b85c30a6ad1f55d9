//! A pass over all projects that are wanted.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream;
use tokio::sync::Semaphore;

use super::gather::{Answered, Gathered, gather};
use super::plan::{Knowledge, PassedOver, Plan, Want, plan};
use super::report::{Event, Kept, Missing, Nearest, Planned, Refused, Report, Why};
use super::requirements::Requirement;
use super::take::{Budget, Taken, Taker, chain};
use super::{Error, Listener, Means, Progress, Request};
use crate::policy::{DeviceProfile, Reason};
use crate::upstream::Source;
use crate::wheel::ProjectName;

/// Projects that are worked on at the same time; how many wheels are fetched at once is another number.
const PROJECTS_AT_ONCE: usize = 8;

/// A pass at work.
struct Pass {
    taker: Taker,
    devices: Arc<Vec<DeviceProfile>>,
    sources: Vec<(Source, Vec<String>)>,
    keep: usize,
    tries: Option<usize>,
    dry_run: bool,
}

/// Does one pass. What upstreams do wrong is in the report; an error means that the pass ended early.
pub async fn run(request: Request, means: Means, listener: Listener) -> Result<Report, Error> {
    let devices = Arc::new(request.devices);
    let pass = Pass {
        taker: Taker {
            means,
            devices: Arc::clone(&devices),
            listener,
            permits: Semaphore::new(request.jobs.clamp(1, Semaphore::MAX_PERMITS)),
            budget: Budget::new(request.most_bytes),
            now: jiff::Timestamp::now().to_string(),
        },
        devices,
        sources: request.sources,
        keep: request.keep,
        tries: request.tries,
        dry_run: request.dry_run,
    };
    let mut report = Report {
        devices: pass.devices.iter().map(|device| device.id.clone()).collect(),
        dry_run: request.dry_run,
        ..Report::default()
    };
    let mut projects: Vec<(ProjectName, Vec<&Requirement>)> = Vec::new();
    for requirement in &request.requirements {
        match projects.iter_mut().find(|(project, _)| *project == requirement.project) {
            Some((_, requirements)) => requirements.push(requirement),
            None => projects.push((requirement.project.clone(), vec![requirement])),
        }
    }
    let pass = &pass;
    let work = projects.iter().map(|(project, requirements)| pass.project(project, requirements));
    // Under a limit the order decides who gets what is left, so it has to be that of the requirements.
    let at_once = if pass.taker.budget.is_limited() { 1 } else { PROJECTS_AT_ONCE };
    let mut parts = stream::iter(work).buffered(at_once);
    while let Some(part) = parts.next().await {
        report.add(part?);
    }
    Ok(report)
}

impl Pass {
    async fn project(&self, project: &ProjectName, requirements: &[&Requirement]) -> Result<Report, Error> {
        (self.taker.listener)(Progress::Project { project: project.to_string() });
        let mut report = Report::default();
        let answers = self.ask(project, &mut report).await;
        let asked: Vec<String> = answers.iter().map(|answer| answer.upstream.clone()).collect();
        let store = Arc::clone(&self.taker.means.store);
        let (own, now) = (project.clone(), self.taker.now.clone());
        let gathering = move || gather(&store, &own, answers, &now);
        let mut gathered = tokio::task::spawn_blocking(gathering).await??;
        report.incidents.append(&mut gathered.incidents);
        report.gone.append(&mut gathered.gone);
        report.skipped.append(&mut gathered.skipped);

        let served: Vec<Vec<usize>> = self.devices.iter().map(|device| self.serving(device)).collect();
        let mut wants = Vec::new();
        for requirement in requirements {
            for (device, upstreams) in self.devices.iter().zip(&served) {
                if !requirement.applies_to(device) {
                    report.notes.push(format!("{requirement}: its marker does not hold on {}", device.id));
                    continue;
                }
                wants.push(Want {
                    device,
                    policy: &self.taker.means.policy,
                    requirement,
                    upstreams,
                    keep: self.keep,
                    tries: self.tries,
                });
            }
        }
        let plans = self.settle(&wants, &mut gathered, &mut report).await?;
        for (want, plan) in wants.iter().zip(&plans) {
            self.tell(want, plan, &gathered, &asked, &mut report).await;
        }
        Ok(report)
    }

    /// Places of the upstreams that serve a device.
    fn serving(&self, device: &DeviceProfile) -> Vec<usize> {
        let serves = |(order, (_, devices)): (usize, &(Source, Vec<String>))| {
            devices.contains(&device.id).then_some(order)
        };
        self.sources.iter().enumerate().filter_map(serves).collect()
    }

    /// Asks all upstreams for a project's page.
    async fn ask(&self, project: &ProjectName, report: &mut Report) -> Vec<Answered> {
        let pages = join_all(self.sources.iter().map(|(source, _)| source.project(project))).await;
        let mut answers = Vec::new();
        for (order, ((source, _), page)) in self.sources.iter().zip(pages).enumerate() {
            let upstream = source.upstream.name.clone();
            match page {
                Ok(listing) => answers.push(Answered { order, upstream, listing }),
                Err(error) => report.unreachable.push(Event {
                    kind: "page",
                    upstream,
                    name: project.to_string(),
                    text: chain(&error),
                }),
            }
        }
        answers
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
                Some(async move { Ok::<_, Error>((index, self.taker.take(candidate, origin).await?)) })
            });
            let taken: Vec<(usize, Taken)> = try_join_all(work).await?;
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
            Some(async move { (index, self.taker.requires_python(candidate, origin).await) })
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
            let same = |planned: &&mut Planned| {
                planned.file == candidate.name.text && planned.upstream == origin.upstream
            };
            if let Some(planned) = report.planned.iter_mut().find(same) {
                if !planned.devices.contains(&device) {
                    planned.devices.push(device);
                }
                continue;
            }
            let why = match candidate.knowledge {
                Knowledge::Facts { .. } => Why::Admitted,
                _ => Why::ToInspect,
            };
            report.planned.push(Planned {
                file: candidate.name.text.clone(),
                size: self.taker.size(origin).await,
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
        self.kept.extend(part.kept);
        self.planned.extend(part.planned);
        self.refused.extend(part.refused);
        for (reason, number) in part.skipped {
            let counter = self.skipped.entry(reason).or_default();
            *counter = counter.saturating_add(number);
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
    let nearest = nearest(plan)
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

/// The candidate that came nearest: one that was looked into before one that its name rules out, and then the one whose
/// first reason comes last in the order of reasons. Of equal ones the newest.
fn nearest(plan: &Plan) -> Option<(usize, &[Reason])> {
    let first = |reasons: &[Reason]| reasons.first().map(|reason| reason.code);
    let refused = plan.refused.iter().map(|(index, judgement)| (*index, judgement.reasons.as_slice()));
    let listed = plan.passed_over.iter().filter_map(|(index, why)| match why {
        PassedOver::Listing(reasons) => Some((*index, reasons.as_slice())),
        _ => None,
    });
    let best = |one: &(usize, &[Reason])| first(one.1);
    refused.rev().max_by_key(best).or_else(|| listed.rev().max_by_key(best))
}

fn sentence(reason: &Reason) -> String {
    if reason.remedy.is_empty() { reason.text.clone() } else { format!("{}; {}", reason.text, reason.remedy) }
}
