//! What a pass did, as values: the JSON of `sync --format json`.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::digest::Sha256;
use crate::policy::{Reason, Verdict};
use crate::resolve::{Cause, Explanation};
use crate::wheel::ProjectName;

/// What a pass did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The devices of the pass, and what each gets.
    pub devices: Vec<DeviceReport>,
    /// Whether nothing was fetched on purpose.
    pub dry_run: bool,
    /// Files that satisfy a requirement on a device, and that the store holds.
    pub kept: Vec<Kept>,
    /// Files that would be fetched next; empty after a pass that was no dry run.
    pub planned: Vec<Planned>,
    /// Files that were looked into and are refused.
    pub refused: Vec<Refused>,
    /// How many files were passed over without a download, by reason; a file counts once for each device.
    pub skipped: BTreeMap<String, u64>,
    /// Requirements for which a device got nothing.
    pub missing: Vec<Missing>,
    /// What upstreams did wrong.
    pub incidents: Vec<Event>,
    /// What could not be reached.
    pub unreachable: Vec<Event>,
    /// Files that their upstream lists no more; they stay.
    pub gone: Vec<String>,
    /// Projects that a further upstream lists, from which nothing of them is taken.
    pub shadowed: Vec<Shadowed>,
    /// Upstreams that lost most of what was known from them.
    pub losses: Vec<Loss>,
    /// What else is to be told.
    pub notes: Vec<String>,
    /// Whether the limit on bytes stopped the pass.
    pub stopped_at_limit: bool,
    /// Number of wheels downloaded.
    pub downloads: u64,
    /// Bytes of wheels downloaded.
    pub bytes: u64,
}

/// What a device gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Device profile.
    pub device: String,
    /// The set that is installed there, by project.
    pub packages: Vec<Package>,
    /// Sets with the next older versions of what was asked for, where more than one was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub older: Vec<Vec<Package>>,
    /// Why there is no set, or why it is not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<DeviceError>,
}

/// One file of a set.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Package {
    /// Project.
    pub name: ProjectName,
    /// Version.
    pub version: String,
    /// File name.
    pub file: String,
    /// Size in bytes, where the upstream says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Digest, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// Where it is from; `local` where the store alone has it.
    pub upstream: String,
    /// How it stands.
    pub state: State,
}

/// How a file of a set stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum State {
    /// The store had it.
    #[serde(rename = "held")]
    Held,
    /// This pass fetched it.
    #[serde(rename = "fetched")]
    Fetched,
    /// It is admitted by what is known of it, and has to be fetched.
    #[serde(rename = "to fetch")]
    ToFetch,
    /// Its content decides, and has to be fetched for that.
    #[serde(rename = "to inspect")]
    ToInspect,
    /// It could not be reached.
    #[serde(rename = "not reached")]
    NotReached,
    /// It would pass the size limit.
    #[serde(rename = "over limit")]
    OverLimit,
}

/// Why a device has no set, or no whole one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceError {
    /// All of it, in sentences.
    pub text: String,
    /// What stands in the way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// A request near to this one that has an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<String>,
    /// Other device profiles for which the request has an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
}

impl From<String> for DeviceError {
    fn from(text: String) -> Self {
        Self { text, causes: Vec::new(), instead: Vec::new(), elsewhere: Vec::new() }
    }
}

impl From<Explanation> for DeviceError {
    fn from(explanation: Explanation) -> Self {
        let Explanation { text, causes, instead, elsewhere } = explanation;
        Self { text, causes, instead, elsewhere }
    }
}

/// A project that a further upstream lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shadowed {
    /// The project.
    pub project: ProjectName,
    /// Where it is taken from; none where that cannot be said before that upstream answers.
    pub owner: Option<String>,
    /// The upstream that lists it as well.
    pub upstream: String,
    /// The devices that both serve.
    pub devices: Vec<String>,
}

/// What an upstream lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The upstream.
    pub upstream: String,
    /// The devices that it serves.
    pub devices: Vec<String>,
    /// Projects that were known from it, as far as they were looked at.
    pub projects: u64,
    /// How many of them it lists no file of that was known.
    pub lost_projects: u64,
    /// Files that were known from it.
    pub files: u64,
    /// How many of them it no longer lists.
    pub lost_files: u64,
    /// The first of them.
    pub lost: Vec<String>,
    /// Whether the pass went on all the same.
    pub accepted: bool,
}

