//! Whole wheels of a set that is not whole yet, and what is left of them after a crash.
//!
//! `sync` puts a set into the store when all of it is there. Until then each wheel that has arrived is `<64 hex>.whl` in the
//! spool of its process. A process that is killed leaves it there; the next one that opens the store, or the folder of a shared
//! one, moves it to `arrived/<64 hex>.left`, takes it in place of a download where it is wanted within a day, and removes it
//! otherwise.

use std::ffi::OsStr;
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use tempfile::{NamedTempFile, TempPath};

use super::layout::Layout;
use super::{Error, Store};
use crate::digest::{HashingReader, Sha256};

/// How long what a crash left waits to be wanted: whoever syncs every day finds it.
const KEPT: Duration = Duration::from_hours(24);

/// How the name of a wheel in the spool ends that has arrived.
const ARRIVED: &str = "whl";

impl Store {
    /// Names a spooled wheel so that a crash does not take it away. As before, its file goes when the value is dropped.
    ///
    /// Where that cannot be done, it has the name that it had.
    pub fn keep_arrived(&self, spooled: NamedTempFile, sha256: &Sha256) -> NamedTempFile {
        let path = self.places.layout.spool().join(format!("{sha256}.{ARRIVED}"));
        let Ok(name) = TempPath::try_from_path(&path) else { return spooled };
        match spooled.persist_noclobber(&path) {
            Ok(file) => NamedTempFile::from_parts(file, name),
            Err(error) => {
                // The file of that name is another's.
                let _path = name.keep();
                error.file
            }
        }
    }

    /// What a crash left of a wheel, as a spooled file, and its size in bytes; none where it has not all of its bytes.
    pub fn take_left(&self, sha256: &Sha256) -> Result<Option<(NamedTempFile, u64)>, Error> {
        let left = left(&self.places.layout, sha256);
        if !left.exists() {
            return Ok(None);
        }
        let failed = Error::io(&left);
        let take = || -> io::Result<Option<(NamedTempFile, u64)>> {
            let path = self.places.layout.spool().join(format!("left-{sha256}"));
            // Of two who want it one finds it.
            fs::rename(&left, &path)?;
            let name = TempPath::try_from_path(&path)?;
            let mut file = fs::OpenOptions::new().read(true).write(true).open(&path)?.into_file();
            let mut reader = HashingReader::new(&mut file);
            io::copy(&mut reader, &mut io::sink())?;
            let (found, size) = reader.finish();
            file.rewind()?;
            Ok((found == *sha256).then(|| (NamedTempFile::from_parts(file, name), size)))
        };
        match take() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            taken => taken.map_err(failed),
        }
    }
}

fn left(layout: &Layout, sha256: &Sha256) -> PathBuf {
    layout.arrived().join(format!("{sha256}.left"))
}

/// Empties the spool of a process that has ended: wheels that had arrived wait for a day, all else goes.
pub(super) fn settle(layout: &Layout, spool: &Path) -> Result<(), Error> {
    for entry in entries(spool)? {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let named = path.file_stem().and_then(OsStr::to_str).and_then(|stem| stem.parse().ok());
        let settled = match named.filter(|_| path.extension() == Some(OsStr::new(ARRIVED))) {
            // A disk may be too full for one more folder.
            Some(sha256) => fs::create_dir_all(layout.arrived())
                .and_then(|()| fs::rename(&path, left(layout, &sha256)))
                .or_else(|_| fs::remove_file(&path)),
            None => fs::remove_file(&path),
        };
        settled.map_err(Error::io(&path))?;
    }
    Ok(())
}

/// Removes what nobody wanted for a day. To be called when the store is opened.
pub(super) fn expire(layout: &Layout) -> Result<(), Error> {
    sweep(layout, KEPT)
}

/// Removes what a crash left and nobody wanted for that long.
pub(super) fn sweep(layout: &Layout, delay: Duration) -> Result<(), Error> {
    for entry in entries(&layout.arrived())? {
        let path = entry.path();
        if is_older(&entry, delay) {
            match fs::remove_file(&path) {
                // It was taken meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::io(&path))?,
            }
        }
    }
    Ok(())
}

/// What lies in a folder; nothing where there is no such folder.
fn entries(folder: &Path) -> Result<Vec<fs::DirEntry>, Error> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).and_then(Iterator::collect);
    entries.map_err(Error::io(folder))
}

/// Whether a file was written that long ago; one from the future was not.
fn is_older(entry: &fs::DirEntry, delay: Duration) -> bool {
    let written = entry.metadata().and_then(|metadata| metadata.modified());
    let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
    age.is_some_and(|age| age >= delay)
}
