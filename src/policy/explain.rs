//! Every known file of a project with its verdict, and what of the project fits instead.

use std::sync::Arc;

use pep440_rs::{Version, VersionSpecifiers};
use serde::{Deserialize, Serialize};

use super::{Code, Judgement, Note, Reason, Verdict};
use crate::wheel::{Facts, ProjectName};

/// A known file, judged for one device.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What it contains.
    pub facts: Arc<Facts>,
    /// Whether the mirror has its bytes.
    pub held: bool,
    /// Its verdict.
    pub judgement: Judgement,
    /// Whether the policy lists it with that verdict.
    pub listed: bool,
    /// Since when its upstream lists it no more.
    pub gone_since: Option<String>,
    /// What devices of that profile reported of it, oldest first.
    pub reports: Vec<DeviceCheck>,
}

/// The known files of a project for a device: the JSON of `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The project.
    pub project: String,
    /// Id of the device profile.
    pub device: String,
    /// Its files, in the order of the candidates.
    pub files: Vec<ExplainedFile>,
}

/// One file of an [`Explanation`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedFile {
    /// File name.
    pub file: String,
    /// Digest, in hexadecimal.
    pub sha256: String,
    /// Version, as the wheel has it.
    #[serde(skip)]
    pub version: String,
    /// Whether the device's index lists it, as far as verdict and request go.
    #[serde(skip)]
    pub listed: bool,
    /// The verdict.
    pub verdict: Verdict,
    /// Why not.
    pub reasons: Vec<Reason>,
    /// What to know all the same.
    pub notes: Vec<Note>,
    /// Since when its upstream lists it no more, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<String>,
    /// What devices of that profile reported of it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<DeviceCheck>,
}

/// What one device reported of a wheel that it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCheck {
    /// When the report came, RFC 3339 in UTC.
    pub time: String,
    /// Whether no check failed.
    pub passed: bool,
    /// Its GPU; none where all was computed on the CPU.
    pub gpu: Option<String>,
}

/// Explains the candidates, which are in the store's order: newest version first.
///
/// A file that a request's version specifiers leave out is refused for that as well. To the remedies of each refused file it
/// adds which other file of the project fits, if one is held: one of the same version, else of the newest.
pub fn explain(
    project: &ProjectName,
    device: &str,
    candidates: &[Candidate],
    wanted: Option<&VersionSpecifiers>,
) -> Explanation {
    let judged: Vec<(Judgement, bool)> = candidates
        .iter()
        .map(|candidate| {
            let mut judgement = candidate.judgement.clone();
            let mut listed = candidate.listed;
            if let Some(reason) = wanted.and_then(|wanted| outside(&candidate.facts, wanted)) {
                judgement.verdict = Verdict::Refuse;
                judgement.reasons.push(reason);
                judgement.reasons.sort_by_key(|reason| reason.code);
                listed = false;
            }
            (judgement, listed)
        })
        .collect();
    let fitting: Vec<&Facts> = candidates
        .iter()
        .zip(&judged)
        .filter(|(candidate, (_, listed))| *listed && candidate.held)
        .map(|(candidate, _)| &*candidate.facts)
        .collect();
    let files = candidates
        .iter()
        .zip(judged)
        .map(|(candidate, (mut judgement, listed))| {
            let facts = &candidate.facts;
            if !listed && let Some(instead) = instead(project, facts, &fitting) {
                for reason in &mut judgement.reasons {
                    append(&mut reason.remedy, &instead);
                }
            }
            ExplainedFile {
                file: facts.file.clone(),
                sha256: facts.sha256.to_string(),
                version: facts.version.clone().unwrap_or_default(),
                listed,
                verdict: judgement.verdict,
                reasons: judgement.reasons,
                notes: judgement.notes,
                gone_since: candidate.gone_since.clone(),
                reports: candidate.reports.clone(),
            }
        })
        .collect();
    Explanation { project: project.to_string(), device: device.to_owned(), files }
}

/// The reason for a file whose version a request leaves out. A version that cannot be read is in no set but that of all.
fn outside(facts: &Facts, wanted: &VersionSpecifiers) -> Option<Reason> {
    let text = facts.version.as_deref().unwrap_or_default();
    let inside = match text.parse::<Version>() {
        Ok(version) => wanted.contains(&version),
        Err(_) => wanted.is_empty(),
    };
    (!inside).then(|| Reason {
        code: Code::SpecConflict,
        member: None,
        found: vec![text.to_owned()],
        wanted: vec![wanted.to_string()],
        text: format!("version {text} is outside {wanted}"),
        remedy: "Widen the requirement.".to_owned(),
    })
}

/// Which file of the project fits instead of one that does not.
fn instead(project: &ProjectName, refused: &Facts, fitting: &[&Facts]) -> Option<String> {
    let same = fitting.iter().find(|facts| facts.version == refused.version);
    let facts = same.or_else(|| fitting.first())?;
    let version = facts.version.as_deref().unwrap_or_default();
    Some(format!("{project} {version} in the store fits: {}.", facts.file))
}

/// Adds a sentence.
fn append(text: &mut String, sentence: &str) {
    let trimmed = text.trim_end().len();
    text.truncate(trimmed);
    if !text.is_empty() {
        text.push_str(if text.ends_with(['.', '!', '?']) { " " } else { ". " });
    }
    text.push_str(sentence);
}

/// The name of a code of a reason or note, as the JSON has it.
pub fn code_name(code: &impl Serialize) -> String {
    match serde_json::to_value(code) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}
