//! Whether the file itself is whole and what it claims to be.

use super::{Case, Code, Reason};
use crate::wheel::DamageCode;

/// Refuses a damaged file, for whatever device.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let first = reasons.len();
    for damage in &case.facts.damage {
        let (code, remedy) = match damage.code {
            DamageCode::Damaged => {
                (Code::Damaged, "fetch the file again; if it stays so, take another version")
            }
            DamageCode::HashMismatch => {
                (Code::HashMismatch, "do not use it: its contents are not what its RECORD states")
            }
            DamageCode::MetadataMismatch => (
                Code::MetadataMismatch,
                "take another build: an installer may refuse a wheel at odds with its name",
            ),
        };
        reasons.push(Reason {
            code,
            member: damage.member.clone(),
            found: Vec::new(),
            wanted: Vec::new(),
            text: damage.text.clone(),
            remedy: remedy.to_owned(),
        });
    }
    reasons[first..].sort_by_key(|reason| reason.code);
}

/// Endings of source distributions.
const SOURCE_ENDINGS: [&str; 4] = [".tar.gz", ".tar.bz2", ".tgz", ".zip"];

/// Refuses a source distribution: what a build on the device yields cannot be known before.
pub(super) fn judge_source(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let facts = case.facts;
    let is_source = SOURCE_ENDINGS.iter().any(|ending| facts.file.ends_with(ending));
    if facts.project.is_some() && is_source {
        reasons.push(Reason {
            code: Code::SourceBuild,
            member: None,
            found: vec![facts.file.clone()],
            wanted: vec!["a wheel".to_owned()],
            text: "a source distribution: what a build on the device yields cannot be judged".to_owned(),
            remedy: format!("build a wheel on the device (pip wheel {}) and add it", facts.file),
        });
    }
}
