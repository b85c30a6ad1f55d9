//! The zip archive that a wheel is: its members, and what is wrong with its directory.
//!
//! The `zip` crate reads the directory; the members' bytes are then inflated by `inflate.rs`, straight from
//! the file, so that several threads can read at once.

use std::collections::HashSet;
use std::io::{self, BufRead as _, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::{Damage, DamageCode, Error};

/// The most members that a wheel may have. The largest of 55 surveyed ones had 12,683; each costs some 400 bytes of
/// memory while the wheel is read.
pub const MOST_MEMBERS: usize = 60_000;

/// How much of the file is read to find its members, in bytes: more than what [`MOST_MEMBERS`] need, and a bound on
/// the memory that a hostile directory can take.
pub const DIRECTORY_CAP: u64 = 12 << 20;

/// The most bytes that all members together may inflate to. Wheels of more than 4 GiB are known, of 10 are not.
const TOTAL_CAP: u64 = 64 << 30;

/// From how many bytes on a member's ratio is looked at: below, inflating it costs next to nothing.
const RATIO_FLOOR: u64 = 32 << 20;

/// The highest ratio of inflated to stored size. Real members that large stay below 30; deflate itself ends at 1032.
const RATIO_CAP: u64 = 400;

/// What a zip64 end record begins with.
const SIGNATURE: &[u8] = b"PK\x06\x06";

/// The bytes of a zip64 end record up to the end of its counts of members (APPNOTE 4.3.14).
const COUNTED: usize = 40;

/// How much is read ahead while the directory is read, in bytes.
const READ_AHEAD: usize = 4 << 10;

/// Bytes that several threads can read at once, at any place: a file, or a buffer in tests.
pub trait Source: Send + Sync {
    /// Reads some bytes at that offset; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Size in bytes.
    fn size(&self) -> io::Result<u64>;
}

impl Source for &[u8] {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut rest = usize::try_from(at).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        rest.read(buffer)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

/// How a member's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
}

/// A member that can be read.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Path inside the archive.
    pub(super) path: String,
    /// Size in bytes, as the directory states it.
    pub(super) size: u64,
    /// Size in bytes as stored, as the directory states it.
    pub(super) stored: u64,
    /// How it is stored.
    pub(super) method: Method,
    /// CRC-32 of the bytes, as the directory states it.
    pub(super) crc32: u32,
    /// Offset in the file of the first stored byte.
    pub(super) at: u64,
}

/// The members of an archive.
#[derive(Debug, Default)]
pub(super) struct Archive {
    /// Members that can be read, in directory order; folders are none.
    pub(super) entries: Vec<Entry>,
    /// Paths of members that are there but cannot be read.
    pub(super) unreadable: Vec<String>,
    /// What is wrong with the directory.
    pub(super) damage: Vec<Damage>,
}

fn damaged(member: Option<&str>, text: String) -> Damage {
    Damage { code: DamageCode::Damaged, member: member.map(str::to_owned), text }
}

