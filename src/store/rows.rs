//! Known files as rows, and what catalogue and sidecars answer about them.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::catalogue::Records as _;
use super::catalogue::record::{
    Counts, Light, counts_key, parse_file_key, parse_payload, pin_key, project_prefix, strange, url_key,
};
use super::listing::{self, Listed};
use super::sidecar::{self, Sidecar};
use super::{Error, Store, recover};
use crate::digest::Sha256;
use crate::wheel::{Damage, DamageCode, Facts, ProjectName};

/// How many sidecars are read from a database at once. Those of large wheels have hundreds of kilobytes.
const AT_ONCE: usize = 64;

/// The upstream of files that people put in: by `add`, or by an upload.
pub const LOCAL: &str = "local";

/// One known file: the catalogue's row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// What the file contains.
    pub facts: Arc<Facts>,
    /// Where it came from.
    pub provenance: Provenance,
    /// Whether the store has its bytes. A refused wheel leaves its facts alone.
    pub held: bool,
}

/// Where a file came from, and what its index said of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// Name of the upstream; `local` for a file that was added by hand.
    pub upstream: String,
    /// URL it was fetched from, without credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When it was first seen, RFC 3339 in UTC.
    pub first_seen: String,
    /// When it was uploaded, as the upstream says, RFC 3339 in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_time: Option<String>,
    /// Whether, and why, the upstream yanked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yanked: Option<String>,
    /// Since when the upstream lists it no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<String>,
    /// Since when other bytes count under its name: it is in the snapshots from before alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_since: Option<String>,
}

impl Store {
    /// All known projects, in order; those with at least one held file if `held_only`.
    pub fn projects(&self, held_only: bool) -> Result<Vec<ProjectName>, Error> {
        self.read(|catalogue| {
            let mut projects = Vec::new();
            catalogue.scan(b"n", &mut |key, payload| {
                let counts: Counts = parse_payload(key, payload)?;
                if counts.held > 0 || (!held_only && counts.files > 0) {
                    let name = key.get(1..).and_then(|name| std::str::from_utf8(name).ok());
                    let name = name.and_then(|name| name.parse().ok());
                    projects.push(name.ok_or_else(|| strange(key))?);
                }
                Ok(())
            })?;
            Ok(projects)
        })
    }

    /// How many files of a project are known, and how many of them are held.
    pub fn count(&self, project: &ProjectName) -> Result<(u64, u64), Error> {
        let counts: Option<Counts> = self.read(|catalogue| catalogue.parsed(&counts_key(project)))?;
        Ok(counts.map_or((0, 0), |counts| (counts.files, counts.held)))
    }

    /// All known files of a project without their facts, newest version first, then by file name.
    ///
    /// Costs some microseconds for each file, where [`Store::rows`] reads and parses a sidecar file for each.
    pub fn listing(&self, project: &ProjectName) -> Result<Vec<Listed>, Error> {
        let prefix = project_prefix(project);
        let mut listed = self.read(|catalogue| {
            let mut listed = Vec::new();
            catalogue.scan(&prefix, &mut |key, payload| {
                let (file, sha256) = parse_file_key(key, &prefix).ok_or_else(|| strange(key))?;
                let light: Light = parse_payload(key, payload)?;
                listed.push(Listed::new(project, file, sha256, light));
                Ok(())
            })?;
            Ok(listed)
        })?;
        listing::sort(&mut listed);
        Ok(listed)
    }

    /// All known files of a project, newest version first, then by file name.
    ///
    /// A file whose sidecar is damaged is among them, with that as its only fact.
    pub fn rows(&self, project: &ProjectName) -> Result<Vec<Row>, Error> {
        let listing = self.listing(project)?;
        let mut rows = Vec::with_capacity(listing.len());
        for (listed, row) in listing.iter().zip(self.rows_of(&listing)) {
            match row {
                Ok(Some(row)) => rows.push(row),
                // Its sidecar was taken away by hand, or is being replaced by `verify --repair`.
                Ok(None) => {
                    tracing::error!(file = listed.file, sha256 = %listed.sha256, "has lost its sidecar file");
                }
                Err(Error::Damaged { path, found }) => {
                    tracing::error!(file = listed.file, sidecar = %path.display(), "damaged sidecar: {found}");
                    rows.push(unreadable_row(listed, &found));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rows)
    }

    /// For each of these files what [`Store::row_named`] yields, at the cost of a few questions where a database is asked.
    ///
    /// An error other than [`Error::Damaged`] stands for more than one file: what comes behind it belongs to no file in particular.
    pub fn rows_of<'a>(
        &'a self,
        files: &'a [Listed],
    ) -> impl Iterator<Item = Result<Option<Row>, Error>> + 'a {
        // Files cost the same one by one, and less memory.
        let at_once = if self.sidecars_are_files() { 1 } else { AT_ONCE };
        files.chunks(at_once).flat_map(|some| match self.sidecars(some) {
            Ok(sidecars) => {
                let row = |(sidecar, file): (Result<Option<Sidecar>, Error>, &Listed)| {
                    sidecar.map(|sidecar| sidecar.and_then(|sidecar| row_of(&sidecar, &file.file)))
                };
                sidecars.into_iter().zip(some).map(row).collect()
            }
            Err(error) => vec![Err(error)],
        })
    }

