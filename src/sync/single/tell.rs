//! What a pass over single requirements tells in its report.

use super::Singles;
use crate::policy::{self, Reason};
use crate::sync::gather::Gathered;
use crate::sync::plan::{Candidate, Knowledge, PassedOver, Plan, Want};
use crate::sync::report::{Kept, Missing, Nearest, Package, Planned, Refused, Report, State, Why};
use crate::wheel::Machine;

impl Singles {
    /// Writes a settled plan into the report.
    pub(super) async fn tell(
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
            report.put_packages(device, [package_of(candidate, gathered, *index, state, Some(facts.size))]);
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
            report.count(key(why), 1);
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
            report.put_packages(&device, [package_of(candidate, gathered, index, state, size)]);
            report.put_planned(
                &device,
                Planned {
                    file: candidate.name.text.clone(),
                    size,
                    upstream: origin.upstream.clone(),
                    devices: Vec::new(),
                    why,
                },
            );
        }
    }
}

fn package_of(
    candidate: &Candidate,
    gathered: &Gathered,
    index: usize,
    state: State,
    size: Option<u64>,
) -> Package {
    Package {
        name: candidate.name.project.clone(),
        version: candidate.name.version_text().to_owned(),
        file: candidate.name.text.clone(),
        size,
        sha256: gathered.sha256(index),
        upstream: gathered.from.get(index).cloned().unwrap_or_default(),
        state,
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
        PassedOver::Listing(reasons) => {
            reasons.first().map_or_else(|| "listing".to_owned(), |reason| policy::code_name(&reason.code))
        }
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
