//! Blobs as files of the data folder.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Found, Part};
use crate::digest::Sha256;
use crate::store::Error;
use crate::store::catalogue::record::Stamp;
use crate::store::layout::{Layout, persist, sync_folder, write_whole};

/// The folder `blobs`, and the spool beside it.
#[derive(Debug, Clone)]
pub(in crate::store) struct Disk {
    layout: Layout,
}

impl Disk {
    pub(in crate::store) const fn new(layout: Layout) -> Self {
        Self { layout }
    }

    pub(super) fn path(&self, sha256: &Sha256, part: Part) -> PathBuf {
        self.layout.shard(sha256).join(format!("{sha256}.{}", part.extension()))
    }

    pub(super) fn make_shard(&self, sha256: &Sha256) -> Result<(), Error> {
        let shard = self.layout.shard(sha256);
        if !shard.is_dir() {
            fs::create_dir_all(&shard).map_err(Error::io(&shard))?;
            sync_folder(&self.layout.blobs())?;
        }
        Ok(())
    }

    pub(super) fn put_wheel(&self, sha256: &Sha256, spooled: tempfile::NamedTempFile) -> Result<(), Error> {
        persist(spooled, &self.path(sha256, Part::Wheel))
    }

    pub(super) fn put(&self, sha256: &Sha256, part: Part, bytes: &[u8]) -> Result<(), Error> {
        write_whole(&self.layout.spool(), &self.path(sha256, part), bytes)
    }

    pub(super) fn settle(&self, sha256: &Sha256) -> Result<(), Error> {
        sync_folder(&self.layout.shard(sha256))
    }

    pub(super) fn find(&self, sha256: &Sha256, part: Part) -> Result<Option<Found>, Error> {
        let path = self.path(sha256, part);
        match fs::symlink_metadata(&path) {
            Ok(found) => Ok(Some(state(&found))),
            Err(error) => missing(error, &path),
        }
    }

    pub(super) fn read_start(&self, sha256: &Sha256, part: Part, len: u64) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path(sha256, part);
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) => return missing(error, &path),
        };
        let mut bytes = Vec::new();
        file.take(len).read_to_end(&mut bytes).map_err(Error::io(&path))?;
        Ok(Some(bytes))
    }

    pub(super) fn open(&self, sha256: &Sha256) -> Result<Option<Box<dyn Read + Send>>, Error> {
        let path = self.path(sha256, Part::Wheel);
        match fs::File::open(&path) {
            Ok(file) => Ok(Some(Box::new(file.into_file()))),
            Err(error) => missing(error, &path),
        }
    }

    pub(super) fn list(
        &self,
        part: Part,
        visit: &mut dyn FnMut(Sha256, Found) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let blobs = self.layout.blobs();
        for shard in fs::read_dir(&blobs).map_err(Error::io(&blobs))? {
            let shard = shard.map_err(Error::io(&blobs))?.path();
            if !shard.is_dir() {
                continue;
            }
            for entry in fs::read_dir(&shard).map_err(Error::io(&shard))? {
                let path = entry.map_err(Error::io(&shard))?.path();
                let digest =
                    path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
                if let Some(sha256) = digest
                    && path.extension().is_some_and(|found| found == part.extension())
                    && path.parent() == Some(&self.layout.shard(&sha256))
                {
                    // It may have been removed since. A sidecar is replaced by a rename, so one that was listed is there.
                    match fs::symlink_metadata(&path) {
                        Ok(found) => visit(sha256, state(&found))?,
                        Err(error) => drop(missing::<()>(error, &path)?),
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn remove(&self, sha256: &Sha256, part: Part) -> Result<(), Error> {
        let path = self.path(sha256, part);
        fs::remove_file(&path).map_err(Error::io(&path))
    }

    pub(super) fn set_aside(&self, sha256: &Sha256, part: Part) -> Result<Option<PathBuf>, Error> {
        let (path, folder) = (self.path(sha256, part), self.layout.quarantine());
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let aside = folder.join(path.file_name().unwrap_or_default());
        match fs::rename(&path, &aside) {
            Ok(()) => {}
            Err(error) => return missing(error, &path),
        }
        sync_folder(&folder)?;
        self.settle(sha256)?;
        Ok(Some(aside))
    }
}

/// Tells one state of a file from another.
fn state(found: &std::fs::Metadata) -> Found {
    let changed_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
    let stamp = Stamp { changed_ns, len: found.len(), inode: found.ino() };
    Found { stamp, modified: found.modified().ok() }
}

/// None for a file that is not there.
fn missing<T>(error: io::Error, path: &Path) -> Result<Option<T>, Error> {
    if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(Error::io(path)(error)) }
}
