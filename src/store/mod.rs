//! What the mirror holds: blobs by digest with their sidecar files, and the catalogue.
//!
//! All calls block; from async code wrap them in `spawn_blocking`.
//!
//! The order of writes: blob, METADATA member, sidecar, row, each durable before the next is begun. A crash leaves at
//! worst a blob without a sidecar, or a sidecar ahead of its row; the next open makes up for the latter.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::wheel::{Facts, ProjectName};

mod activity;
mod arrived;
mod audit;
mod blobs;
mod bridge;
mod catalogue;
mod cause;
mod error;
mod gc;
mod incident;
mod intake;
mod layout;
mod listing;
mod migrate;
mod notes;
mod open;
mod postgres;
mod queue;
mod recover;
mod repair;
mod report;
mod reserve;
mod revision;
mod rows;
mod shared;
mod sidecar;
mod site;
mod snapshot;
mod tokens;
mod transfer;
mod upstreams;
mod verify;
mod write;

pub use activity::{DoneFile, OpenFile, Pass, Watched};
pub use audit::AuditEntry;
pub use blobs::{Pieces, S3};
pub use error::{Error, says_full};
pub use gc::Sweep;
pub use incident::{Incident, IncidentKind};
pub use intake::Offered;
pub use listing::Listed;
pub use open::{Backends, KEEP_SNAPSHOTS};
pub use postgres::Postgres;
pub use queue::{Job, Queue, QueueLength};
pub use report::{Check, DeviceReport, Gpu, InstalledWheel, ReportBody};
pub use snapshot::{
    CHANNELS, ChangedFile, Channel, Difference, FilesByProject, NewSnapshot, NotASnapshotId, Origin,
    PolicyFile, Snapshot, SnapshotFile, SnapshotHead, SnapshotId,
};
pub use transfer::Transferred;
pub use upstreams::Reached;
pub use verify::{Fetch, Finding, FindingKind, Report, SnapshotFinding};

use blobs::{Blobs, Part};
use catalogue::record::{Counts, Light, counts_key, parse_file_key, project_prefix, url_key};
use catalogue::{Catalogue, Fault, Records as _};
use layout::Layout;
use notes::Notes;
use revision::Revisions;
use write::Writer;

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

/// What [`Store::put`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The file is new.
    New,
    /// The same bytes were there already.
    Known,
}

/// What the store had to do to get its catalogue back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// What gave doubt of the old catalogue.
    pub why: String,
    /// How many files the new one has.
    pub files: u64,
    /// Digests whose sidecar files could not be read.
    pub unreadable: Vec<Sha256>,
}

/// The upstream of files that people put in: by `add`, or by an upload.
pub const LOCAL: &str = "local";

/// Where the truth lies.
#[derive(Debug)]
struct Places {
    /// The data folder: the spool, imports, and all that the backends keep in files.
    layout: Layout,
    /// Wheels, their METADATA members and their sidecars.
    blobs: Blobs,
}

impl Places {
    /// Whether the catalogue keeps the sidecars as well, since they do not lie in files of this machine.
    const fn sidecars_in_catalogue(&self) -> bool {
        match self.blobs {
            Blobs::Disk(_) => false,
            Blobs::S3(_) => true,
        }
    }
}

/// The store of one data folder, which no other process can open meanwhile; or, with a database, one that several processes
/// share, each with a folder of its own or not.
#[derive(Debug)]
pub struct Store {
    places: Places,
    /// Snapshots, channels, logs.
    notes: Notes,
    /// None after a failed attempt to open it anew; the next call tries again.
    catalogue: RwLock<Option<Catalogue>>,
    /// The database of a shared store.
    database: Option<postgres::Database>,
    writer: Mutex<Writer>,
    revisions: Arc<Revisions>,
    recovery: Mutex<Option<Recovery>>,
    /// The heads of all snapshots, and where the channels point.
    snapshots: Arc<Mutex<snapshot::Index>>,
    /// Held to read while bytes are taken in, from blob to sidecar, and to write while a blob is removed.
    intake: RwLock<()>,
    /// How many snapshots are kept.
    keep_snapshots: AtomicUsize,
    /// How long calls wait for what is away, in milliseconds.
    patience_ms: AtomicU64,
    /// Whoever sets space aside takes turns by this.
    setting_aside: Mutex<()>,
    /// The access tokens.
    tokens: Arc<tokens::TokenShelf>,
    /// What syncs of this process do.
    activity: activity::Activity,
    /// Dropped last: whoever comes next finds all written.
    _locks: Vec<fs::File>,
}

