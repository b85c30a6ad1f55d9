//! The simple index as values: what PEP 503, 592, 629, 658, 691, 700, 714 and 792 say of a project, parsed and rendered.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use crate::digest::Sha256;
use crate::wheel::ProjectName;

mod elements;
mod html;
mod json;

pub use html::{parse_html, parse_list_html, render_html, render_list_html};
pub use json::{parse_json, parse_list_json, render_json, render_list_json};

/// The version of the simple API that our pages speak: 1.4 has project status (PEP 792).
const API_VERSION: &str = "1.4";

/// Most files that are taken from one page; the largest public projects have some 30,000.
const MOST_FILES: usize = 50_000;

/// Most projects that are taken from one list; the largest public index has under a million.
const MOST_PROJECTS: usize = 2_000_000;

/// Longest file name, in bytes: what common file systems hold.
const LONGEST_FILENAME: usize = 255;

/// Longest URL, in bytes: signed URLs of object stores stay under 4 KiB.
const LONGEST_URL: usize = 8192;

/// Longest `requires-python` or yank reason, in bytes.
const LONGEST_TEXT: usize = 4096;

/// What a page held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedPage {
    /// The page.
    pub page: ProjectPage,
    /// `<base href>` of an HTML page: links are relative to it, and it to the page's own URL.
    pub base: Option<String>,
    /// Number of links that are no distribution files, or are unusable.
    pub dropped: u64,
}

/// Why a page could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It is not JSON, or not of the expected shape.
    #[error("the page is not the JSON of a simple index")]
    Json(#[source] serde_json::Error),
    /// Its `api-version` is of a major version that nobody has defined yet.
    #[error("the page speaks version {0:?} of the simple API, expected 1.x")]
    ApiVersion(String),
}

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

impl FileLink {
    /// A link with a name and a URL alone.
    pub fn new(filename: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            filename: filename.into(),
            url: url.into(),
            hashes: BTreeMap::new(),
            requires_python: None,
            size: None,
            upload_time: None,
            yanked: None,
            core_metadata: CoreMetadata::Absent,
        }
    }

    /// The SHA-256 that the page states.
    pub fn sha256(&self) -> Option<Sha256> {
        self.hashes.get("sha256")?.parse().ok()
    }
}

/// The file name that a URL ends in, decoded once; none where it names no file.
fn filename_of(url: &str) -> Option<String> {
    let path = url.split(['?', '#']).next()?;
    let last = path.rsplit('/').next()?;
    let name = percent_decode_str(last).decode_utf8().ok()?.into_owned();
    is_filename(&name).then_some(name)
}

/// Whether a text can be a file's name on every system, without a way out of its folder.
fn is_filename(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_FILENAME
        && !name.starts_with('.')
        && !name.contains(['/', '\\'])
        && !name.contains(char::is_control)
}

/// Whether a file is a wheel or a source distribution, by its name.
fn is_distribution(name: &str) -> bool {
    [".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz"].iter().any(|end| name.ends_with(end))
}

/// Keeps a digest if it looks like one.
fn keep_hash(hashes: &mut BTreeMap<String, String>, algorithm: &str, digest: &str) {
    let named = !algorithm.is_empty()
        && algorithm.len() <= 16
        && algorithm.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let hexadecimal =
        (32..=128).contains(&digest.len()) && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if named && hexadecimal {
        hashes.insert(algorithm.to_ascii_lowercase(), digest.to_ascii_lowercase());
    }
}

/// A text that may be absent, without blanks around it: empty and overlong ones are absent.
fn keep_text(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= LONGEST_TEXT).then(|| text.to_owned())
}

/// The version that a distribution's file name states, as written; none where it states none.
fn version_of(filename: &str) -> Option<&str> {
    if let Some(stem) = filename.strip_suffix(".whl") {
        return stem.split('-').nth(1);
    }
    let stem = [".tar.gz", ".zip", ".tar.bz2", ".tgz"].iter().find_map(|end| filename.strip_suffix(end))?;
    stem.rsplit_once('-').map(|(_, version)| version)
}

#[cfg(test)]
mod tests;
