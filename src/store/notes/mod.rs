//! What is neither bytes nor records: snapshots, channels, logs, and what this site knows of others.
//!
//! A closed set of backends. Documents are small and replaced as a whole; a snapshot is written once and never changed; a
//! log is appended to. Whoever reads a document to replace it takes a [`Turn`] first.

use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Error, SnapshotId, locked};

mod disk;
mod lines;

pub(super) use disk::Disk;

/// The documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    /// Who this store is to other sites.
    Site,
    /// When each upstream was last reached.
    Upstreams,
    /// The access tokens.
    Tokens,
    /// Where a channel points, by its name.
    Channel(&'static str),
}

/// The logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    /// What upstreams and disks did wrong.
    Incidents,
    /// What devices reported.
    Reports,
    /// Who changed the store; nothing of it is ever removed.
    Audit,
}

/// Where they are kept.
#[derive(Debug)]
pub(super) enum Backend {
    /// Files of the data folder.
    Disk(Disk),
}

/// All of them.
#[derive(Debug)]
pub(super) struct Notes {
    backend: Backend,
    documents: Mutex<()>,
    snapshots: Mutex<()>,
}

/// The right to change notes while nobody else does: either the documents and logs, or the snapshots and channels.
///
/// What was changed is durable after [`Turn::finish`].
#[derive(Debug)]
pub(super) struct Turn<'notes> {
    backend: &'notes Backend,
    _alone: MutexGuard<'notes, ()>,
}

impl Notes {
    pub(super) fn new(backend: Backend) -> Self {
        Self { backend, documents: Mutex::new(()), snapshots: Mutex::new(()) }
    }

    /// Waits until nobody else has a turn with documents and logs.
    #[expect(clippy::unnecessary_wraps, reason = "other backends may fail")]
    pub(super) fn turn(&self) -> Result<Turn<'_>, Error> {
        let alone = locked(&self.documents);
        Ok(Turn { backend: &self.backend, _alone: alone })
    }

    /// Waits until nobody else has a turn with snapshots and channels.
    #[expect(clippy::unnecessary_wraps, reason = "other backends may fail")]
    pub(super) fn snapshots_turn(&self) -> Result<Turn<'_>, Error> {
        let alone = locked(&self.snapshots);
        Ok(Turn { backend: &self.backend, _alone: alone })
    }

    /// What a document is called in messages.
    pub(super) fn name(&self, document: Document) -> PathBuf {
        match &self.backend {
            Backend::Disk(disk) => disk.document(document),
        }
    }

    /// What a snapshot is called in messages.
    pub(super) fn snapshot_name(&self, id: &SnapshotId) -> PathBuf {
        match &self.backend {
            Backend::Disk(disk) => disk.snapshot(id),
        }
    }

    /// The ids of all snapshots, damaged ones too, in order.
    pub(super) fn snapshot_ids(&self) -> Result<Vec<SnapshotId>, Error> {
        match &self.backend {
            Backend::Disk(disk) => disk.snapshot_ids(),
        }
    }

    /// Reads a snapshot from its beginning; none where there is none of that id.
    pub(super) fn open_snapshot(&self, id: &SnapshotId) -> Result<Option<Box<dyn Read>>, Error> {
        match &self.backend {
            Backend::Disk(disk) => disk.open_snapshot(id),
        }
    }
}

impl Turn<'_> {
    /// Reads a document; none where nobody has written it.
    pub(super) fn read(&self, document: Document) -> Result<Option<Vec<u8>>, Error> {
        match self.backend {
            Backend::Disk(disk) => disk.read(document),
        }
    }

    /// Replaces a document.
    pub(super) fn write(&self, document: Document, text: &[u8]) -> Result<(), Error> {
        match self.backend {
            Backend::Disk(disk) => disk.write(document, text),
        }
    }

    /// Appends a line to a log.
    pub(super) fn append(&self, log: Log, value: &impl Serialize) -> Result<(), Error> {
        match self.backend {
            Backend::Disk(disk) => disk.log(log).append(value),
        }
    }

    /// The newest lines of a log, oldest first. Those that are none, such as half of one, are passed over.
    pub(super) fn lines<T: DeserializeOwned>(&self, log: Log) -> Result<Vec<T>, Error> {
        match self.backend {
            Backend::Disk(disk) => disk.log(log).read(),
        }
    }

    /// All snapshots, in order, each with its first bytes as far as they can be read.
    pub(super) fn snapshot_starts(&self, len: u64) -> Result<Vec<(SnapshotId, Vec<u8>)>, Error> {
        match self.backend {
            Backend::Disk(disk) => disk.snapshot_starts(len),
        }
    }

    /// Takes in a snapshot from the spool.
    pub(super) fn put_snapshot(
        &self,
        id: &SnapshotId,
        spooled: tempfile::NamedTempFile,
    ) -> Result<(), Error> {
        match self.backend {
            Backend::Disk(disk) => disk.put_snapshot(id, spooled),
        }
    }

    /// Removes a snapshot; nothing happens where there is none.
    pub(super) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        match self.backend {
            Backend::Disk(disk) => disk.remove_snapshot(id),
        }
    }

    /// Makes all changes of this turn durable. A turn that is dropped without it may leave none of them.
    #[expect(clippy::unnecessary_wraps, reason = "other backends may fail")]
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.backend {
            // Each was durable at once.
            Backend::Disk(_) => Ok(()),
        }
    }
}
