//! Ranges of a file that are kept as they go by.

use super::fields::{Fields, reach};

/// Ranges kept at once; needed libraries, the most of them, are far fewer.
const MAX_WINDOWS: usize = 1 << 12;
/// Bytes asked for at once, over all ranges.
const MAX_BYTES: u64 = 32 << 20;

/// A range of the file, with what has come of it.
#[derive(Debug)]
struct Window {
    at: u64,
    len: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn is_whole(&self) -> bool {
        self.bytes.len() as u64 >= self.len
    }

    /// Offset of the next byte that it waits for.
    fn next(&self) -> u64 {
        self.at.saturating_add(self.bytes.len() as u64)
    }

    fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }

    fn covers(&self, at: u64, len: u64) -> bool {
        self.at <= at && at.saturating_add(len) <= self.end()
    }
}

/// Ranges of one file. Memory grows with the bytes that arrive, never with what the file claims.
#[derive(Debug, Default)]
pub(super) struct Windows {
    kept: Vec<Window>,
    asked: u64,
    /// Where the next byte that some range waits for stands; past the end where none waits.
    next: u64,
}

impl Windows {
    /// Asks for a range that has not begun to go by. False where it is one too many.
    pub(super) fn want(&mut self, at: u64, len: u64) -> bool {
        if len == 0 || self.kept.iter().any(|window| window.covers(at, len)) {
            return true;
        }
        let asked = self.asked.saturating_add(len);
        if self.kept.len() >= MAX_WINDOWS || asked > MAX_BYTES {
            return false;
        }
        self.asked = asked;
        self.kept.push(Window { at, len, bytes: Vec::new() });
        self.next = self.next.min(at);
        true
    }

    /// Drops ranges that are not whole, so that they can be asked for again.
    pub(super) fn forget_partial(&mut self) {
        self.kept.retain(Window::is_whole);
        self.asked = self.kept.iter().map(|window| window.len).fold(0, u64::saturating_add);
        self.next = u64::MAX;
    }

    /// Takes what it needs of a chunk that stands at `base`. True where a range became whole.
    pub(super) fn feed(&mut self, base: u64, chunk: &[u8]) -> bool {
        let end = base.saturating_add(chunk.len() as u64);
        if self.next >= end {
            return false;
        }
        let mut completed = false;
        self.next = u64::MAX;
        for window in self.kept.iter_mut().filter(|window| !window.is_whole()) {
            let next = window.next();
            if next >= base && next < end {
                let from = reach(next.saturating_sub(base));
                let missing = reach(window.end().saturating_sub(next));
                let rest = chunk.get(from..).unwrap_or_default();
                window.bytes.extend_from_slice(rest.get(..missing).unwrap_or(rest));
                completed |= window.is_whole();
            }
            // One whose start is past stays partial, and waits for nothing.
            if !window.is_whole() && window.next() >= end {
                self.next = self.next.min(window.next());
            }
        }
        completed
    }

    /// Offset behind the last byte that is waited for from `at` on; `None` where none is.
    pub(super) fn waits_until(&self, at: u64) -> Option<u64> {
        let waiting = self.kept.iter().filter(|window| !window.is_whole() && window.next() >= at);
        waiting.map(Window::end).max()
    }

    /// A range, where it came as a whole.
    pub(super) fn get(&self, at: u64, len: u64) -> Option<&[u8]> {
        self.kept.iter().find_map(|window| {
            let from = reach(at.checked_sub(window.at)?);
            Fields(&window.bytes).range(from, reach(len))
        })
    }

    /// What came of the longest range that begins at an offset.
    pub(super) fn longest(&self, at: u64) -> &[u8] {
        let starting =
            self.kept.iter().filter(|window| window.at == at).map(|window| window.bytes.as_slice());
        starting.max_by_key(|bytes| bytes.len()).unwrap_or_default()
    }

    /// The text at an offset: up to a NUL, `len` bytes at most.
    pub(super) fn text(&self, at: u64, len: u64) -> Option<String> {
        self.kept.iter().find_map(|window| {
            let from = reach(at.checked_sub(window.at)?);
            let rest = window.bytes.get(from..).filter(|rest| !rest.is_empty())?;
            let rest = rest.get(..reach(len)).unwrap_or(rest);
            let ends = rest.len() as u64 >= len || memchr::memchr(0, rest).is_some();
            ends.then(|| Fields(rest).text(0)).flatten()
        })
    }
}
