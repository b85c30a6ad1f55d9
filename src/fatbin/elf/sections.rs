//! The section table.

use super::super::ErrorKind;
use super::super::fields::{Fields, reach};
use super::super::view::{Range, View};
use super::header::{Header, SECTION};

/// Sections that are read: the most that a header can count without the extension for more.
pub(super) const MAX_SECTIONS: u64 = 1 << 16;
/// Longest table of section names that is read; real ones have some hundred bytes.
const MAX_NAMES: u64 = 1 << 20;
/// Longest section name.
const MAX_NAME: usize = 256;
/// Sections that overlap are damage; so many are looked through for the one that an offset lies in.
const MAX_OVERLAP: usize = 8;
/// Bytes of one wrapper in `.nvFatBinSegment`.
const WRAPPER: u64 = 24;

const SHT_NULL: u32 = 0;
const SHT_DYNAMIC: u32 = 6;
const SHT_NOBITS: u32 = 8;
const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;

/// One entry of the section table.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Section {
    name: u32,
    /// `sh_type`.
    pub(in super::super) kind: u32,
    /// `sh_offset`.
    pub(in super::super) at: u64,
    /// `sh_size`.
    pub(in super::super) len: u64,
    link: u32,
}

impl Section {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let fields = Fields(bytes);
        Some(Self {
            name: fields.u32(0)?,
            kind: fields.u32(4)?,
            at: fields.u64(24)?,
            len: fields.u64(32)?,
            link: fields.u32(40)?,
        })
    }

    fn range(self) -> Range {
        (self.at, self.len)
    }
}

/// The sections of a file that have bytes in it, by their offset.
#[derive(Debug, Default)]
pub(in super::super) struct Sections {
    by_offset: Vec<Section>,
    names: Vec<u8>,
    /// The dynamic section, and its string table.
    pub(super) dynamic: Option<(Range, Range)>,
    /// The table of needed versions.
    pub(super) versions: Option<Range>,
}

/// Reads the section table of an ELF file, in its own order, and the number of the section with the names.
pub(in super::super) fn table(view: &mut View<'_>, header: &Header) -> Option<(Vec<Section>, u64)> {
    let (at, _) = header.section_table()?;
    let first = view.bytes("section table", at, SECTION)?;
    let (mut count, mut names) = (u64::from(header.sections), u64::from(header.names));
    if count == 0 {
        count = Fields(first).u64(32)?;
    }
    if header.names == u16::MAX {
        names = Section::parse(first)?.link.into();
    }
    if count > MAX_SECTIONS {
        let kind = ErrorKind::TooLarge { what: "number of sections", found: count, limit: MAX_SECTIONS };
        view.wrong(kind.at(at));
        return None;
    }
    let table = view.bytes("section table", at, count.saturating_mul(SECTION))?;
    Some((table.chunks_exact(reach(SECTION)).filter_map(Section::parse).collect(), names))
}

impl Sections {
    /// Reads the section table; empty where the file has none, or it is not at hand.
    pub(super) fn read(view: &mut View<'_>, header: &Header) -> Self {
        let Some((mut by_offset, names)) = table(view, header) else { return Self::default() };
        let names = by_offset.get(reach(names)).copied();
        let names = names.filter(|section| section.kind != SHT_NULL && section.len > 0).and_then(|section| {
            if section.len > MAX_NAMES {
                let what = "length of the section names";
                view.wrong(ErrorKind::TooLarge { what, found: section.len, limit: MAX_NAMES }.at(section.at));
                return None;
            }
            view.bytes("section names", section.at, section.len)
        });
        let first = |kind| by_offset.iter().find(|section| section.kind == kind);
        let dynamic = first(SHT_DYNAMIC).and_then(|dynamic| {
            let strings = by_offset.get(reach(dynamic.link.into()))?;
            Some((dynamic.range(), strings.range()))
        });
        let versions = first(SHT_GNU_VERNEED).map(|section| section.range());
        by_offset.retain(|section| ![SHT_NULL, SHT_NOBITS].contains(&section.kind) && section.len > 0);
        by_offset.sort_by_key(|section| section.at);
        Self { by_offset, names: names.unwrap_or_default().to_vec(), dynamic, versions }
    }

    /// The section that an offset lies in, as a number for [`Self::name`].
    pub(in super::super) fn index_at(&self, at: u64) -> Option<usize> {
        let behind = self.by_offset.partition_point(|section| section.at <= at);
        let before = self.by_offset.get(..behind)?.iter().enumerate().rev().take(MAX_OVERLAP);
        let mut holding = before.filter(|(_, section)| at.saturating_sub(section.at) < section.len);
        holding.next().map(|(index, _)| index)
    }

    /// The name of a section; empty where the file has no names.
    pub(in super::super) fn name(&self, index: usize) -> String {
        let at = self.by_offset.get(index).map_or(usize::MAX, |section| reach(section.name.into()));
        let name = self.names.get(at..).unwrap_or_default();
        let name = name.get(..MAX_NAME).unwrap_or(name);
        Fields(name).text(0).unwrap_or_default()
    }

    /// How many fatbinaries the file registers.
    pub(super) fn wrappers(&self, view: &mut View<'_>) -> u64 {
        let mut wrappers = 0_u64;
        for (index, section) in self.by_offset.iter().enumerate() {
            let fits =
                |view: &mut View<'_>| view.contains("section .nvFatBinSegment", section.at, section.len);
            if self.name(index) == ".nvFatBinSegment" && fits(view) {
                wrappers = wrappers.saturating_add(section.len / WRAPPER);
            }
        }
        wrappers
    }
}