    /// The file with that digest; under the name of its first sight where it is known by several.
    pub fn row(&self, sha256: &Sha256) -> Result<Option<Row>, Error> {
        let sidecar = self.sidecar(sha256)?;
        Ok(sidecar.and_then(|sidecar| sidecar.files.first().map(|entry| sidecar.row(entry))))
    }

    /// The file with that digest and that name.
    pub fn row_named(&self, sha256: &Sha256, file: &str) -> Result<Option<Row>, Error> {
        Ok(self.sidecar(sha256)?.and_then(|sidecar| row_of(&sidecar, file)))
    }

    /// The file that was fetched from that URL, for indexes that state no digest.
    ///
    /// Where the URL led to other bytes later, this is still the first file.
    pub fn row_by_url(&self, url: &str) -> Result<Option<Row>, Error> {
        let Some(sha256) = self.digest(&url_key(url))? else { return Ok(None) };
        let Some(sidecar) = self.sidecar(&sha256)? else { return Ok(None) };
        let seen = |entry: &&sidecar::Entry| {
            entry.sightings.iter().any(|sighting| sighting.url.as_deref() == Some(url))
        };
        Ok(sidecar.files.iter().find(seen).map(|entry| sidecar.row(entry)))
    }

    /// The digest that a file had at first sight on an upstream.
    ///
    /// Another digest there under the same name is an incident, not an update.
    pub fn pinned(&self, upstream: &str, file: &str) -> Result<Option<Sha256>, Error> {
        self.digest(&pin_key(upstream, file))
    }

    /// As [`Store::pinned`], for many files: those that were seen there, by their names.
    pub fn pins<'a>(
        &self,
        upstream: &str,
        files: impl IntoIterator<Item = &'a str>,
    ) -> Result<HashMap<&'a str, Sha256>, Error> {
        let files: HashMap<Vec<u8>, &str> =
            files.into_iter().map(|file| (pin_key(upstream, file), file)).collect();
        let keys: Vec<Vec<u8>> = files.keys().cloned().collect();
        self.read(|catalogue| {
            let mut pins = HashMap::with_capacity(keys.len());
            catalogue.records(&keys, &mut |key, payload| {
                let sha256 = payload.try_into().map(Sha256).map_err(|_| strange(key))?;
                pins.extend(files.get(key).map(|file| (*file, sha256)));
                Ok(())
            })?;
            Ok(pins)
        })
    }

    /// The digest that a record names.
    fn digest(&self, key: &[u8]) -> Result<Option<Sha256>, Error> {
        self.read(|catalogue| match catalogue.record(key)? {
            None => Ok(None),
            Some(payload) => payload.try_into().map(Sha256).map(Some).map_err(|_| strange(key)),
        })
    }

    /// All that is known of a digest.
    pub(super) fn sidecar(&self, sha256: &Sha256) -> Result<Option<Sidecar>, Error> {
        if self.sidecars_are_files() {
            return recover::find_sidecar(&self.places.blobs, sha256);
        }
        let key = recover::sidecar_key(sha256);
        let Some(bytes) = self.read(|catalogue| catalogue.record(&key))? else { return Ok(None) };
        self.parse_sidecar(&bytes, sha256).map(Some)
    }

    /// All that is known of the digests of some files.
    fn sidecars(&self, files: &[Listed]) -> Result<Vec<Result<Option<Sidecar>, Error>>, Error> {
        if self.sidecars_are_files() {
            return Ok(files.iter().map(|file| self.sidecar(&file.sha256)).collect());
        }
        let keys: Vec<Vec<u8>> = files.iter().map(|file| recover::sidecar_key(&file.sha256)).collect();
        let found = self.read(|catalogue| {
            let mut found: HashMap<Vec<u8>, Vec<u8>> = HashMap::with_capacity(keys.len());
            catalogue.records(&keys, &mut |key, payload| {
                found.insert(key.to_vec(), payload.to_vec());
                Ok(())
            })?;
            Ok(found)
        })?;
        let parse = |(key, file): (&Vec<u8>, &Listed)| {
            found.get(key).map(|bytes| self.parse_sidecar(bytes, &file.sha256)).transpose()
        };
        Ok(keys.iter().zip(files).map(parse).collect())
    }

    /// Whether sidecars are read from the disk, not from records.
    fn sidecars_are_files(&self) -> bool {
        !self.places.sidecars_in_catalogue() && self.database.is_none()
    }

    fn parse_sidecar(&self, bytes: &[u8], sha256: &Sha256) -> Result<Sidecar, Error> {
        Sidecar::parse(bytes, sha256)
            .map_err(|error| Error::Damaged { path: self.catalogue_name(), found: error.to_string() })
    }
}

fn row_of(sidecar: &Sidecar, file: &str) -> Option<Row> {
    sidecar.entry(file).map(|entry| sidecar.row(entry))
}

/// The row of a file whose facts cannot be read: damaged, so that no device is given it.
fn unreadable_row(listed: &Listed, found: &str) -> Row {
    let facts = Facts {
        project: Some(listed.project.clone()),
        version: listed.version.clone(),
        requires_python: listed.requires_python.clone(),
        metadata_sha256: listed.metadata_sha256,
        damage: vec![Damage {
            code: DamageCode::Damaged,
            member: None,
            text: format!("the store's sidecar file {found}; run jetwheel verify --repair"),
        }],
        ..Facts::blank(listed.file.clone(), listed.sha256, listed.size)
    };
    Row { facts: Arc::new(facts), provenance: listed.provenance.clone(), held: listed.held }
}
