//! What is neither bytes nor records: snapshots, channels, logs, and what this site knows of others.
//!
//! A closed set of backends. Documents are small and replaced as a whole; a snapshot is written once and never changed; a
//! log is appended to. Whoever reads a document to replace it takes a [`Turn`] first.

use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::postgres::{Lock, Session};
use super::{Error, SnapshotId, locked};

mod disk;
mod lines;
mod postgres;

pub(super) use disk::Disk;
pub(super) use postgres::Postgres;

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
    /// Rows of a database.
    Postgres(Postgres),
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
    means: Means<'notes>,
    _alone: MutexGuard<'notes, ()>,
}

#[derive(Debug)]
enum Means<'notes> {
    Disk(&'notes Disk),
    Postgres(&'notes Postgres, Session),
}

impl Notes {
    pub(super) fn new(backend: Backend) -> Self {
        Self { backend, documents: Mutex::new(()), snapshots: Mutex::new(()) }
    }

    /// Waits until nobody else has a turn with documents and logs.
    pub(super) fn turn(&self) -> Result<Turn<'_>, Error> {
        self.begin(&self.documents, Lock::Documents)
    }

    /// Waits until nobody else has a turn with snapshots and channels.
    pub(super) fn snapshots_turn(&self) -> Result<Turn<'_>, Error> {
        self.begin(&self.snapshots, Lock::Snapshots)
    }

    fn begin<'notes>(&'notes self, mutex: &'notes Mutex<()>, lock: Lock<'_>) -> Result<Turn<'notes>, Error> {
        let alone = locked(mutex);
        let means = match &self.backend {
            Backend::Disk(disk) => Means::Disk(disk),
            Backend::Postgres(postgres) => {
                let session = postgres.begin()?;
                session.lock(&[lock]).map_err(postgres.error())?;
                Means::Postgres(postgres, session)
            }
        };
        Ok(Turn { means, _alone: alone })
    }

    /// Reads a document as it is now; none where nobody has written it.
    pub(super) fn read(&self, document: Document) -> Result<Option<Vec<u8>>, Error> {
        match &self.backend {
            Backend::Disk(disk) => disk.read(document),
            Backend::Postgres(postgres) => postgres.read(document),
        }
    }

    /// The newest lines of a log, oldest first. Those that are none, such as half of one, are passed over.
    pub(super) fn lines<T: DeserializeOwned>(&self, log: Log) -> Result<Vec<T>, Error> {
        match &self.backend {
            Backend::Disk(_) => self.turn()?.lines(log),
            Backend::Postgres(postgres) => Ok(parse(&postgres.lines(log)?)),
        }
    }

    /// What a document is called in messages.
    pub(super) fn name(&self, document: Document) -> PathBuf {
        match &self.backend {
            Backend::Disk(disk) => disk.document(document),
            Backend::Postgres(postgres) => postgres.name(&document.row()),
        }
    }

    /// What a snapshot is called in messages.
    pub(super) fn snapshot_name(&self, id: &SnapshotId) -> PathBuf {
        match &self.backend {
            Backend::Disk(disk) => disk.snapshot(id),
            Backend::Postgres(postgres) => postgres.name(&format!("snapshots/{id}")),
        }
    }

    /// The ids of all snapshots, damaged ones too, in order.
    pub(super) fn snapshot_ids(&self) -> Result<Vec<SnapshotId>, Error> {
        match &self.backend {
            Backend::Disk(disk) => disk.snapshot_ids(),
            Backend::Postgres(postgres) => postgres.snapshot_ids(),
        }
    }

    /// Reads a snapshot from its beginning; none where there is none of that id.
    pub(super) fn open_snapshot(&self, id: &SnapshotId) -> Result<Option<Box<dyn Read>>, Error> {
        match &self.backend {
            Backend::Disk(disk) => disk.open_snapshot(id),
            Backend::Postgres(postgres) => postgres.open_snapshot(id),
        }
    }
}

impl Turn<'_> {
    /// Reads a document; none where nobody has written it.
    pub(super) fn read(&self, document: Document) -> Result<Option<Vec<u8>>, Error> {
        match &self.means {
            Means::Disk(disk) => disk.read(document),
            Means::Postgres(notes, session) => postgres::read(session, document).map_err(notes.error()),
        }
    }

    /// Replaces a document.
    pub(super) fn write(&self, document: Document, text: &[u8]) -> Result<(), Error> {
        match &self.means {
            Means::Disk(disk) => disk.write(document, text),
            Means::Postgres(notes, session) => {
                postgres::write(session, document, text).map_err(notes.error())
            }
        }
    }

    /// Appends a line to a log.
    pub(super) fn append(&self, log: Log, value: &impl Serialize) -> Result<(), Error> {
        match &self.means {
            Means::Disk(disk) => disk.log(log).append(value),
            Means::Postgres(notes, session) => {
                let line = serde_json::to_string(value);
                let line = line.map_err(|error| Error::io(&notes.name("log"))(error.into()))?;
                postgres::append(session, log, line).map_err(notes.error())
            }
        }
    }

    /// The newest lines of a log, oldest first. Those that are none, such as half of one, are passed over.
    pub(super) fn lines<T: DeserializeOwned>(&self, log: Log) -> Result<Vec<T>, Error> {
        match &self.means {
            Means::Disk(disk) => disk.log(log).read(),
            Means::Postgres(notes, session) => {
                Ok(parse(&postgres::lines(session, log).map_err(notes.error())?))
            }
        }
    }

    /// All snapshots, in order, each with its first bytes as far as they can be read.
    pub(super) fn snapshot_starts(&self, len: u64) -> Result<Vec<(SnapshotId, Vec<u8>)>, Error> {
        match &self.means {
            Means::Disk(disk) => disk.snapshot_starts(len),
            Means::Postgres(notes, session) => postgres::snapshot_starts(session).map_err(notes.error()),
        }
    }

    /// Takes in a snapshot from the spool.
    pub(super) fn put_snapshot(
        &self,
        id: &SnapshotId,
        spooled: tempfile::NamedTempFile,
    ) -> Result<(), Error> {
        match &self.means {
            Means::Disk(disk) => disk.put_snapshot(id, spooled),
            Means::Postgres(notes, session) => {
                let read = spooled.reopen().map_err(Error::io(spooled.path()))?;
                postgres::put_snapshot(session, id, read).map_err(|failed| match failed {
                    Ok(fault) => notes.error()(fault),
                    Err(error) => Error::io(spooled.path())(error),
                })
            }
        }
    }

    /// Removes a snapshot; nothing happens where there is none.
    pub(super) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        match &self.means {
            Means::Disk(disk) => disk.remove_snapshot(id),
            Means::Postgres(notes, session) => postgres::remove_snapshot(session, id).map_err(notes.error()),
        }
    }

    /// Whether other processes may have changed the notes since the last turn of this one.
    pub(super) const fn is_shared(&self) -> bool {
        matches!(self.means, Means::Postgres(..))
    }

    /// Makes all changes of this turn durable, and tells other processes; yields the number of the change, where they count.
    /// A turn that is dropped without it may leave none of its changes.
    pub(super) fn finish(self) -> Result<i64, Error> {
        match self.means {
            // Each was durable at once.
            Means::Disk(_) => Ok(0),
            Means::Postgres(notes, session) => {
                let number = session.tell(vec![None]).map_err(notes.error())?;
                session.commit().map_err(notes.error())?;
                Ok(number)
            }
        }
    }
}

fn parse<T: DeserializeOwned>(lines: &[String]) -> Vec<T> {
    lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
