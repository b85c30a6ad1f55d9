//! The dynamic section, and the strings that it points to.

use super::super::ErrorKind;
use super::super::fields::Fields;
use super::super::view::{Range, View};
use super::header::Segments;
use super::sections::Sections;

/// Longest dynamic section that is read, 4096 entries.
const MAX_DYNAMIC: u64 = 1 << 16;
/// Needed libraries that are kept.
const MAX_NEEDED: usize = 1024;
/// Longest string that is read; Linux has no longer path.
const MAX_STRING: u64 = 4096;
/// Longest string table that is kept whole, where no program header says which of its strings are needed.
const MAX_STRINGS: u64 = 4 << 20;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;

/// The dynamic section; texts as offsets in the string table.
#[derive(Debug)]
pub(super) struct Dynamic {
    pub(super) soname: Option<u64>,
    pub(super) needed: Vec<u64>,
    pub(super) runpath: Option<u64>,
    pub(super) rpath: Option<u64>,
    pub(super) strings: Strings,
    /// Where the needed versions stand, at most, and how many records they have.
    pub(super) versions: Option<(Range, u64)>,
}

/// The string table of the dynamic section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strings {
    pub(super) range: Range,
}

impl Strings {
    /// The text at an offset in the table; wanted where it is not at hand.
    pub(super) fn text(&self, view: &mut View<'_>, offset: u64) -> Option<String> {
        let (at, len) = self.place(view, offset, MAX_STRING)?;
        let text = view.text(at, len);
        if text.is_none() {
            view.wanted.push((at, len));
        }
        text
    }

    /// Where a text of at most `limit` bytes stands in the file.
    pub(super) fn place(&self, view: &mut View<'_>, offset: u64, limit: u64) -> Option<Range> {
        let (at, len) = self.range;
        let Some(left) = len.checked_sub(offset).filter(|left| *left > 0) else {
            let what = "string of the dynamic section";
            view.wrong(ErrorKind::Astray { what, found: offset, inside: "its string table" }.at(at));
            return None;
        };
        Some((at.saturating_add(offset), left.min(limit)))
    }
}

impl Dynamic {
    /// Reads the dynamic section; `None` where the file has none, or it is not at hand.
    pub(super) fn read(view: &mut View<'_>, segments: &Segments, sections: &Sections) -> Option<Self> {
        let by_section = sections.dynamic.filter(|_| segments.is_empty());
        let (at, len) = segments.dynamic.or(by_section.map(|(dynamic, _)| dynamic))?;
        if let Some((_, (at, len))) = by_section.filter(|(_, (_, len))| *len <= MAX_STRINGS) {
            // Which of its strings are needed is not known before it has gone by.
            view.bytes("string table", at, len);
        }
        let table = view.bytes("dynamic section", at, len.min(MAX_DYNAMIC))?;

        let mut dynamic = Self {
            soname: None,
            needed: Vec::new(),
            runpath: None,
            rpath: None,
            strings: Strings { range: (0, 0) },
            versions: None,
        };
        let (mut strings_at, mut strings_len, mut versions_at, mut versions) = (None, 0, None, 0);
        for entry in table.chunks_exact(16) {
            let fields = Fields(entry);
            let (tag, value) = (fields.u64(0)?, fields.u64(8)?);
            match tag {
                DT_NULL => break,
                DT_NEEDED if dynamic.needed.len() < MAX_NEEDED => dynamic.needed.push(value),
                DT_NEEDED => {
                    view.wrong(ErrorKind::TooMany { what: "needed libraries", limit: MAX_NEEDED }.at(at));
                }
                DT_STRTAB => strings_at = Some(value),
                DT_STRSZ => strings_len = value,
                DT_SONAME => dynamic.soname = Some(value),
                DT_RPATH => dynamic.rpath = Some(value),
                DT_RUNPATH => dynamic.runpath = Some(value),
                DT_VERNEED => versions_at = Some(value),
                DT_VERNEEDNUM => versions = value,
                _ => {}
            }
        }

        let mut astray =
            |what, found| view.wrong(ErrorKind::Astray { what, found, inside: "a loaded segment" }.at(at));
        if let Some((_, strings)) = by_section {
            dynamic.strings.range = strings;
            dynamic.versions = sections.versions.map(|range| (range, u64::MAX));
        } else {
            if let Some(address) = strings_at {
                match segments.offset(address) {
                    Some((at, room)) if strings_len <= room => dynamic.strings.range = (at, strings_len),
                    _ => astray("string table of the dynamic section", address),
                }
            }
            if let Some(address) = versions_at {
                match segments.offset(address) {
                    Some(range) => dynamic.versions = Some((range, versions)),
                    None => astray("table of needed versions", address),
                }
            }
        }
        Some(dynamic)
    }
}
