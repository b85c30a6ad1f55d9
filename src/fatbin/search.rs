//! Finds fatbinaries and bare cubins at any byte, walks the entries, skips the payloads.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::entry::{self, ENTRY_HEADER, FATBIN_HEADER, Head, KIND_CONCATENATED, MAGIC};
use super::fields::reach;
use super::tally::Tally;
use super::{ErrorKind, cubin};

/// What cubins begin with: ELF magic, 64 bits, little-endian, version 1.
const ELF_MAGIC: [u8; 7] = [0x7f, b'E', b'L', b'F', 2, 1, 1];
/// Where the search goes on after a header that turned out wrong: behind its magic and header length.
const AFTER_MAGIC: usize = 8;

static FATBIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(&MAGIC));
static CUBIN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(&ELF_MAGIC));

/// A search through one file, fed front to back.
///
/// Chunks are searched where they lie. Only headers that straddle two chunks are copied, into `held`, which is never
/// longer than the longest entry header.
#[derive(Debug)]
pub(super) struct Search {
    /// Offset of the first byte not done with; that of `held`, where it has any.
    at: u64,
    /// Size of the file.
    size: u64,
    /// Bytes to pass over unseen.
    skip: u64,
    held: Vec<u8>,
    state: State,
}

/// What the next byte is.
#[derive(Debug, Clone, Copy)]
enum State {
    /// Anything.
    Anywhere,
    /// The magic of a fatbinary.
    Fatbin,
    /// The magic of an ELF file.
    Cubin,
    /// An entry, of which the fatbinary has that many bytes left, with all further ones.
    Entry { left: u64 },
}

/// The next place in a chunk that begins with a magic.
#[derive(Debug, Clone, Copy, Default)]
enum Hit {
    #[default]
    Unknown,
    At(usize),
    Never,
}

impl Hit {
    /// The first hit from `from` on. Asks the finder only where the last answer no longer serves, so that a chunk
    /// is searched once, however many hits of the other magic it has.
    fn next(&mut self, chunk: &[u8], from: usize, finder: &Finder<'_>) -> Option<usize> {
        match *self {
            Self::At(at) if at >= from => return Some(at),
            Self::Never => return None,
            Self::At(_) | Self::Unknown => {}
        }
        let found = finder.find(chunk.get(from..)?).map(|at| from.saturating_add(at));
        *self = found.map_or(Self::Never, Self::At);
        found
    }
}

