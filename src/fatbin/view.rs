//! What has been kept of a file, and what is still wanted of it.

use super::window::Windows;
use super::{Error, ErrorKind};

/// Errors kept from one look; one is enough to call a file damaged.
const MAX_DAMAGE: usize = 16;

/// A range of the file: offset and length in bytes.
pub(super) type Range = (u64, u64);

/// One look at what has been kept so far. Readers ask it for bytes; it notes which are not at hand.
#[derive(Debug)]
pub(super) struct View<'a> {
    windows: &'a Windows,
    /// Size of the file.
    pub(super) size: u64,
    /// Ranges without which something stays unknown.
    pub(super) wanted: Vec<Range>,
    /// Ranges in which something will likely be wanted.
    pub(super) likely: Vec<Range>,
    /// A string table in which symbol versions are to be looked for as it goes by.
    pub(super) harvest: Option<Range>,
    /// What is wrong.
    pub(super) damage: Vec<Error>,
}

impl<'a> View<'a> {
    /// A look at a file of `size` bytes.
    pub(super) fn new(windows: &'a Windows, size: u64) -> Self {
        Self { windows, size, wanted: Vec::new(), likely: Vec::new(), harvest: None, damage: Vec::new() }
    }

    /// Whether a range lies in the file; if not, that is damage to `part`.
    pub(super) fn contains(&mut self, part: &'static str, at: u64, len: u64) -> bool {
        let end = at.saturating_add(len);
        if end > self.size {
            self.wrong(ErrorKind::PastEnd { part, end, size: self.size }.at(at));
        }
        end <= self.size
    }

    /// A part of the file; `None` where it is not at hand (then it is wanted) or runs past the end.
    pub(super) fn bytes(&mut self, part: &'static str, at: u64, len: u64) -> Option<&'a [u8]> {
        if !self.contains(part, at, len) {
            return None;
        }
        let found = self.windows.get(at, len);
        if found.is_none() {
            self.wanted.push((at, len));
        }
        found
    }

    /// The first bytes of the file.
    pub(super) fn front(&self) -> &'a [u8] {
        self.windows.longest(0)
    }

    /// A part of the file, where it is at hand.
    pub(super) fn peek(&self, at: u64, len: u64) -> Option<&'a [u8]> {
        self.windows.get(at, len)
    }

    /// Text up to a NUL, of at most `len` bytes; `None` where it is not at hand.
    pub(super) fn text(&self, at: u64, len: u64) -> Option<String> {
        self.windows.text(at, len)
    }

    /// Notes what is wrong.
    pub(super) fn wrong(&mut self, error: Error) {
        if self.damage.len() < MAX_DAMAGE && !self.damage.contains(&error) {
            self.damage.push(error);
        }
    }
}