impl Archive {
    /// Reads the directory of an archive.
    ///
    /// Where members overlap, or would inflate to absurd sizes, no member can be read, and the damage says so.
    pub(super) fn open(file: &str, source: &dyn Source) -> Result<Self, Error> {
        let io = |source| Error::Io { file: file.to_owned(), source };
        let size = source.size().map_err(io)?;
        let budget = Arc::new(AtomicU64::new(DIRECTORY_CAP));
        let claimed = Arc::new(AtomicU64::new(0));
        let reader = SourceReader {
            source,
            size,
            at: 0,
            ahead: Vec::new(),
            ahead_at: 0,
            budget: Some(Arc::clone(&budget)),
            claimed: Arc::clone(&claimed),
        };
        let claimed = || usize::try_from(claimed.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let mut zip = ZipArchive::new(reader).map_err(|error| match error {
            _ if claimed() > 0 => Error::TooManyMembers { file: file.to_owned(), count: claimed() },
            _ if budget.load(Ordering::Relaxed) == 0 => Error::DirectoryTooLarge { file: file.to_owned() },
            ZipError::Io(source) if source.kind() != io::ErrorKind::UnexpectedEof => io(source),
            source => Error::Zip { file: file.to_owned(), source },
        })?;
        if zip.len() > MOST_MEMBERS {
            return Err(Error::TooManyMembers { file: file.to_owned(), count: zip.len() });
        }
        // Headers of members are read from here on: few bytes each, and no memory is kept of them.
        budget.store(u64::MAX, Ordering::Relaxed);

        let mut archive = Self::default();
        if zip.offset() != 0 {
            archive.damage.push(damaged(
                None,
                format!("the zip archive begins at byte {:#x} of the file, expected 0", zip.offset()),
            ));
        }
        archive.read_entries(&mut zip);
        match zip.has_overlapping_entries() {
            Ok(false) => {}
            Ok(true) => archive.give_up("members overlap in the file, expected each byte in one of them"),
            Err(error) => archive.give_up(&format!("the members' headers cannot be read: {error}")),
        }
        if archive.damage.is_empty()
            && let Err(error) = zip.validate_header_consistency()
        {
            let text = error.to_string();
            // The crate's own prefixes: which archive and that it is invalid is clear from where this is shown.
            let text = text.strip_prefix("invalid Zip archive: ").unwrap_or(&text);
            let text = text.strip_prefix("header inconsistency detected: ").unwrap_or(text);
            archive.damage.push(damaged(None, format!("the zip directory: {text}")));
        } else if zip.has_duplicate_names() {
            archive.damage.push(damaged(
                None,
                "the zip directory: two members have the same name, expected each name once".to_owned(),
            ));
        }
        archive.check_sizes(size);
        Ok(archive)
    }

    fn read_entries(&mut self, zip: &mut ZipArchive<SourceReader<'_>>) {
        let mut seen = HashSet::new();
        for index in 0..zip.len() {
            let Ok(entry) = zip.by_index_raw(index) else {
                // The local header does not lead to the data: say which, as far as the directory knows its name.
                let name = zip.name_for_index(index).and_then(Result::ok).unwrap_or_default().into_owned();
                self.damage.push(damaged(
                    Some(&name),
                    "the header before the member's data cannot be read".to_owned(),
                ));
                self.unreadable.push(name);
                continue;
            };
            let Ok(path) = entry.name().map(std::borrow::Cow::into_owned) else {
                let text = format!("the name of member {index} is no text: {:?}", entry.name_raw());
                self.damage.push(damaged(None, text));
                continue;
            };
            if let Some(text) = odd_path(&path) {
                self.damage.push(damaged(Some(&path), text));
            }
            if entry.is_dir() {
                continue;
            }
            if !seen.insert(plain_path(&path)) {
                self.damage.push(damaged(Some(&path), "another member leads to the same path".to_owned()));
            }
            let method = match entry.compression() {
                _ if entry.encrypted() => Err("it is encrypted, expected it plain".to_owned()),
                CompressionMethod::Stored => Ok(Method::Stored),
                CompressionMethod::Deflated => Ok(Method::Deflated),
                other => {
                    Err(format!("it is compressed by method {other}, expected it stored (0) or deflated (8)"))
                }
            };
            let at = entry.data_start();
            match (method, at) {
                (Ok(method), Some(at)) => self.entries.push(Entry {
                    size: entry.size(),
                    stored: entry.compressed_size(),
                    crc32: entry.crc32(),
                    path,
                    method,
                    at,
                }),
                (method, _) => {
                    let text = method.err().unwrap_or_else(|| "its data cannot be found".to_owned());
                    self.damage.push(damaged(Some(&path), text));
                    self.unreadable.push(path);
                }
            }
        }
    }

    /// Refuses to read anything, since reading would be no use or no end.
    fn give_up(&mut self, text: &str) {
        self.damage.push(damaged(None, text.to_owned()));
        self.unreadable.extend(self.entries.drain(..).map(|entry| entry.path));
    }

    fn check_sizes(&mut self, file_size: u64) {
        for entry in &self.entries {
            if entry.size > RATIO_FLOOR && entry.size / RATIO_CAP > entry.stored {
                let text = format!(
                    "{} bytes inflate to {}, expected at most {RATIO_CAP} times as many",
                    entry.stored, entry.size
                );
                self.damage.push(damaged(Some(&entry.path), text));
            }
            let end = entry.at.checked_add(entry.stored);
            if end.is_none_or(|end| end > file_size) {
                let text = format!(
                    "its {} stored bytes begin at byte {:#x}, but the file ends at {file_size:#x}",
                    entry.stored, entry.at
                );
                self.damage.push(damaged(Some(&entry.path), text));
            }
        }
        let bombs: HashSet<String> = self.damage.iter().filter_map(|damage| damage.member.clone()).collect();
        let (kept, dropped) = std::mem::take(&mut self.entries).into_iter().partition(|entry| {
            !bombs.contains(&entry.path)
                || (entry.size <= RATIO_FLOOR || entry.size / RATIO_CAP <= entry.stored)
                    && entry.at.checked_add(entry.stored).is_some_and(|end| end <= file_size)
        });
        self.entries = kept;
        self.unreadable.extend(Vec::<Entry>::into_iter(dropped).map(|entry| entry.path));

        let total = self.entries.iter().fold(0, |total: u64, entry| total.saturating_add(entry.size));
        if total > TOTAL_CAP || (total > RATIO_FLOOR && total / RATIO_CAP > file_size) {
            self.give_up(&format!("the members inflate to {total} bytes from a file of {file_size}"));
        }
    }
}

/// What is wrong with a path, if an installer that followed it could leave its folder, or be led astray.
fn odd_path(path: &str) -> Option<String> {
    let odd = if path.starts_with('/') {
        "an absolute path"
    } else if path.split('/').any(|part| part == "..") {
        "a path with '..'"
    } else if path.contains('\\') {
        "a path with a backslash"
    } else if path.chars().any(char::is_control) {
        "a path with control characters"
    } else if path.as_bytes().get(1) == Some(&b':') {
        "a path with a drive letter"
    } else {
        return None;
    };
    Some(format!("{odd}, expected one that stays inside the wheel"))
}

/// The path without empty and `.` parts: where an installer would put it.
pub(super) fn plain_path(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let mut plain = String::with_capacity(path.len());
    for part in parts {
        if !plain.is_empty() {
            plain.push('/');
        }
        plain.push_str(part);
    }
    plain
}

/// Reads a source like a file, with few bytes read ahead, since the directory is read field by field.
struct SourceReader<'a> {
    source: &'a dyn Source,
    size: u64,
    at: u64,
    ahead: Vec<u8>,
    ahead_at: u64,
    /// How many more bytes may be read.
    budget: Option<Arc<AtomicU64>>,
    /// The number of members of an end record that was refused.
    claimed: Arc<AtomicU64>,
}

