//! The verdicts of a whole project, as they are told.

use std::collections::HashMap;

use super::{Terms, Together, Verdicts};
use crate::digest::Sha256;
use crate::policy::{Candidate, DeviceCheck, Explanation, Judgement, explain, judge};
use crate::resolve::closure::{Change, Connected};
use crate::store::{self, DeviceReport, Listed};
use crate::wheel::{Facts, ProjectName};

impl Verdicts {
    /// Every known file of a project with its verdict, reasons and notes; none if there is no file. Blocks.
    pub(crate) fn explain(
        &self,
        project: &ProjectName,
        terms: Terms<'_>,
        wanted: Option<&pep440_rs::VersionSpecifiers>,
    ) -> Result<Option<Explanation>, store::Error> {
        let Terms { device, in_force, scope } = terms;
        let mut rows = self.store.rows(project)?;
        rows.retain(|row| {
            let facts = &row.facts;
            scope.lists(project, &facts.file, &facts.sha256) || scope.knew(row.held, &row.provenance)
        });
        if rows.is_empty() {
            return Ok(None);
        }
        let mut own = Vec::new();
        let mut connected = Connected::new(device, &in_force.policy, |name: &ProjectName| {
            let (files, wheels) = self.wheels(name, terms)?;
            if name == project {
                own = files;
            }
            Ok::<_, store::Error>(wheels)
        });
        let changes = connected.changes(project)?;
        drop(connected);
        let changes: HashMap<(Sha256, &str), &Change> = changes
            .iter()
            .filter_map(|(at, change)| own.get(*at).map(|file| ((file.sha256, file.file.as_str()), change)))
            .collect();
        let reports = self.store.reports()?;
        let candidates: Vec<Candidate> = rows
            .into_iter()
            .map(|row| {
                let mut judgement = judge(&row.facts, device, &in_force.policy);
                if let Some(change) = changes.get(&(row.facts.sha256, row.facts.file.as_str())) {
                    change.apply(&mut judgement);
                }
                let replaced = scope.id().is_none() && row.provenance.replaced_since.is_some();
                let listed = in_force.policy.lists(project, judgement.verdict) && !replaced;
                let of_wheel = |report: &&DeviceReport| report.is_of(&device.id, &row.facts);
                let reports = reports.iter().filter(of_wheel).map(check).collect();
                let gone_since = row.provenance.gone_since;
                Candidate { facts: row.facts, held: row.held, judgement, listed, gone_since, reports }
            })
            .collect();
        Ok(Some(explain(project, &device.id, &candidates, wanted)))
    }
}

impl Verdicts {
    /// The newest file of a project that a device gets; none if it gets none. Blocks.
    pub(crate) fn newest_listed(
        &self,
        files: &[Listed],
        together: &Together,
        terms: Terms<'_>,
    ) -> Result<Option<Listed>, store::Error> {
        for file in files.iter().filter(|file| file.held && file.metadata_sha256.is_some()) {
            if self.refusal(file, together, terms)?.is_none() {
                return Ok(Some(file.clone()));
            }
        }
        Ok(None)
    }
}

/// The verdict on one file, with all reasons and with those that looking at it beside others found.
pub(crate) fn judgement(facts: &Facts, together: &Together, terms: Terms<'_>) -> Judgement {
    let mut judgement = judge(facts, terms.device, &terms.in_force.policy);
    if let Some(change) = together.refusal(&facts.sha256, &facts.file) {
        change.apply(&mut judgement);
    }
    judgement
}

/// What an explanation shows of a report.
fn check(report: &DeviceReport) -> DeviceCheck {
    let gpu = report.body.gpu.as_ref().map(|gpu| gpu.name.clone());
    DeviceCheck { time: report.time.clone(), passed: report.body.passed, gpu }
}
