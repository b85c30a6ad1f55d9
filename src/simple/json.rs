//! JSON pages of PEP 691, with what PEP 700, 714 and 792 added.
//!
//! ```json
//! {"meta": {"api-version": "1.4"}, "name": "demo", "versions": ["1.0"], "files": [{"filename": "demo-1.0-py3-none-any.whl",
//!   "url": "demo-1.0-py3-none-any.whl", "hashes": {"sha256": "…"}, "size": 1, "upload-time": "2026-11-30T12:00:00Z"}]}
//! ```
//!
//! Reading is lenient, for indexes write `null`, empty strings and `false` where they know nothing. Writing is strict: uv
//! refuses a whole page for one `null`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{
    API_VERSION, CoreMetadata, Error, FileLink, LONGEST_URL, MOST_FILES, MOST_PROJECTS, ParsedPage,
    ProjectPage, filename_of, is_distribution, is_filename, keep_hash, keep_text, version_of,
};
use crate::wheel::ProjectName;

/// Longest `upload-time`, in bytes; the longest form with nanoseconds and an offset has 35.
const LONGEST_TIME: usize = 40;

#[derive(Deserialize)]
struct RawPage {
    #[serde(default)]
    meta: Value,
    #[serde(default)]
    name: Value,
    #[serde(default)]
    files: Capped<RawFile, MOST_FILES>,
    #[serde(default, rename = "project-status")]
    status: Value,
}

#[derive(Deserialize)]
struct RawList {
    #[serde(default)]
    meta: Value,
    #[serde(default)]
    projects: Capped<Value, MOST_PROJECTS>,
}

/// The members of a list up to a cap, with the number of those beyond it; `null` is an empty list.
struct Capped<T, const MOST: usize> {
    taken: Vec<T>,
    beyond: u64,
}

impl<T, const MOST: usize> Default for Capped<T, MOST> {
    fn default() -> Self {
        Self { taken: Vec::new(), beyond: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Capped<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T, const MOST: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Members<T, MOST> {
            type Value = Capped<T, MOST>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Capped::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut capped = Capped::default();
                while capped.taken.len() < MOST {
                    match members.next_element()? {
                        Some(member) => capped.taken.push(member),
                        None => return Ok(capped),
                    }
                }
                while members.next_element::<IgnoredAny>()?.is_some() {
                    capped.beyond = capped.beyond.saturating_add(1);
                }
                Ok(capped)
            }
        }
        deserializer.deserialize_any(Members(PhantomData))
    }
}

/// A file as the page has it, or none where it is unusable.
struct RawFile(Option<FileLink>);

impl<'de> Deserialize<'de> for RawFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(file(&Value::deserialize(deserializer)?)))
    }
}

/// Reads a project's page.
pub fn parse_json(bytes: &[u8]) -> Result<ParsedPage, Error> {
    let raw: RawPage = serde_json::from_slice(bytes).map_err(Error::Json)?;
    check_version(&raw.meta)?;
    let total = raw.files.taken.len() as u64;
    let files: Vec<FileLink> = raw.files.taken.into_iter().filter_map(|file| file.0).collect();
    let dropped = total.saturating_sub(files.len() as u64).saturating_add(raw.files.beyond);
    let text = |key: &str| raw.status.get(key).and_then(Value::as_str).and_then(keep_text);
    let status = text("status").filter(|status| status != "active").map(|status| (status, text("reason")));
    let name = raw.name.as_str().and_then(|name| name.parse().ok());
    Ok(ParsedPage { page: ProjectPage { name, files, status }, base: None, dropped })
}

/// Reads the list of projects at an index's root; members that name no project are skipped.
pub fn parse_list_json(bytes: &[u8]) -> Result<Vec<ProjectName>, Error> {
    let raw: RawList = serde_json::from_slice(bytes).map_err(Error::Json)?;
    check_version(&raw.meta)?;
    let names: BTreeSet<ProjectName> = raw
        .projects
        .taken
        .iter()
        .filter_map(|project| project.get("name").unwrap_or(project).as_str()?.parse().ok())
        .collect();
    Ok(names.into_iter().collect())
}

/// Refuses pages of a later major version, as PEP 629 asks of clients.
fn check_version(meta: &Value) -> Result<(), Error> {
    match meta.get("api-version").and_then(Value::as_str) {
        Some(version) if version.split('.').next() != Some("1") => {
            Err(Error::ApiVersion(version.chars().take(20).collect()))
        }
        _ => Ok(()),
    }
}