impl SourceReader<'_> {
    fn spend(&self, count: usize) -> io::Result<()> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let left = budget.load(Ordering::Relaxed).saturating_sub(count as u64);
        budget.store(left, Ordering::Relaxed);
        if left == 0 { Err(io::Error::other("the zip directory is too large")) } else { Ok(()) }
    }

    /// Refuses zip64 end records that claim more members than are taken, in what was read ahead.
    ///
    /// Memory for as many is set aside before the first of them is read: a file of zeros and one such record would take all that
    /// there is, and end the process. Whichever record is found to count, it is read through here. APPNOTE 4.3.14: the two
    /// counts lie 24 bytes behind the signature.
    fn check_claims(&self) -> io::Result<()> {
        let from = self.ahead_at.saturating_sub(SIGNATURE.len() as u64);
        let mut window = vec![0; READ_AHEAD.saturating_add(SIGNATURE.len()).saturating_add(COUNTED)];
        let length = self.source.read_at(&mut window, from)?;
        let window = window.get(..length).unwrap_or_default();
        for at in memchr::memmem::find_iter(window, SIGNATURE) {
            let record = window.get(at..).unwrap_or_default();
            let record = record.get(..COUNTED).unwrap_or(record);
            let counts = record.get(24..).unwrap_or_default().chunks_exact(8);
            let counts = counts.filter_map(|count| count.try_into().ok().map(u64::from_le_bytes));
            let most = counts.max().unwrap_or_default();
            if most > MOST_MEMBERS as u64 {
                self.claimed.store(most, Ordering::Relaxed);
                return Err(io::Error::other("too many members"));
            }
        }
        Ok(())
    }
}

impl io::BufRead for SourceReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let offset = self.at.checked_sub(self.ahead_at).and_then(|offset| usize::try_from(offset).ok());
        let cached = offset.is_some_and(|offset| offset < self.ahead.len());
        if !cached {
            self.ahead.resize(READ_AHEAD, 0);
            let count = self.source.read_at(&mut self.ahead, self.at)?;
            self.ahead.truncate(count);
            self.ahead_at = self.at;
            // Only as long as the directory is read.
            if self.budget.as_ref().is_some_and(|budget| budget.load(Ordering::Relaxed) <= DIRECTORY_CAP) {
                self.check_claims()?;
            }
        }
        let offset = if cached { offset.unwrap_or_default() } else { 0 };
        Ok(self.ahead.get(offset..).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        self.at = self.at.saturating_add(count as u64);
    }
}

impl Read for SourceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.spend(buffer.len().min(READ_AHEAD))?;
        let mut ahead = self.fill_buf()?;
        let count = ahead.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl Seek for SourceReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = to.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
