//! What a pass over sets tells in its report.

use std::collections::BTreeMap;

use super::super::Requirement;
use super::super::plan::{self, Knowledge};
use super::super::report::{
    DeviceError, Kept, Missing, Nearest, Package, Planned, Refused, Report, State, Why,
};
use super::Sets;
use super::goal::{Goal, Outcome, Role};
use crate::policy::{self, Code, DeviceProfile, Judgement, Reason, Verdict};
use crate::resolve::CauseKind;
use crate::wheel::ProjectName;

/// A pick with all that a report says of it.
struct Told {
    package: Package,
    requires: Vec<ProjectName>,
    judgement: Option<Judgement>,
    fresh: bool,
}

impl Sets {
    fn told(&self, goal: &Goal, device: &DeviceProfile) -> Vec<Told> {
        let policy = &self.shelf.taker.means.policy;
        let told = goal.picks().iter().filter_map(|pick| {
            let (project, index) = &pick.place;
            let entry = self.shelf.seen(project)?;
            let gathered = entry.gathered();
            let candidate = gathered.candidates.get(*index)?;
            let (state, judgement, fresh) = match &candidate.knowledge {
                Knowledge::Facts { facts, held, fresh } => {
                    let state = match (held, fresh) {
                        (false, _) => State::ToFetch,
                        (true, true) => State::Fetched,
                        (true, false) => State::Held,
                    };
                    (state, Some(policy::judge(facts, device, policy)), *fresh)
                }
                Knowledge::OverLimit => (State::OverLimit, None, false),
                Knowledge::Unreachable => (State::NotReached, None, false),
                Knowledge::Unknown | Knowledge::Lied(_) => (State::ToInspect, None, false),
            };
            let package = Package {
                name: project.clone(),
                version: candidate.name.version_text().to_owned(),
                file: candidate.name.text.clone(),
                size: gathered.size(*index),
                sha256: gathered.sha256(*index),
                upstream: gathered.from.get(*index).cloned().unwrap_or_default(),
                state,
            };
            Some(Told { package, requires: pick.requires.clone(), judgement, fresh })
        });
        told.collect()
    }

    /// Writes what came of a goal into the report.
    pub(super) fn tell(&self, goal: &Goal, requirements: &[Requirement], report: &mut Report) {
        let Some(device) = self.devices.get(goal.device) else { return };
        let told = self.told(goal, device);
        for one in &told {
            tell_package(goal, device, requirements, one, &told, report);
        }
        report.notes.extend(goal.notes.iter().map(|note| format!("{}: {note}", device.id)));
        self.tell_refused(goal, device, report);
        let stands = |state| told.iter().filter(move |one| one.package.state == state);
        let short: Vec<&str> = stands(State::NotReached)
            .chain(stands(State::OverLimit))
            .map(|one| one.package.file.as_str())
            .collect();
        let error = match &goal.outcome {
            Outcome::None(explanation) => Some(DeviceError::from((**explanation).clone())),
            Outcome::Failed(text) => Some(DeviceError::from(text.clone())),
            Outcome::Unreached(event) => {
                report.unreachable.push(event.clone());
                Some(DeviceError::from(event.text.clone()))
            }
            _ if !short.is_empty() => {
                Some(DeviceError::from(format!("the set is not whole without {}", short.join(", "))))
            }
            _ => None,
        };
        report.stopped_at_limit |= stands(State::OverLimit).next().is_some();
        if goal.role == Role::Older && !matches!(goal.outcome, Outcome::Unreached(_)) && short.is_empty() {
            // That there is no older version is no failure.
            if !told.is_empty()
                && let Some(row) = report.devices.iter_mut().find(|row| row.device == device.id)
            {
                row.older.push(told.into_iter().map(|one| one.package).collect());
            }
            return;
        }
        if let Some(error) = &error {
            let mut nearest = None;
            for cause in &error.causes {
                let Some(file) = cause.files.first() else { continue };
                let by_python = || Reason {
                    code: Code::RequiresPython,
                    member: None,
                    found: Vec::new(),
                    wanted: Vec::new(),
                    text: cause.text.clone(),
                    remedy: String::new(),
                };
                let python = cause.kind == CauseKind::RequiresPython;
                if let Some(reason) = cause.reason.clone().or_else(|| python.then(by_python)) {
                    nearest = Some(Nearest { file: file.clone(), reasons: vec![reason] });
                    break;
                }
            }
            report.missing.push(Missing {
                device: device.id.clone(),
                requirement: goal.label.clone(),
                text: error.text.clone(),
                nearest,
            });
        }
        if let Some(row) = report.devices.iter_mut().find(|row| row.device == device.id) {
            row.error = row.error.take().or(error);
            if goal.role != Role::Older {
                let known: Vec<String> = row.packages.iter().map(|package| package.file.clone()).collect();
                let new = told.into_iter().filter(|one| !known.contains(&one.package.file));
                row.packages.extend(new.map(|one| one.package));
            }
        }
    }

