//! The wheels of a project, as resolving sees them. Looking them up is the caller's part, so resolving needs no store.

use std::collections::BTreeMap;
use std::sync::Arc;

use pep440_rs::{Version, VersionSpecifiers};

use super::requirement::{NotARequirement, Requirement};
use crate::digest::Sha256;
use crate::policy::Reason;
use crate::wheel::ProjectName;

/// Most requirements that one wheel may state. The most on the public index are some 1,200 (all of them extras).
const MOST_REQUIREMENTS: usize = 10_000;

/// Most version specifiers of one project in a request or in a wheel. The work on them grows with their square; the most that
/// are to be seen are some dozens.
pub(super) const MOST_SPECIFIERS: usize = 500;

/// The number of version specifiers of one project, if it is above the limit.
pub(super) fn too_many_specifiers<'a>(
    requirements: impl IntoIterator<Item = &'a Requirement>,
) -> Option<usize> {
    let mut counts: BTreeMap<&ProjectName, usize> = BTreeMap::new();
    requirements.into_iter().find_map(|requirement| {
        let count = counts.entry(&requirement.project).or_default();
        *count = count.saturating_add(requirement.specifiers.len());
        (*count > MOST_SPECIFIERS).then_some(*count)
    })
}

/// One wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The project.
    pub project: ProjectName,
    /// The version, as the file name has it.
    pub version: Version,
    /// The version as it is written in METADATA, else in the file name (not normalized).
    pub version_text: String,
    /// File name.
    pub file: String,
    /// Digest, where it is known.
    pub sha256: Option<Sha256>,
    /// Size in bytes, where it is known.
    pub size: Option<u64>,
    /// URL, or path below the mirror.
    pub url: String,
    /// RFC 3339 time of upload.
    pub upload_time: Option<String>,
    /// How well its tags fit the device: 0 is the best; none if they do not.
    pub tag_priority: Option<u32>,
    /// Build tag of the file name.
    pub build: Option<(u64, String)>,
    /// `Requires-Python`, as its index states it.
    pub requires_python: Option<String>,
    /// Whether, and why, it was yanked.
    pub yanked: Option<String>,
    /// Name of the upstream.
    pub upstream: String,
    /// Why this device may not have it. Such a candidate is never chosen; explanations name it.
    pub refused: Option<Reason>,
}

/// What a wheel says of itself, as far as resolving needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// `Requires-Dist`.
    pub requires_dist: Vec<Requirement>,
    /// What it asks of projects only if they are installed beside it: what it was compiled against.
    pub beside: Vec<Requirement>,
    /// `Requires-Python`.
    pub requires_python: Option<VersionSpecifiers>,
    /// `Provides-Extra`, normalized.
    pub provides_extra: Vec<String>,
}

/// Why a wheel's metadata cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotMetadata {
    /// A requirement cannot be read.
    #[error("Requires-Dist: {0}")]
    Requirement(#[source] NotARequirement),
    /// `Requires-Python` cannot be read.
    #[error("Requires-Python {0:?} is no list of version specifiers")]
    RequiresPython(String),
    /// Too many requirements.
    #[error("it states {0} requirements; at most {MOST_REQUIREMENTS} are read")]
    TooMany(usize),
    /// Too much is said of one project.
    #[error("it states {0} version specifiers for one project; at most {MOST_SPECIFIERS} are read")]
    Specifiers(usize),
}

impl Metadata {
    /// Reads the fields as METADATA has them.
    pub fn parse(
        requires_dist: &[String],
        requires_python: Option<&str>,
        provides_extra: &[String],
    ) -> Result<Self, NotMetadata> {
        if requires_dist.len() > MOST_REQUIREMENTS {
            return Err(NotMetadata::TooMany(requires_dist.len()));
        }
        let parsed: Result<Vec<Requirement>, _> = requires_dist.iter().map(|text| text.parse()).collect();
        let requires_dist = parsed.map_err(NotMetadata::Requirement)?;
        if let Some(count) = too_many_specifiers(&requires_dist) {
            return Err(NotMetadata::Specifiers(count));
        }
        Ok(Self {
            requires_dist,
            beside: Vec::new(),
            requires_python: requires_python
                .map(|text| {
                    text.parse().map_err(|_| NotMetadata::RequiresPython(text.chars().take(120).collect()))
                })
                .transpose()?,
            provides_extra: provides_extra
                .iter()
                .map(|name| super::markers::normalized(name.trim()))
                .collect(),
        })
    }
}

/// What asking for a candidate's metadata found.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// Its metadata.
    Metadata(Arc<Metadata>),
    /// Inspecting it showed that this device may not have it.
    Refused(Reason),
    /// It cannot be used whatever the device, and why: metadata that cannot be read.
    Unusable(String),
}

/// Where candidates and their metadata come from. Each call is made once at most for the same argument.
pub trait Index {
    /// Why a lookup failed: no network, a damaged store.
    type Error: std::error::Error + 'static;

    /// All wheels of a project that are known, in any order; empty if there is no such project.
    fn candidates(&mut self, project: &ProjectName) -> Result<Vec<Candidate>, Self::Error>;

    /// The metadata of one of them.
    fn metadata(&mut self, candidate: &Candidate) -> Result<Lookup, Self::Error>;
}