impl Store {
    /// How long calls wait for what is away, before they fail.
    fn patience(&self) -> Duration {
        Duration::from_millis(self.patience_ms.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// The data folder.
    pub fn dir(&self) -> &Path {
        &self.places.layout.dir
    }

    /// What happened to the catalogue since the store was opened, for health and metrics; none when nothing did.
    pub fn recovery(&self) -> Option<Recovery> {
        locked(&self.recovery).clone()
    }

    /// A temporary file in the store's own file system, for [`Store::put`].
    pub fn spool(&self) -> Result<tempfile::NamedTempFile, Error> {
        let spool = self.places.layout.spool();
        tempfile::Builder::new().prefix("wheel-").tempfile_in(&spool).map_err(Error::io(&spool))
    }

    /// As [`Store::spool`], for a file of that size in bytes: fails before anything is written where it does not fit.
    ///
    /// The space is its own from now on, so that of several files written at once those that fit are whole.
    pub fn spool_for(&self, size: u64) -> Result<tempfile::NamedTempFile, Error> {
        // One at a time: two that do not both fit would each take a part from the other, and fail together.
        let _turn = locked(&self.setting_aside);
        self.places.layout.check_space(size)?;
        let spooled = self.spool()?;
        // Where a file system cannot set space aside, what was checked has to do.
        if let Err(error @ rustix::io::Errno::NOSPC) =
            rustix::fs::fallocate(spooled.as_file(), rustix::fs::FallocateFlags::KEEP_SIZE, 0, size.max(1))
        {
            drop(spooled);
            self.places.layout.check_space(size)?;
            return Err(Error::io(&self.places.layout.spool())(error.into()));
        }
        Ok(spooled)
    }

    /// Fails where so many bytes do not fit on the disk, with what has to stay free.
    pub fn check_room(&self, bytes: u64) -> Result<(), Error> {
        self.places.layout.check_space(bytes)
    }

    /// Free space on the disk, in bytes, as far as this user may fill it.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        self.places.layout.free()
    }

    /// Makes the catalogue anew from the sidecar files; yields how many files it has.
    ///
    /// The old one is moved aside until the new one is whole, and put back where that fails.
    pub fn rebuild(&self) -> Result<Recovery, Error> {
        if let Some(database) = &self.database {
            let shared = catalogue::Postgres { database: database.clone() };
            return self.rebuild_shared(&shared, "it was asked for");
        }
        self.places.layout.check_space(0)?;
        let (folder, aside) = (self.places.layout.catalogue(), self.places.layout.dir.join("catalogue.old"));
        let _turn = locked(&self.writer);
        let mut place = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        *place = None;
        recover::set_dirty(&self.places.layout)?;
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(Error::io(&aside))?;
        }
        fs::rename(&folder, &aside).map_err(Error::io(&folder))?;
        match recover::fill(&self.places, "it was asked for".to_owned()) {
            Ok((catalogue, recovery)) => {
                *place = Some(catalogue);
                drop(place);
                self.revisions.bump_all();
                fs::remove_dir_all(&aside).map_err(Error::io(&aside))?;
                Ok(recovery)
            }
            Err(error) => {
                let _nothing_there = fs::remove_dir_all(&folder);
                fs::rename(&aside, &folder).map_err(Error::io(&aside))?;
                Err(error)
            }
        }
    }

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

    /// Where the bytes of a held file lie. The path is only good while the store is open.
    pub fn blob(&self, sha256: &Sha256) -> PathBuf {
        self.places.blobs.name(sha256, Part::Wheel)
    }

    /// Whether wheels are files of this machine; else [`Store::signed_url`] and [`Store::pieces`] serve them.
    pub const fn is_local(&self) -> bool {
        matches!(self.places.blobs, Blobs::Disk(_))
    }

    /// An address at which a client can fetch a held file by itself, for some hours; none where it is to be sent to it.
    pub fn signed_url(&self, sha256: &Sha256) -> Result<Option<String>, Error> {
        self.places.blobs.signed(sha256)
    }

    /// Reads a range of a held file that is no file of this machine; none where it is lost.
    pub fn pieces(&self, sha256: &Sha256, range: std::ops::Range<u64>) -> Result<Option<Pieces>, Error> {
        self.places.blobs.pieces(sha256, range)
    }

    /// Reads the bytes of a held file from their beginning, wherever they lie.
    pub fn open_blob(&self, sha256: &Sha256) -> Result<Box<dyn io::Read + Send>, Error> {
        self.places.blobs.open(sha256)?.ok_or(Error::Unknown(*sha256))
    }

