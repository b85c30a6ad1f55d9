//! What the mirror holds: blobs by digest with their sidecar files, and the catalogue.
//!
//! All calls block; from async code wrap them in `spawn_blocking`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::wheel::{Facts, ProjectName};

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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
}

/// What [`Store::put`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The file is new.
    New,
    /// The same bytes were there already.
    Known,
}

/// The store of one data folder.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the store open.
    #[error("{dir}: the store is in use by another jetwheel process")]
    InUse {
        /// The data folder.
        dir: PathBuf,
    },
    /// The file system refused.
    #[error("{path}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Store {
    /// Opens the store in a folder, which is made where it is missing.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Ok(Self { dir: dir.to_owned() })
    }

    /// The data folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A temporary file in the store's own file system, for [`Store::put`].
    pub fn spool(&self) -> Result<tempfile::NamedTempFile, Error> {
        unimplemented!()
    }

    /// Takes in a wheel with its bytes: durable when this returns.
    ///
    /// `metadata` is the METADATA member, byte for byte. The spooled file's digest is `facts.sha256`; the caller has computed it.
    /// Upgrades a row that had facts alone. The provenance of first sight stays, except for yanks.
    pub fn put(
        &self,
        _spooled: tempfile::NamedTempFile,
        _facts: &Facts,
        _metadata: &[u8],
        _provenance: &Provenance,
    ) -> Result<Put, Error> {
        unimplemented!()
    }

    /// Takes in the facts of a wheel whose bytes are not kept.
    pub fn put_facts(&self, _facts: &Facts, _provenance: &Provenance) -> Result<Put, Error> {
        unimplemented!()
    }

    /// Updates what the upstream says of a known file: yanked, gone since.
    pub fn put_provenance(&self, _sha256: &Sha256, _provenance: &Provenance) -> Result<(), Error> {
        unimplemented!()
    }

    /// All known projects, in order; those with at least one held file if `held_only`.
    pub fn projects(&self, _held_only: bool) -> Result<Vec<ProjectName>, Error> {
        unimplemented!()
    }

    /// All known files of a project, newest version first, then by file name.
    pub fn rows(&self, _project: &ProjectName) -> Result<Vec<Row>, Error> {
        unimplemented!()
    }

    /// The file with that digest.
    pub fn row(&self, _sha256: &Sha256) -> Result<Option<Row>, Error> {
        unimplemented!()
    }

    /// The file that was fetched from that URL, for indexes that state no digest.
    pub fn row_by_url(&self, _url: &str) -> Result<Option<Row>, Error> {
        unimplemented!()
    }

    /// Where the bytes of a held file lie. The path is only good while the store is open.
    pub fn blob(&self, _sha256: &Sha256) -> PathBuf {
        unimplemented!()
    }

    /// The METADATA member of a held wheel.
    pub fn metadata(&self, _sha256: &Sha256) -> Result<Option<Vec<u8>>, Error> {
        unimplemented!()
    }

    /// Grows with every change of any row.
    pub fn revision(&self) -> u64 {
        unimplemented!()
    }

    /// Changes with every change of a row of that project (within one process).
    pub fn project_revision(&self, _project: &ProjectName) -> u64 {
        unimplemented!()
    }
}