impl Search {
    /// Begins at the start of a file of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        Self { at: 0, size, skip: 0, held: Vec::new(), state: State::Anywhere }
    }

    /// Takes in the next bytes.
    pub(super) fn feed(&mut self, chunk: &[u8], tally: &mut Tally) {
        let mut hits = (Hit::Unknown, Hit::Unknown);
        let mut from = 0;
        loop {
            let available = chunk.len().saturating_sub(from);
            if self.skip > 0 {
                let step = reach(self.skip).min(available);
                self.advance(&mut from, step);
                self.skip = self.skip.saturating_sub(step as u64);
                if self.skip > 0 {
                    return;
                }
            }
            let goes_on = match self.state {
                State::Anywhere if self.held.is_empty() => self.find(chunk, &mut from, &mut hits),
                State::Anywhere => self.find_across(chunk, &mut from),
                State::Fatbin => self.fatbin(chunk, &mut from, tally),
                State::Cubin => self.cubin(chunk, &mut from, tally),
                State::Entry { left: 0 } => {
                    tally.end();
                    self.state = State::Anywhere;
                    true
                }
                State::Entry { left } => self.entry(chunk, &mut from, left, tally),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Ends the file: what is open is damage.
    pub(super) fn finish(mut self, tally: &mut Tally) {
        match self.state {
            State::Entry { left: 0 } if self.skip == 0 => tally.end(),
            State::Entry { left } => {
                let missing = left.saturating_add(self.skip).saturating_sub(self.held.len() as u64);
                tally.reject(ErrorKind::FatbinCut { missing }.at(self.at));
            }
            State::Fatbin if self.held.get(6..8) == Some(&[16, 0]) => {
                let missing = FATBIN_HEADER.saturating_sub(self.held.len()) as u64;
                tally.begin(self.at, 0);
                tally.reject(ErrorKind::FatbinCut { missing }.at(self.at));
            }
            // The start of something too short to be what it looked like; its bytes may hold a magic still.
            State::Fatbin | State::Cubin => {
                let again = std::mem::take(&mut self.held);
                self.state = State::Anywhere;
                self.advance_over(1);
                self.feed(again.get(1..).unwrap_or_default(), tally);
                self.finish(tally);
            }
            State::Anywhere => {}
        }
    }

    /// Goes to the next magic in the chunk; at its end, holds what may be the start of one.
    fn find(&mut self, chunk: &[u8], from: &mut usize, hits: &mut (Hit, Hit)) -> bool {
        let fatbin = hits.0.next(chunk, *from, &FATBIN);
        let cubin = hits.1.next(chunk, *from, &CUBIN);
        let (found, state) = match (fatbin, cubin) {
            (Some(fatbin), Some(cubin)) if cubin < fatbin => (cubin, State::Cubin),
            (Some(fatbin), _) => (fatbin, State::Fatbin),
            (None, Some(cubin)) => (cubin, State::Cubin),
            (None, None) => {
                let rest = chunk.get(*from..).unwrap_or_default();
                let kept = magic_begun(rest);
                self.advance_over(rest.len().saturating_sub(kept.len()));
                self.held.extend_from_slice(kept);
                return false;
            }
        };
        let step = found.saturating_sub(*from);
        self.advance(from, step);
        self.state = state;
        true
    }

    /// Goes on with what may be the start of a magic, held from the chunk before.
    fn find_across(&mut self, chunk: &[u8], from: &mut usize) -> bool {
        let old = self.held.len();
        let more = chunk.get(*from..).unwrap_or_default();
        let more = more.get(..ELF_MAGIC.len()).unwrap_or(more);
        self.held.extend_from_slice(more);
        let fatbin = FATBIN.find(&self.held).map(|at| (at, State::Fatbin));
        let cubin = CUBIN.find(&self.held).map(|at| (at, State::Cubin));
        let first =
            [fatbin, cubin].into_iter().flatten().filter(|(at, _)| *at < old).min_by_key(|(at, _)| *at);
        if let Some((at, state)) = first {
            *from = from.saturating_add(more.len());
            self.held.drain(..at);
            self.advance_over(at);
            self.state = state;
            return true;
        }
        if more.len() == ELF_MAGIC.len() {
            // No magic begins in the held bytes; the chunk is searched where it lies.
            self.held.clear();
            self.advance_over(old);
            return true;
        }
        *from = from.saturating_add(more.len());
        let done = self.held.len().saturating_sub(magic_begun(&self.held).len());
        self.held.drain(..done);
        self.advance_over(done);
        false
    }

    /// Reads a fatbinary's header.
    fn fatbin(&mut self, chunk: &[u8], from: &mut usize, tally: &mut Tally) -> bool {
        let Some(header) = peek(&mut self.held, chunk, from, FATBIN_HEADER) else { return false };
        let length = entry::fatbin_length(header);
        let Some(length) = length else {
            self.state = State::Anywhere;
            self.consume(chunk, from, MAGIC.len(), tally);
            return true;
        };
        tally.begin(self.at, length.saturating_add(FATBIN_HEADER as u64));
        let left = self.size.saturating_sub(self.at).saturating_sub(FATBIN_HEADER as u64);
        if length % 8 == 0 && (ENTRY_HEADER as u64..=left).contains(&length) {
            self.state = State::Entry { left: length };
            self.consume(chunk, from, FATBIN_HEADER, tally);
        } else {
            tally.reject(ErrorKind::FatbinLength { found: length, left }.at(self.at));
            self.state = State::Anywhere;
            self.consume(chunk, from, AFTER_MAGIC, tally);
        }
        true
    }

    /// Reads an ELF header, which may be that of a cubin.
    fn cubin(&mut self, chunk: &[u8], from: &mut usize, tally: &mut Tally) -> bool {
        let Some(header) = peek(&mut self.held, chunk, from, cubin::HEADER) else { return false };
        if let Some(code) = cubin::from_header(header) {
            tally.cubin(self.at, code);
        }
        self.state = State::Anywhere;
        self.consume(chunk, from, AFTER_MAGIC, tally);
        true
    }

    /// Reads an entry's header, and skips its payload.
    fn entry(&mut self, chunk: &[u8], from: &mut usize, left: u64, tally: &mut Tally) -> bool {
        if left < ENTRY_HEADER as u64 {
            tally.reject(ErrorKind::EntryCut { left }.at(self.at));
            self.state = State::Anywhere;
            return true;
        }
        let Some(fixed) = peek(&mut self.held, chunk, from, ENTRY_HEADER) else { return false };
        let head = match Head::parse(fixed, left) {
            Ok(head) => head,
            Err(kind) => {
                tally.reject(kind.at(self.at));
                self.state = State::Anywhere;
                // The search goes on in the bytes of the header.
                self.consume(chunk, from, 0, tally);
                return true;
            }
        };
        // Only a concatenated entry and an identifier are read beyond the fixed part; both lie in the header.
        let Some(header) = peek(&mut self.held, chunk, from, reach(head.header)) else { return false };
        let images = entry::images(header, |image| tally.image(image));
        if let (KIND_CONCATENATED, Err(kind)) = (head.kind, images) {
            tally.reject(kind.at(self.at));
            self.state = State::Anywhere;
        } else {
            self.state = State::Entry { left: left.saturating_sub(head.header).saturating_sub(head.stored) };
            self.skip = head.stored;
        }
        self.consume(chunk, from, reach(head.header), tally);
        true
    }

    /// Is done with the next `count` bytes, be they held or in the chunk. Held ones beyond are gone through again.
    fn consume(&mut self, chunk: &[u8], from: &mut usize, count: usize, tally: &mut Tally) {
        if self.held.is_empty() {
            let count = count.min(chunk.len().saturating_sub(*from));
            self.advance(from, count);
        } else {
            let again = std::mem::take(&mut self.held);
            self.advance_over(count.min(again.len()));
            // Held bytes are given back only to a search from a place further on, so this ends.
            self.feed(again.get(count..).unwrap_or_default(), tally);
        }
    }

    fn advance(&mut self, from: &mut usize, step: usize) {
        *from = from.saturating_add(step);
        self.advance_over(step);
    }

    fn advance_over(&mut self, step: usize) {
        self.at = self.at.saturating_add(step as u64);
    }
}

/// The next `count` bytes in one piece: where they lie in the chunk, or gathered in `held`. `None` where the chunk
/// ends before; all of it is then held.
fn peek<'a>(held: &'a mut Vec<u8>, chunk: &'a [u8], from: &mut usize, count: usize) -> Option<&'a [u8]> {
    let rest = chunk.get(*from..).unwrap_or_default();
    if held.is_empty() && rest.len() >= count {
        return rest.get(..count);
    }
    let wanted = count.saturating_sub(held.len()).min(rest.len());
    held.extend_from_slice(rest.get(..wanted)?);
    *from = from.saturating_add(wanted);
    held.get(..count)
}

/// The longest end of `bytes` that a magic begins with.
fn magic_begun(bytes: &[u8]) -> &[u8] {
    let begins = |tail: &&[u8]| MAGIC.starts_with(tail) || ELF_MAGIC.starts_with(tail);
    let longest = ELF_MAGIC.len().saturating_sub(1).min(bytes.len());
    (1..=longest)
        .rev()
        .filter_map(|len| bytes.get(bytes.len().saturating_sub(len)..))
        .find(begins)
        .unwrap_or_default()
}
