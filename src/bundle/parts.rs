//! A bundle as one stream of bytes, whether it is one file or several parts.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::Error;

/// The most parts; their names have three digits.
const MOST_PARTS: u32 = 999;

/// The name of a part, counted from one.
pub(super) fn part(bundle: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number:03}", bundle.display()))
}

/// The signature beside a bundle.
pub(super) fn signature(bundle: &Path) -> PathBuf {
    PathBuf::from(format!("{}.minisig", bundle.display()))
}

/// Writes a bundle; its files get their names at the end.
#[derive(Debug)]
pub(super) struct PartWriter {
    bundle: PathBuf,
    /// Most bytes of a part; none for a single file.
    split: Option<u64>,
    /// Files so far, under their temporary names.
    written: Vec<(fs::File, PathBuf)>,
    /// Bytes in the last of them.
    filled: u64,
    total: u64,
}

impl PartWriter {
    pub(super) fn new(bundle: &Path, split: Option<u64>) -> Self {
        Self { bundle: bundle.to_owned(), split, written: Vec::new(), filled: 0, total: 0 }
    }

    /// How many bytes were written.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    fn open_next(&mut self) -> io::Result<()> {
        let number = u32::try_from(self.written.len()).unwrap_or(MOST_PARTS).saturating_add(1);
        if number > MOST_PARTS {
            return Err(io::Error::other(format!("more than {MOST_PARTS} parts: choose a larger --split")));
        }
        let path = match self.split {
            Some(_) => part(&self.bundle, number),
            None => self.bundle.clone(),
        };
        let temporary = PathBuf::from(format!("{}.part", path.display()));
        self.written.push((fs::File::create(&temporary)?, path));
        self.filled = 0;
        Ok(())
    }

    /// Makes all durable and gives the files their names. Files of an older bundle of that name are removed.
    pub(super) fn finish(mut self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for (file, path) in std::mem::take(&mut self.written) {
            file.sync_all()?;
            fs::rename(file.path(), &path)?;
            paths.push(path);
        }
        let stale =
            (1..=MOST_PARTS).map(|number| part(&self.bundle, number)).filter(|part| !paths.contains(part));
        for part in stale {
            match fs::remove_file(&part) {
                Ok(()) => {}
                Err(_none_or_not_ours) => break,
            }
        }
        if self.split.is_some() && self.bundle.is_file() {
            fs::remove_file(&self.bundle)?;
        }
        Ok(paths)
    }
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let full = self.split.is_some_and(|split| self.filled >= split);
        if self.written.is_empty() || full {
            self.open_next()?;
        }
        let room = self.split.map_or(u64::MAX, |split| split.saturating_sub(self.filled));
        let count = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
        let Some((file, _)) = self.written.last_mut() else { return Ok(0) };
        let count = file.write(bytes.get(..count).unwrap_or_default())?;
        self.filled = self.filled.saturating_add(count as u64);
        self.total = self.total.saturating_add(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        for (file, _) in &self.written {
            let _already_gone = fs::remove_file(file.path());
        }
    }
}

/// Reads a bundle from its file, or from its parts one after the other.
#[derive(Debug)]
pub(super) struct PartReader {
    parts: Vec<(fs::File, u64)>,
    at: u64,
    /// The part after the last one, for a bundle that turns out to be cut short.
    next: Option<PathBuf>,
}

impl PartReader {
    /// Opens a bundle by its name or by that of its first part.
    pub(super) fn open(bundle: &Path) -> Result<Self, Error> {
        let open = |path: &Path| {
            let file = fs::File::open(path).map_err(Error::io(path))?;
            let size = file.metadata().map_err(Error::io(path))?.len();
            Ok::<_, Error>((file, size))
        };
        if bundle.exists() || !any_part(bundle) {
            return Ok(Self { parts: vec![open(bundle)?], at: 0, next: None });
        }
        let last = (1..=MOST_PARTS).rev().find(|number| part(bundle, *number).exists()).unwrap_or(1);
        let mut parts = Vec::new();
        for number in 1..=last {
            let path = part(bundle, number);
            if !path.exists() {
                return Err(Error::PartMissing { part: path });
            }
            parts.push(open(&path)?);
        }
        Ok(Self { parts, at: 0, next: Some(part(bundle, last.saturating_add(1))) })
    }

    /// The part that would come after the last one.
    pub(super) fn next_part(&self) -> Option<PathBuf> {
        self.next.clone()
    }

    /// Size of the whole in bytes.
    pub(super) fn size(&self) -> u64 {
        self.parts.iter().map(|(_, size)| *size).sum()
    }
}

/// Whether any part of a bundle is there.
fn any_part(bundle: &Path) -> bool {
    (1..=MOST_PARTS).any(|number| part(bundle, number).exists())
}

impl Read for PartReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt as _;
        let mut start = 0_u64;
        for (file, size) in &self.parts {
            let end = start.saturating_add(*size);
            if self.at < end {
                let left =
                    usize::try_from(end.saturating_sub(self.at)).unwrap_or(usize::MAX).min(buffer.len());
                let place = buffer.get_mut(..left).unwrap_or_default();
                let count = file.file().read_at(place, self.at.saturating_sub(start))?;
                self.at = self.at.saturating_add(count as u64);
                return Ok(count);
            }
            start = end;
        }
        Ok(0)
    }
}

impl Seek for PartReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.size().checked_add_signed(by),
        };
        self.at = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