    /// Names what was looked into and refused: what this pass fetched, and newer versions of what was asked for.
    fn tell_refused(&self, goal: &Goal, device: &DeviceProfile, report: &mut Report) {
        let policy = &self.shelf.taker.means.policy;
        for project in &goal.reached {
            let Some(entry) = self.shelf.seen(project) else { continue };
            let gathered = entry.gathered();
            let asked: Vec<_> = goal
                .request
                .requirements
                .iter()
                .filter(|requirement| requirement.project == *project)
                .collect();
            let chosen = goal.picks().iter().find(|pick| pick.place.0 == *project);
            let chosen = chosen.and_then(|pick| gathered.candidates.get(pick.place.1));
            for index in self.shelf.offered(project, &gathered, device) {
                let Some(candidate) = gathered.candidates.get(index) else { continue };
                let (judgement, sha256, fetched) = match &candidate.knowledge {
                    Knowledge::Facts { facts, fresh, .. } => {
                        (policy::judge(facts, device, policy), Some(facts.sha256), *fresh)
                    }
                    Knowledge::Lied(reason) => (plan::refusal(reason), None, false),
                    _ => continue,
                };
                let excluded = goal.excluded.get(&(project.clone(), index));
                if policy.lists(project, judgement.verdict) && excluded.is_none() {
                    continue;
                }
                let by_name = policy::judge_listing(
                    &candidate.name,
                    candidate.requires_python.as_deref(),
                    device,
                    policy,
                );
                let newer = chosen.is_none_or(|chosen| candidate.name.version > chosen.name.version);
                let wanted = !asked.is_empty()
                    && newer
                    && asked.iter().all(|own| own.specifiers.contains(&candidate.name.version));
                if !by_name.is_empty() || !(fetched || wanted || sha256.is_none() || excluded.is_some()) {
                    continue;
                }
                let known =
                    |refused: &Refused| refused.device == device.id && refused.file == candidate.name.text;
                if report.refused.iter().any(known) {
                    continue;
                }
                let (verdict, reasons) = match excluded {
                    Some(reason) => (Verdict::Refuse, vec![reason.clone()]),
                    None => (judgement.verdict, judgement.reasons),
                };
                report.refused.push(Refused {
                    device: device.id.clone(),
                    requirement: asked.first().map_or_else(|| project.to_string(), |own| own.text.clone()),
                    file: candidate.name.text.clone(),
                    sha256,
                    verdict,
                    reasons,
                    fetched,
                });
            }
        }
    }

    /// Writes what was found out about the projects themselves into the report.
    pub(super) fn tell_projects(&self, goals: &[Goal], report: &mut Report) {
        let policy = &self.shelf.taker.means.policy;
        for (project, entry) in self.shelf.all() {
            let reached: Vec<&DeviceProfile> = goals
                .iter()
                .filter(|goal| goal.role != Role::Older && goal.reached.contains(&project))
                .filter_map(|goal| self.devices.get(goal.device))
                .collect();
            if reached.is_empty() {
                continue;
            }
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            let gathered = entry.gathered();
            for device in reached {
                for index in self.shelf.offered(&project, &gathered, device) {
                    let Some(candidate) = gathered.candidates.get(index) else { continue };
                    if !matches!(candidate.knowledge, Knowledge::Unknown) {
                        continue;
                    }
                    let page = candidate.requires_python.as_deref();
                    if let Some(reason) = policy::judge_listing(&candidate.name, page, device, policy).first()
                    {
                        let counter = counts.entry(policy::code_name(&reason.code)).or_default();
                        *counter = counter.saturating_add(1);
                    }
                }
            }
            drop(gathered);
            self.shelf.tell(&project, &entry, &self.devices, report);
            for (reason, number) in counts {
                report.count(reason, number);
            }
        }
    }
}

/// Writes one file of a set into the report.
fn tell_package(
    goal: &Goal,
    device: &DeviceProfile,
    requirements: &[Requirement],
    one: &Told,
    all: &[Told],
    report: &mut Report,
) {
    let package = &one.package;
    let stated = requirements.iter().find(|requirement| requirement.project == package.name);
    let requirement = match stated {
        _ if goal.role == Role::Older
            && goal.request.requirements.iter().any(|own| own.project == package.name) =>
        {
            goal.label.clone()
        }
        Some(requirement) => requirement.to_string(),
        None => {
            let dependant = all.iter().find(|other| other.requires.contains(&package.name));
            dependant.map_or_else(String::new, |other| format!("needed by {}", other.package.name))
        }
    };
    match package.state {
        State::Held | State::Fetched => {
            let (Some(sha256), Some(size), Some(judgement)) = (package.sha256, package.size, &one.judgement)
            else {
                return;
            };
            if report.kept.iter().any(|kept| kept.device == device.id && kept.sha256 == sha256) {
                return;
            }
            report.kept.push(Kept {
                device: device.id.clone(),
                requirement,
                project: package.name.clone(),
                version: package.version.clone(),
                file: package.file.clone(),
                sha256,
                size,
                upstream: package.upstream.clone(),
                verdict: judgement.verdict,
                fetched: one.fresh,
            });
        }
        State::ToFetch | State::ToInspect => {
            let planned = Planned {
                file: package.file.clone(),
                size: package.size,
                upstream: package.upstream.clone(),
                devices: Vec::new(),
                why: if package.state == State::ToFetch { Why::Admitted } else { Why::ToInspect },
            };
            report.put_planned(&device.id, planned);
        }
        State::NotReached | State::OverLimit => {}
    }
}
