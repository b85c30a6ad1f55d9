//! The sidecar file of a blob: what the catalogue is made from.
//!
//! One line of JSON, whose `checksum` is the SHA-256 of all that follows its own closing quote and comma,
//! so that a flipped bit is told from a value:
//!
//! ```text
//! {"format":1,"checksum":"<64 hex>","held":true,"files":[{"facts":{…},"provenance":{…},"sightings":[…]}]}
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Provenance, Row};
use crate::digest::Sha256;
use crate::wheel::Facts;

/// What a sidecar file begins with; the number is the format's version.
const HEAD: &str = r#"{"format":1,"checksum":""#;

/// The longest sidecar file that is read, in bytes. The facts of the largest surveyed wheel take 130 KB.
pub(super) const LONGEST: u64 = 64 << 20;

/// Under how many names one digest is kept. Indexes rename wheels, but rarely; more is an upstream that plays.
const MOST_FILES: usize = 16;

/// How many places are kept in which one file was seen.
const MOST_SIGHTINGS: usize = 64;

/// All that is known of one digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sidecar {
    /// Whether the blob is kept beside the sidecar.
    pub(super) held: bool,
    /// The file, under each of the names that it was seen by.
    pub(super) files: Vec<Entry>,
}

/// One file name of a digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) facts: Arc<Facts>,
    /// That of the first sight, with what that upstream says by now.
    pub(super) provenance: Provenance,
    /// Where the file was seen, first sight first.
    #[serde(default)]
    pub(super) sightings: Vec<Sighting>,
}

/// One place in which a file was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sighting {
    pub(super) upstream: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    pub(super) first_seen: String,
    /// Whether this is the digest that the upstream first had under the file's name.
    #[serde(default)]
    pub(super) pinned: bool,
    /// Whether the URL had led to no other digest before.
    #[serde(default)]
    pub(super) first_at_url: bool,
}

/// What is new about a sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct News {
    /// The upstream had no file of that name before.
    pub(super) pinned: bool,
    /// Nothing was fetched from that URL before.
    pub(super) first_at_url: bool,
}

impl Entry {
    /// Lets other bytes count in its place, under its name on that upstream.
    pub(super) fn give_way(&mut self, upstream: &str, now: &str) {
        for sighting in self.sightings.iter_mut().filter(|sighting| sighting.upstream == upstream) {
            (sighting.pinned, sighting.first_at_url) = (false, false);
        }
        self.provenance.replaced_since.get_or_insert_with(|| now.to_owned());
        if self.provenance.upstream == upstream {
            self.provenance.gone_since.get_or_insert_with(|| now.to_owned());
        }
    }

    /// Makes it the file that counts under its name on that upstream.
    pub(super) fn take_over(&mut self, upstream: &str, now: &str) {
        let seen_there = |sighting: &&mut Sighting| sighting.upstream == upstream;
        let sightings = self.sightings.iter_mut().filter(seen_there);
        let count = sightings
            .map(|sighting| (sighting.pinned, sighting.first_at_url) = (true, sighting.url.is_some()))
            .count();
        if count == 0 {
            self.sightings.push(Sighting {
                upstream: upstream.to_owned(),
                url: None,
                first_seen: now.to_owned(),
                pinned: true,
                first_at_url: false,
            });
        }
        self.provenance.replaced_since = None;
        if self.provenance.upstream == upstream {
            self.provenance.gone_since = None;
        }
    }
}

/// Why a sidecar file cannot be taken at its word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotASidecar {
    #[error("is no sidecar file of format 1")]
    Head,
    #[error("its checksum is {found}, and it states {stated}")]
    Checksum { stated: String, found: Sha256 },
    #[error("{0}")]
    Json(String),
    #[error("speaks of the digest {0}")]
    OtherDigest(Sha256),
    #[error("names no file")]
    Empty,
}

impl Sidecar {
    /// Writes the file's bytes.
    pub(super) fn render(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("strings, numbers and lists are always JSON");
        let body = json.strip_prefix('{').unwrap_or(&json);
        format!("{HEAD}{}\",{body}\n", Sha256::of(body.as_bytes())).into_bytes()
    }

