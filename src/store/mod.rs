//! What the mirror holds: blobs by digest with their sidecar files, and the catalogue.
//!
//! All calls block; from async code wrap them in `spawn_blocking`.
//!
//! The order of writes: blob, METADATA member, sidecar, row, each durable before the next is begun. A crash leaves at
//! worst a blob without a sidecar, or a sidecar ahead of its row; the next open makes up for the latter.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use fs_err as fs;

use crate::digest::Sha256;
use crate::wheel::ProjectName;

mod activity;
mod arrived;
mod audit;
mod away;
mod blobs;
mod bridge;
mod catalogue;
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
mod renewal;
mod repair;
mod report;
mod reserve;
mod revision;
mod rows;
mod shared;
mod sidecar;
mod site;
mod snapshot;
mod spool;
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
pub use renewal::Recovery;
pub use report::{Check, DeviceReport, Gpu, InstalledWheel, ReportBody};
pub use rows::{LOCAL, Provenance, Row};
pub use snapshot::{
    CHANNELS, ChangedFile, Channel, Difference, FilesByProject, NewSnapshot, NotASnapshotId, Origin,
    PolicyFile, Snapshot, SnapshotFile, SnapshotHead, SnapshotId,
};
pub use transfer::Transferred;
pub use upstreams::Reached;
pub use verify::{Fetch, Finding, FindingKind, Report, SnapshotFinding};

use blobs::{Blobs, Part};
use catalogue::Catalogue;
use layout::Layout;
use notes::Notes;
use revision::Revisions;
use write::Writer;

/// What [`Store::put`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The file is new.
    New,
    /// The same bytes were there already.
    Known,
}

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
}

/// A lock that a panic elsewhere does not take away: all that stands behind it is valid at any moment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
