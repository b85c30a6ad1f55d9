//! Notes as files of the data folder.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use fs_err as fs;

use super::lines::Lines;
use super::{Document, Log};
use crate::store::layout::{Layout, PRIVATE, READABLE, persist, read_bounded, sync_folder, write_durably_as};
use crate::store::{Error, SnapshotId};

/// The folders `snapshots` and `channels`, and the files beside them.
#[derive(Debug, Clone)]
pub(in crate::store) struct Disk {
    layout: Layout,
}

impl Disk {
    pub(in crate::store) const fn new(layout: Layout) -> Self {
        Self { layout }
    }

    pub(super) fn document(&self, document: Document) -> PathBuf {
        match document {
            Document::Site => self.layout.site(),
            Document::Upstreams => self.layout.upstreams(),
            Document::Tokens => self.layout.tokens(),
            Document::Channel(name) => self.layout.channel(name),
        }
    }

    pub(super) fn read(&self, document: Document) -> Result<Option<Vec<u8>>, Error> {
        match read_bounded(&self.document(document)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, document: Document, text: &[u8]) -> Result<(), Error> {
        let path = self.document(document);
        if let Document::Channel(_) = document {
            fs::create_dir_all(self.layout.channels()).map_err(Error::io(&path))?;
        }
        let mode = if document == Document::Tokens { PRIVATE } else { READABLE };
        write_durably_as(&self.layout.spool(), &path, text, mode)
    }

    pub(super) fn log(&self, log: Log) -> Lines {
        match log {
            Log::Incidents => Lines::new(self.layout.incidents()),
            Log::Reports => Lines::new(self.layout.reports()),
            Log::Audit => Lines::keeping_all(self.layout.audit()),
        }
    }

    pub(super) fn snapshot(&self, id: &SnapshotId) -> PathBuf {
        self.layout.snapshot(id)
    }

    pub(super) fn snapshot_ids(&self) -> Result<Vec<SnapshotId>, Error> {
        let folder = self.layout.snapshots();
        let mut ids = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                ids.extend(
                    path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()),
                );
            }
        }
        ids.sort();
        Ok(ids)
    }

    pub(super) fn snapshot_starts(&self, len: u64) -> Result<Vec<(SnapshotId, Vec<u8>)>, Error> {
        let start = |id: &SnapshotId| {
            let mut bytes = Vec::new();
            let file = fs::File::open(self.layout.snapshot(id));
            // One that cannot be read is as one that is empty.
            let _unreadable = file.and_then(|file| file.take(len).read_to_end(&mut bytes));
            bytes
        };
        Ok(self.snapshot_ids()?.into_iter().map(|id| (id.clone(), start(&id))).collect())
    }

    pub(super) fn open_snapshot(&self, id: &SnapshotId) -> Result<Option<Box<dyn Read>>, Error> {
        let path = self.layout.snapshot(id);
        match fs::File::open(&path) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path)(error)),
        }
    }

    pub(super) fn put_snapshot(
        &self,
        id: &SnapshotId,
        spooled: tempfile::NamedTempFile,
    ) -> Result<(), Error> {
        persist(spooled, &self.layout.snapshot(id))?;
        sync_folder(&self.layout.snapshots())
    }

    pub(super) fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        let path = self.layout.snapshot(id);
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(&path)(error)),
        }
        sync_folder(&self.layout.snapshots())
    }
}
