//! A log of JSON objects, one a line, appended and fsynced. It survives a power cut in the middle of a line.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::Error;
use crate::store::layout::{PRIVATE, READABLE, sync_folder};

/// The longest log, in bytes; then it becomes `NAME.jsonl.1`. That takes the place of an older one, or `NAME.jsonl.2` is next.
const LONGEST_LOG: u64 = 8 << 20;

/// The log in one file.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    keeps_all: bool,
    mode: u32,
}

impl Lines {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, keeps_all: false, mode: READABLE }
    }

    /// A log for its owner alone, of which no line is ever removed.
    pub(super) const fn keeping_all(path: PathBuf) -> Self {
        Self { path, keeps_all: true, mode: PRIVATE }
    }

    /// Appends a line: durable when this returns.
    pub(super) fn append(&self, value: &impl Serialize) -> Result<(), Error> {
        let path = &self.path;
        let mut line = serde_json::to_vec(value).map_err(|error| Error::io(path)(error.into()))?;
        line.push(b'\n');
        if fs::metadata(path).is_ok_and(|found| found.len().saturating_add(line.len() as u64) > LONGEST_LOG) {
            fs::rename(path, self.aside()).map_err(Error::io(path))?;
        }
        let mut log = fs::OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(self.mode)
            .open(path)
            .map_err(Error::io(path))?;
        // A power cut may have left half a line.
        let mut last = [b'\n'];
        if log.seek(SeekFrom::End(-1)).is_ok() {
            log.read_exact(&mut last).map_err(Error::io(path))?;
        }
        if last != [b'\n'] {
            line.insert(0, b'\n');
        }
        log.write_all(&line).and_then(|()| log.sync_all()).map_err(Error::io(path))?;
        path.parent().map_or(Ok(()), sync_folder)
    }

    /// What a log that is full is called from then on.
    fn aside(&self) -> PathBuf {
        let numbered = |number: u32| self.path.with_extension(format!("jsonl.{number}"));
        let free = (1..u32::MAX).map(numbered).find(|path| !self.keeps_all || !path.exists());
        free.unwrap_or_else(|| numbered(u32::MAX))
    }

    /// The lines of the newest log, oldest first. Those that are none, such as half of one, are passed over.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        let log = match fs::File::open(&self.path) {
            Ok(log) => log,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&self.path)(error)),
        };
        let mut values = Vec::new();
        for line in BufReader::new(log.take(LONGEST_LOG)).split(b'\n') {
            let line = line.map_err(Error::io(&self.path))?;
            values.extend(serde_json::from_slice(&line).ok());
        }
        Ok(values)
    }
}