/// A file that satisfies a requirement on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Device profile.
    pub device: String,
    /// The requirement.
    pub requirement: String,
    /// Project.
    pub project: ProjectName,
    /// Version, as the file name writes it.
    pub version: String,
    /// File name.
    pub file: String,
    /// Digest.
    pub sha256: Sha256,
    /// Size in bytes.
    pub size: u64,
    /// Where it is from; `local` where the store alone has it.
    pub upstream: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether this pass fetched it.
    pub fetched: bool,
}

/// A file that would be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// File name.
    pub file: String,
    /// Size in bytes, where the upstream says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where it is from.
    pub upstream: String,
    /// The devices it is for.
    pub devices: Vec<String>,
    /// Why it has to be fetched.
    pub why: Why,
}

/// Why a file has to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Nothing is known of it; its content decides.
    ToInspect,
    /// It is admitted by what is known of it.
    Admitted,
}

/// A file that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Device profile.
    pub device: String,
    /// The requirement.
    pub requirement: String,
    /// File name.
    pub file: String,
    /// Digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
    /// Whether this pass fetched it.
    pub fetched: bool,
}

/// A requirement for which a device got nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Device profile.
    pub device: String,
    /// The requirement.
    pub requirement: String,
    /// A sentence for people.
    pub text: String,
    /// The file that came nearest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Nearest>,
}

/// The file that came nearest to a requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nearest {
    /// File name.
    pub file: String,
    /// Why it is not it.
    pub reasons: Vec<Reason>,
}

/// Something that happened with an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// `changed-file`, `hash-mismatch`, `metadata-mismatch`, `differs`, `page`, `file`.
    pub kind: &'static str,
    /// Which upstream.
    pub upstream: String,
    /// File or project.
    pub name: String,
    /// A sentence for people.
    pub text: String,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every requirement is satisfied on every device.
    Complete,
    /// Some requirement is not, for reasons that trying again does not change.
    Incomplete,
    /// Something that is wanted could not be reached, or came damaged.
    Unreachable,
}

impl Report {
    /// Adds the report on one project.
    pub(super) fn add(&mut self, part: Self) {
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

    /// Counts files that were passed over for the same reason.
    pub(super) fn count(&mut self, reason: String, number: u64) {
        let counter = self.skipped.entry(reason).or_default();
        *counter = counter.saturating_add(number);
    }

    /// Adds files to what a device gets.
    pub(super) fn put_packages(&mut self, device: &str, packages: impl IntoIterator<Item = Package>) {
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
    pub(super) fn drop_same_packages(&mut self) {
        for row in &mut self.devices {
            let mut seen = HashSet::new();
            row.packages.retain(|package| seen.insert(package.clone()));
        }
    }

    /// Adds a device to those for which a file would be fetched.
    pub(super) fn put_planned(&mut self, device: &str, planned: Planned) {
        let same = |known: &&mut Planned| known.file == planned.file && known.upstream == planned.upstream;
        let devices = match self.planned.iter_mut().find(same) {
            Some(known) => &mut known.devices,
            None => &mut self.planned.push_mut(planned).devices,
        };
        if !devices.iter().any(|known| known == device) {
            devices.push(device.to_owned());
        }
    }

    /// Leaves out of what would be fetched what would pass a limit in bytes; a pass for sets fetches what is smallest first.
    pub(super) fn limit_plan(&mut self, most: u64, smallest_first: bool) {
        if smallest_first {
            self.planned.sort_by_key(|planned| planned.size);
        }
        let mut left = most;
        let (within, over) = std::mem::take(&mut self.planned).into_iter().partition(|planned: &Planned| {
            let rest = left.checked_sub(planned.size.unwrap_or(0));
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        self.planned = within;
        self.stopped_at_limit |= !over.is_empty();
        for row in &mut self.devices {
            let mut short = Vec::new();
            for package in &mut row.packages {
                if over
                    .iter()
                    .any(|planned| planned.file == package.file && planned.devices.contains(&row.device))
                {
                    package.state = State::OverLimit;
                    short.push(package.file.as_str());
                }
            }
            if !short.is_empty() && row.error.is_none() {
                row.error = Some(format!("the set is not whole without {}", short.join(", ")).into());
            }
        }
    }

    /// How the pass ended.
    pub fn outcome(&self) -> Outcome {
        let stopped = self.losses.iter().any(|loss| !loss.accepted);
        let failed = self.devices.iter().any(|device| device.error.is_some());
        if !self.unreachable.is_empty() {
            Outcome::Unreachable
        } else if stopped || failed || !self.missing.is_empty() || self.stopped_at_limit {
            Outcome::Incomplete
        } else {
            Outcome::Complete
        }
    }
}
