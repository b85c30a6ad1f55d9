//! What devices reported of a snapshot's wheels, and whether it is enough to promote it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pep440_rs::Version;
use serde::{Deserialize, Serialize};

use super::snapshots::device as find_device;
use super::wrong::Wrong;
use crate::policy::{DeviceProfile, Policy, judge};
use crate::resolve::closure::{Brief, Wheel, closure_by};
use crate::store::{DeviceReport, Snapshot, SnapshotFile, Store};
use crate::wheel::Facts;

/// The projects whose wheels `check.py` runs: matrix products and convolutions are torch's, NMS is torchvision's.
const CHECKED: [&str; 2] = ["torch", "torchvision"];

/// A wheel of a snapshot that too few devices ran well.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lack {
    device: String,
    /// The wheel; none where the snapshot has no wheel of the checked projects for the device.
    file: Option<String>,
    /// How many devices ran it well.
    passed: usize,
    /// How many devices report that it fails.
    failed: usize,
    required: usize,
}

impl Lack {
    pub(crate) fn text(&self) -> String {
        let Self { device, passed, failed, required, .. } = self;
        let Some(file) = &self.file else {
            return format!("{device}: the snapshot lists neither {} for it", CHECKED.join(" nor "));
        };
        let failures = match failed {
            0 => String::new(),
            count => format!(", {count} say that it fails"),
        };
        format!("{device}: {file}: {passed} of {required} devices ran it well{failures}")
    }
}

/// The wheels of a snapshot that fewer than `required` devices ran well. Looked at are the named profiles, or else all of which
/// there is any report.
pub(crate) fn lacking(
    store: &Store,
    policy: &Policy,
    snapshot: &Snapshot,
    named: &[String],
    required: usize,
) -> Result<Vec<Lack>, Wrong> {
    let reports = store.reports()?;
    let mut profiles: BTreeSet<&str> = named.iter().map(String::as_str).collect();
    if profiles.is_empty() {
        let known = reports.iter().map(|report| report.body.device.as_str());
        profiles = known.filter(|id| policy.device(id).is_some()).collect();
    }
    if profiles.is_empty() {
        let text = "no device has sent a report yet, so nothing says for which profiles the snapshot is: name them by \
                    --device, and run /DEVICE/check.py on them";
        return Err(Wrong::Stands(text.to_owned()));
    }
    let mut lacking = Vec::new();
    for id in profiles {
        let device = find_device(policy, id)?;
        let chosen = chosen(store, policy, snapshot, device)?;
        if chosen.is_empty() {
            lacking.push(Lack { device: device.id.clone(), file: None, passed: 0, failed: 0, required });
        }
        for facts in chosen {
            let (passed, failed) = count(&reports, device, &facts);
            if passed < required {
                let file = Some(facts.file.clone());
                lacking.push(Lack { device: device.id.clone(), file, passed, failed, required });
            }
        }
    }
    Ok(lacking)
}

/// Of each checked project the newest wheel that the snapshot's index lists for a device: what a plain request installs.
fn chosen(
    store: &Store,
    policy: &Policy,
    snapshot: &Snapshot,
    device: &DeviceProfile,
) -> Result<Vec<Arc<Facts>>, Wrong> {
    let mut known: Vec<(Arc<Facts>, Wheel)> = Vec::new();
    let is_checked = |file: &&SnapshotFile| CHECKED.contains(&file.project.as_str());
    for file in snapshot.files.iter().filter(is_checked) {
        let Some(row) = store.row_named(&file.sha256, &file.file)? else { continue };
        let verdict = judge(&row.facts, device, policy).verdict;
        let brief = Arc::new(Brief::of(&row.facts));
        known.push((row.facts, Wheel { brief, verdict }));
    }
    let wheels: Vec<Wheel> = known.iter().map(|(_, wheel)| wheel.clone()).collect();
    let changes = closure_by(&wheels, device, policy);
    let refused: BTreeSet<usize> =
        changes.iter().filter(|(_, change)| !change.refusals.is_empty()).map(|(at, _)| *at).collect();
    let mut newest: BTreeMap<&str, (Version, Arc<Facts>)> = BTreeMap::new();
    for (at, (facts, wheel)) in known.iter().enumerate() {
        let Some(project) = &facts.project else { continue };
        let Some(version) = facts.version.as_ref().and_then(|text| text.parse::<Version>().ok()) else {
            continue;
        };
        if refused.contains(&at) || !policy.lists(project, wheel.verdict) {
            continue;
        }
        match newest.get(project.as_str()) {
            Some((other, _)) if *other >= version => {}
            _ => {
                newest.insert(project.as_str(), (version, Arc::clone(facts)));
            }
        }
    }
    Ok(newest.into_values().map(|(_, facts)| facts).collect())
}

/// How many devices ran a wheel well on their GPU, and how many say that it fails. The last report of each device counts.
fn count(reports: &[DeviceReport], device: &DeviceProfile, facts: &Facts) -> (usize, usize) {
    let mut last: BTreeMap<String, bool> = BTreeMap::new();
    for (number, report) in reports.iter().enumerate() {
        let body = &report.body;
        let on_gpu = body.gpu.as_ref().is_some_and(|gpu| {
            // Thor's compute capability was 10.1 until CUDA 13 called it 11.0.
            let chip = |text: &str| if text == "10.1" { "11.0".to_owned() } else { text.to_owned() };
            chip(&gpu.compute_capability) == chip(&device.compute_capability.to_string())
        });
        if on_gpu && report.is_of(&device.id, facts) {
            // A report without a unit is by an older check.py: it stands for a device of its own.
            let unit = body.unit.clone().unwrap_or_else(|| format!("report {number}"));
            last.insert(unit, body.passed);
        }
    }
    let passed = last.values().filter(|passed| **passed).count();
    (passed, last.len().saturating_sub(passed))
}