    /// Reads the file's bytes; it must speak of the digest that its name states.
    pub(super) fn parse(bytes: &[u8], sha256: &Sha256) -> Result<Self, NotASidecar> {
        let (stated, body) = Self::split(bytes).ok_or(NotASidecar::Head)?;
        let found = Sha256::of(body.as_bytes());
        if stated != found.to_string() {
            return Err(NotASidecar::Checksum { stated: stated.to_owned(), found });
        }
        Self::parse_body(body, sha256)
    }

    /// Reads what a damaged file still says, without trust: for repairs that inspect the blob again.
    pub(super) fn salvage(bytes: &[u8], sha256: &Sha256) -> Option<Self> {
        let (_, body) = Self::split(bytes)?;
        Self::parse_body(body, sha256).ok()
    }

    fn split(bytes: &[u8]) -> Option<(&str, &str)> {
        let text = std::str::from_utf8(bytes).ok()?.strip_prefix(HEAD)?;
        text.strip_suffix('\n').unwrap_or(text).split_once("\",")
    }

    fn parse_body(body: &str, sha256: &Sha256) -> Result<Self, NotASidecar> {
        let sidecar: Self = serde_json::from_str(&format!("{{{body}"))
            .map_err(|error| NotASidecar::Json(error.to_string()))?;
        if sidecar.files.is_empty() {
            return Err(NotASidecar::Empty);
        }
        match sidecar.files.iter().find(|entry| entry.facts.sha256 != *sha256) {
            Some(entry) => Err(NotASidecar::OtherDigest(entry.facts.sha256)),
            None => Ok(sidecar),
        }
    }

    /// The entry under a file name.
    pub(super) fn entry(&self, file: &str) -> Option<&Entry> {
        self.files.iter().find(|entry| entry.facts.file == file)
    }

    /// The row of one entry.
    pub(super) fn row(&self, entry: &Entry) -> Row {
        Row { facts: Arc::clone(&entry.facts), provenance: entry.provenance.clone(), held: self.held }
    }

    /// Takes in one more sight of the digest. Nothing happens at the sixteenth file name and after it.
    ///
    /// Facts that were read from bytes now (`held`) replace older ones; those of a file whose bytes are not kept
    /// never replace those of one whose bytes are.
    pub(super) fn see(&mut self, facts: &Facts, provenance: &Provenance, held: bool, news: News) {
        let room = self.files.len() < MOST_FILES;
        match self.files.iter_mut().find(|entry| entry.facts.file == facts.file) {
            Some(entry) => {
                if (held || !self.held) && *entry.facts != *facts {
                    entry.facts = Arc::new(facts.clone());
                }
                entry.see(provenance, news);
            }
            None if room => {
                let mut entry = Entry {
                    facts: Arc::new(facts.clone()),
                    provenance: provenance.clone(),
                    sightings: Vec::new(),
                };
                entry.see(provenance, news);
                self.files.push(entry);
            }
            None => {}
        }
        self.held |= held;
    }
}

impl Entry {
    /// Takes in one more sight of the file.
    fn see(&mut self, provenance: &Provenance, news: News) {
        let room = self.sightings.len() < MOST_SIGHTINGS;
        let known = self
            .sightings
            .iter_mut()
            .find(|sighting| sighting.upstream == provenance.upstream && sighting.url == provenance.url);
        match known {
            Some(sighting) => {
                sighting.pinned |= news.pinned;
                sighting.first_at_url |= news.first_at_url;
            }
            None if room => self.sightings.push(Sighting {
                upstream: provenance.upstream.clone(),
                url: provenance.url.clone(),
                first_seen: provenance.first_seen.clone(),
                pinned: news.pinned,
                first_at_url: news.first_at_url,
            }),
            None => {}
        }
        self.update(provenance);
    }

    /// Takes over what the upstream of the first sight says by now. What another upstream says of it does not count.
    pub(super) fn update(&mut self, provenance: &Provenance) {
        if self.provenance.upstream != provenance.upstream {
            return;
        }
        self.provenance.yanked.clone_from(&provenance.yanked);
        self.provenance.gone_since.clone_from(&provenance.gone_since);
        self.provenance.replaced_since.clone_from(&provenance.replaced_since);
        if self.provenance.upload_time.is_none() {
            self.provenance.upload_time.clone_from(&provenance.upload_time);
        }
    }
}

#[cfg(test)]
mod tests;
