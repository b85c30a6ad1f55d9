//! What a pass did, as values: the JSON of `sync --format json`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::digest::Sha256;
use crate::policy::{Reason, Verdict};
use crate::wheel::ProjectName;

/// What a pass did.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Device profiles of the pass.
    pub devices: Vec<String>,
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
    /// What else is to be told.
    pub notes: Vec<String>,
    /// Whether the limit on bytes stopped the pass.
    pub stopped_at_limit: bool,
    /// Number of wheels downloaded.
    pub downloads: u64,
    /// Bytes of wheels downloaded.
    pub bytes: u64,
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
    /// `changed-file`, `hash-mismatch`, `metadata-mismatch`, `page`, `file`.
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
    /// How the pass ended.
    pub fn outcome(&self) -> Outcome {
        if !self.unreachable.is_empty() {
            Outcome::Unreachable
        } else if !self.missing.is_empty() || self.stopped_at_limit {
            Outcome::Incomplete
        } else {
            Outcome::Complete
        }
    }
}