    /// The METADATA member of a held wheel.
    pub fn metadata(&self, sha256: &Sha256) -> Result<Option<Vec<u8>>, Error> {
        self.places.blobs.read(sha256, Part::Metadata)
    }

    /// Grows with every change of any row, and from one start of the store to the next.
    pub fn revision(&self) -> u64 {
        self.revisions.newest()
    }

    /// Changes with every change of a row of that project (within one process).
    pub fn project_revision(&self, project: &ProjectName) -> u64 {
        self.revisions.of(project)
    }

    fn digest(&self, key: &[u8]) -> Result<Option<Sha256>, Error> {
        self.read(|catalogue| match catalogue.record(key)? {
            None => Ok(None),
            Some(payload) => payload.try_into().map(Sha256).map(Some).map_err(|_| strange(key)),
        })
    }

    /// What the catalogue is called in messages.
    fn catalogue_name(&self) -> PathBuf {
        match &self.database {
            Some(database) => PathBuf::from(database.name()),
            None => self.places.layout.catalogue(),
        }
    }

    /// Asks the catalogue; where an embedded one shows damage, makes it anew and asks again.
    fn read<T>(&self, question: impl Fn(&Catalogue) -> Result<T, Fault>) -> Result<T, Error> {
        if self.database.is_some() {
            return self.patiently(|| match self.catalogue()?.as_ref() {
                Some(catalogue) => question(catalogue).map_err(|fault| self.refusal(fault)),
                None => Err(self.refusal(Fault::Refused("it is closed".to_owned()))),
            });
        }
        let fault = match self.catalogue()?.as_ref().map(&question) {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(fault)) => fault,
            None => Fault::Refused("it could not be opened anew".to_owned()),
        };
        let why = recover::doubt(fault).map_err(|fault| recover::refusal(&self.places.layout, fault))?;
        self.renew(|places| recover::anew(places, why))?;
        match self.catalogue()?.as_ref().map(&question) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(fault)) => Err(recover::refusal(&self.places.layout, fault)),
            None => Err(recover::refusal(
                &self.places.layout,
                Fault::Refused("it could not be opened anew".to_owned()),
            )),
        }
    }

    /// The catalogue, opened anew where the last attempt to do so failed.
    fn catalogue(&self) -> Result<RwLockReadGuard<'_, Option<Catalogue>>, Error> {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        if catalogue.is_some() {
            return Ok(catalogue);
        }
        drop(catalogue);
        self.renew(recover::reopen)?;
        Ok(self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes the catalogue and puts another in its place. Nothing is served from it meanwhile.
    ///
    /// On a full disk the old one stays: it can still be read.
    fn renew(
        &self,
        open: impl FnOnce(&Places) -> Result<(Catalogue, Option<Recovery>), Error>,
    ) -> Result<(), Error> {
        self.places.layout.check_space(0)?;
        let mut place = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        *place = None;
        let (catalogue, recovery) = open(&self.places)?;
        *place = Some(catalogue);
        drop(place);
        self.note_recovery(recovery);
        Ok(())
    }

    fn note_recovery(&self, recovery: Option<Recovery>) {
        let Some(recovery) = recovery else { return };
        let incident = Incident::of_catalogue(&recovery);
        if let Err(error) = self.put_incident(&incident) {
            tracing::error!("the incident could not be noted: {error}");
        }
        self.revisions.bump_all();
        *locked(&self.recovery) = Some(recovery);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.write_uses() {
            tracing::warn!("the last uses of tokens could not be noted: {error}");
        }
        let place = self.catalogue.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(catalogue) = place.take() else { return };
        if self.database.is_some() {
            // Others have it open; what this process put in its own spool goes.
            let _swept_by_the_next = fs::remove_dir_all(self.places.layout.spool());
            return;
        }
        let sum = catalogue.sum();
        drop(catalogue);
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        if writer.ends_clean()
            && let Some(sum) = sum
            && let Err(error) = recover::set_clean(&self.places.layout, &sum)
        {
            tracing::warn!("the next start will list all sidecar files: {error}");
        }
        self.places.layout.hold_reserve();
    }
}

/// A lock that a panic elsewhere does not take away: all that stands behind it is valid at any moment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parse_payload<T: serde::de::DeserializeOwned>(key: &[u8], payload: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(payload).map_err(|_| strange(key))
}

fn strange(key: &[u8]) -> Fault {
    Fault::Damaged(format!("record {} does not read as what it should be", key.escape_ascii()))
}
