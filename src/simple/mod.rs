//! The simple index as values: what PEP 503, 592, 629, 658, 691, 700, 714 and 792 say of a project, parsed and rendered.

use std::collections::BTreeMap;

use crate::digest::Sha256;
use crate::wheel::ProjectName;

/// A project's page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectPage {
    /// The project, as the page names it; none where an HTML page does not.
    pub name: Option<ProjectName>,
    /// Files, in page order.
    pub files: Vec<FileLink>,
    /// Project status of PEP 792 with its reason, other than `active`.
    pub status: Option<(String, Option<String>)>,
}

/// One file of a project's page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLink {
    /// File name, decoded.
    pub filename: String,
    /// URL as the page has it, without fragment: relative or absolute, its percent-encoding untouched.
    pub url: String,
    /// Digests by algorithm name, lower case hexadecimal.
    pub hashes: BTreeMap<String, String>,
    /// `requires-python`, unescaped.
    pub requires_python: Option<String>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// RFC 3339 time of upload.
    pub upload_time: Option<String>,
    /// Whether, and why, the file is yanked; an empty reason is a yank without reason.
    pub yanked: Option<String>,
    /// Whether core metadata is served beside the file, and its digest where stated.
    pub core_metadata: CoreMetadata,
}

/// Whether `URL.metadata` exists (PEP 658, PEP 714).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CoreMetadata {
    /// It is not offered.
    #[default]
    Absent,
    /// It is offered, without a digest.
    Offered,
    /// It is offered, with its SHA-256.
    Hashed(Sha256),
}
