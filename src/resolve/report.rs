//! Why there is no set, in sentences.

use std::fmt;

use serde::Serialize;

use super::candidate::Index;
use super::known::{Known, Offer, Project, Unfit};
use super::provider::Asked;
use super::{Abort, Derivation};

/// Why nothing satisfies a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// All of it, in sentences.
    pub text: String,
    /// What stands in the way, one by one.
    pub causes: Vec<Cause>,
}

/// One thing that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Of which kind.
    pub kind: CauseKind,
    /// A sentence.
    pub text: String,
}

/// Kinds of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// Two requirements exclude each other.
    Conflict,
}

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tags => out.write_str("its tags do not fit"),
            Self::Python(wanted) => write!(out, "it needs Python {wanted}"),
            Self::Refused(reason) => write!(out, "refused for this device: {}", reason.text),
            Self::Metadata(why) => out.write_str(why),
        }
    }
}

pub(super) fn explain<I: Index>(
    _known: &Known<'_, I>,
    _asked: &Asked,
    _derivation: &Derivation,
) -> Result<Explanation, Abort<I::Error>> {
    Ok(Explanation { text: "nothing satisfies the request".to_owned(), causes: Vec::new() })
}

pub(super) fn passed_over(_project: &Project, _chosen: &Offer) -> Option<String> {
    None
}
