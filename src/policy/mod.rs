//! Device profiles, and which wheels run on which: facts × profile × policy = verdict.

mod device;
mod explain;
mod verdict;

pub use device::{DeviceProfile, NotAVersion, Stack, Version};
pub use explain::{Candidate, ExplainedFile, Explanation, code_name, explain};
pub use verdict::{Code, Judgement, Note, NoteCode, Reason, Verdict};

use crate::wheel::{Facts, ProjectName, WheelFilename};

/// All tables, built in and of the site: what facts are judged by.
#[derive(Debug, Clone, Default)]
pub struct Policy {}

/// Why a policy file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {text}")]
pub struct PolicyError {
    /// The file's name.
    pub file: String,
    /// What is wrong with it, with line and column where that is known.
    pub text: String,
}

impl Policy {
    /// The built-in tables.
    pub fn builtin() -> Self {
        Self {}
    }

    /// The built-in tables with a site's files read over them: names relative to its folder (`devices.toml`, `rules.toml`,
    /// `advisories/x.toml`) and their texts.
    pub fn with_site(_files: &[(String, String)]) -> Result<Self, PolicyError> {
        Ok(Self {})
    }

    /// The profile of that id, or of that alias.
    pub fn device(&self, _id: &str) -> Option<&DeviceProfile> {
        None
    }

    /// All profiles, by SoC and release.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceProfile> {
        [].into_iter()
    }

    /// The known ids most like that one, best first; at most five.
    pub fn nearest(&self, _id: &str) -> Vec<&str> {
        Vec::new()
    }

    /// Whether a device's index lists a wheel of that project with that verdict.
    pub fn lists(&self, _project: &ProjectName, verdict: Verdict) -> bool {
        verdict <= Verdict::AdmitJit
    }
}

/// Judges what a wheel contains for a device.
pub fn judge(_facts: &Facts, _device: &DeviceProfile, _policy: &Policy) -> Judgement {
    Judgement { verdict: Verdict::Admit, reasons: Vec::new(), notes: Vec::new() }
}

/// Judges what a file name and an index page alone tell: tags and `Requires-Python`. Empty if they rule nothing out.
pub fn judge_listing(
    _filename: &WheelFilename,
    _requires_python: Option<&str>,
    _device: &DeviceProfile,
    _policy: &Policy,
) -> Vec<Reason> {
    Vec::new()
}