fn file(raw: &Value) -> Option<FileLink> {
    let text = |key: &str| raw.get(key).and_then(Value::as_str).and_then(keep_text);
    let url = raw.get("url")?.as_str()?.trim();
    if url.is_empty() || url.len() > LONGEST_URL {
        return None;
    }
    let url = url.split('#').next()?;
    let filename = match raw.get("filename").and_then(Value::as_str) {
        Some(name) => Some(name.to_owned()).filter(|name| is_filename(name)),
        None => filename_of(url),
    };
    let filename = filename.filter(|name| is_distribution(name))?;
    let mut hashes = BTreeMap::new();
    for (algorithm, digest) in raw.get("hashes").and_then(Value::as_object).into_iter().flatten() {
        if let Some(digest) = digest.as_str() {
            keep_hash(&mut hashes, algorithm, digest);
        }
    }
    let yanked = match raw.get("yanked") {
        Some(Value::Bool(true)) => Some(String::new()),
        // An empty text is what some indexes write for "not yanked"; a yank without reason is `true`.
        Some(Value::String(reason)) => keep_text(reason),
        _ => None,
    };
    let core_metadata = ["core-metadata", "dist-info-metadata", "data-dist-info-metadata"]
        .into_iter()
        .find_map(|key| raw.get(key).filter(|value| !value.is_null()))
        .map_or(CoreMetadata::Absent, core_metadata);
    Some(FileLink {
        filename,
        url: url.to_owned(),
        hashes,
        requires_python: text("requires-python"),
        size: raw.get("size").and_then(Value::as_u64),
        upload_time: text("upload-time").filter(|time| time.len() <= LONGEST_TIME),
        yanked,
        core_metadata,
    })
}

fn core_metadata(value: &Value) -> CoreMetadata {
    match value {
        Value::Bool(true) => CoreMetadata::Offered,
        Value::Object(hashes) => hashes
            .get("sha256")
            .and_then(|digest| digest.as_str()?.parse().ok())
            .map_or(CoreMetadata::Offered, CoreMetadata::Hashed),
        _ => CoreMetadata::Absent,
    }
}

#[derive(Serialize)]
struct Meta {
    #[serde(rename = "api-version")]
    api_version: &'static str,
}

const META: Meta = Meta { api_version: API_VERSION };

#[derive(Serialize)]
struct PageOut<'page> {
    meta: Meta,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    versions: Vec<&'page str>,
    files: Vec<FileOut<'page>>,
    #[serde(rename = "project-status", skip_serializing_if = "Option::is_none")]
    status: Option<StatusOut<'page>>,
}

#[derive(Serialize)]
struct StatusOut<'page> {
    status: &'page str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'page str>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct FileOut<'page> {
    filename: &'page str,
    url: &'page str,
    hashes: &'page BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requires_python: Option<&'page str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload_time: Option<&'page str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    yanked: Option<YankedOut<'page>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_metadata: Option<MetadataOut>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum YankedOut<'page> {
    WithoutReason(bool),
    For(&'page str),
}

#[derive(Serialize)]
#[serde(untagged)]
enum MetadataOut {
    Offered(bool),
    Hashed { sha256: crate::digest::Sha256 },
}

/// Renders a project's page.
///
/// What is not known has no key. Versions are those that the file names state, oldest first. The project's name falls back on
/// that of the first file.
pub fn render_json(page: &ProjectPage) -> String {
    let name = page.name.as_ref().map(ToString::to_string).or_else(|| {
        let first = page.files.first()?.filename.split('-').next()?;
        Some(first.parse::<ProjectName>().ok()?.to_string())
    });
    let mut versions: BTreeMap<pep440_rs::Version, &str> = BTreeMap::new();
    for file in &page.files {
        if let Some(text) = version_of(&file.filename)
            && let Ok(version) = text.parse()
        {
            versions.entry(version).or_insert(text);
        }
    }
    let out = PageOut {
        meta: META,
        name,
        versions: versions.into_values().collect(),
        files: page.files.iter().map(file_out).collect(),
        status: page.status.as_ref().map(|(status, reason)| StatusOut { status, reason: reason.as_deref() }),
    };
    to_text(&out)
}

fn file_out(file: &FileLink) -> FileOut<'_> {
    let filled = |text: &'_ Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    FileOut {
        filename: &file.filename,
        url: &file.url,
        hashes: &file.hashes,
        requires_python: file.requires_python.as_deref().filter(|_| filled(&file.requires_python)),
        size: file.size,
        upload_time: file.upload_time.as_deref().filter(|_| filled(&file.upload_time)),
        yanked: file.yanked.as_deref().map(|reason| match reason {
            "" => YankedOut::WithoutReason(true),
            reason => YankedOut::For(reason),
        }),
        core_metadata: match file.core_metadata {
            CoreMetadata::Absent => None,
            CoreMetadata::Offered => Some(MetadataOut::Offered(true)),
            CoreMetadata::Hashed(sha256) => Some(MetadataOut::Hashed { sha256 }),
        },
    }
}

/// Renders the list of projects at an index's root.
pub fn render_list_json(names: &[ProjectName]) -> String {
    #[derive(Serialize)]
    struct ListOut<'list> {
        meta: Meta,
        projects: Vec<ProjectOut<'list>>,
    }
    #[derive(Serialize)]
    struct ProjectOut<'list> {
        name: &'list str,
    }
    let projects = names.iter().map(|name| ProjectOut { name: name.as_str() }).collect();
    to_text(&ListOut { meta: META, projects })
}

fn to_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts, numbers and lists always serialize")
}
