//! The ELF header and the program headers.

use super::super::ErrorKind;
use super::super::fields::{Fields, reach};
use super::super::view::{Range, View};

/// Length of an ELF64 header.
pub(super) const LEN: u64 = 64;
/// Length of an entry of the section table.
pub(super) const SECTION: u64 = 64;
/// Length of a program header.
const SEGMENT: u64 = 56;
/// Program headers that are read; linkers write about ten.
const MAX_SEGMENTS: u64 = 1024;
/// Segments up to this size are kept whole where they hold the dynamic section: tools that rewrite it (patchelf) put
/// its strings into the same new segment.
const MAX_KEPT_SEGMENT: u64 = 4 << 20;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

/// What the front of any ELF file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Identity {
    /// `e_machine`.
    pub(in super::super) machine: u16,
    /// `e_type`.
    pub(in super::super) object_type: u16,
    /// ELF64 little-endian, version 1: read further than these two fields.
    pub(in super::super) is_read: bool,
}

impl Identity {
    /// Reads the first 20 bytes. `None` where that is no ELF file.
    pub(in super::super) fn parse(front: &[u8]) -> Option<Self> {
        let fields = Fields(front);
        if fields.array(0)? != *b"\x7fELF" {
            return None;
        }
        let big_endian = fields.u8(5)? == 2;
        let field =
            |at| fields.array(at).map(if big_endian { u16::from_be_bytes } else { u16::from_le_bytes });
        let is_read = fields.array(4)? == [2, 1, 1];
        Some(Self { object_type: field(16)?, machine: field(18)?, is_read })
    }
}

/// The header of an ELF64 file.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Header {
    pub(super) identity: Identity,
    segments_at: u64,
    segment_len: u16,
    segments: u16,
    pub(super) sections_at: u64,
    section_len: u16,
    /// Number of sections; 0 means that the first section's size states it.
    pub(super) sections: u16,
    /// Number of the section with the names; 0xffff means that the first section's link states it.
    pub(super) names: u16,
}

impl Header {
    /// Reads the 64 bytes. `None` where that is no ELF64 little-endian file.
    pub(in super::super) fn parse(bytes: &[u8]) -> Option<Self> {
        let fields = Fields(bytes);
        let identity = Identity::parse(bytes).filter(|identity| identity.is_read)?;
        Some(Self {
            identity,
            segments_at: fields.u64(32)?,
            sections_at: fields.u64(40)?,
            segment_len: fields.u16(54)?,
            segments: fields.u16(56)?,
            section_len: fields.u16(58)?,
            sections: fields.u16(60)?,
            names: fields.u16(62)?,
        })
    }

    /// Where the section table stands, as far as the header alone knows.
    pub(in super::super) fn section_table(&self) -> Option<Range> {
        let exists = self.sections_at != 0 && u64::from(self.section_len) == SECTION;
        exists.then(|| (self.sections_at, u64::from(self.sections.max(1)).saturating_mul(SECTION)))
    }
}

/// A range of the file that is loaded at an address.
#[derive(Debug, Clone, Copy)]
struct Load {
    at: u64,
    address: u64,
    len: u64,
}

/// The program headers.
#[derive(Debug, Default)]
pub(super) struct Segments {
    loads: Vec<Load>,
    /// Where the dynamic section stands.
    pub(super) dynamic: Option<Range>,
}

impl Segments {
    /// Reads the program headers; empty where the file has none, `None` where they are not at hand.
    pub(super) fn read(view: &mut View<'_>, header: &Header) -> Option<Self> {
        let count = u64::from(header.segments);
        if header.segments_at == 0 || count == 0 {
            return Some(Self::default());
        }
        let at = header.segments_at;
        if count > MAX_SEGMENTS {
            let kind =
                ErrorKind::TooLarge { what: "number of program headers", found: count, limit: MAX_SEGMENTS };
            view.wrong(kind.at(at));
            return None;
        }
        if u64::from(header.segment_len) != SEGMENT {
            let found = header.segment_len.into();
            view.wrong(ErrorKind::HeaderLength { what: "program header", found, wanted: SEGMENT }.at(at));
            return None;
        }
        let table = view.bytes("table of program headers", at, count.saturating_mul(SEGMENT))?;
        let mut segments = Self::default();
        for header in table.chunks_exact(reach(SEGMENT)) {
            let fields = Fields(header);
            let kind = fields.u32(0)?;
            let load = Load { at: fields.u64(8)?, address: fields.u64(16)?, len: fields.u64(32)? };
            match kind {
                // A file cut short may have lost what nobody reads here: the loader would miss it.
                PT_LOAD if load.len > 0 && view.contains("loaded segment", load.at, load.len) => {
                    segments.loads.push(load);
                }
                PT_DYNAMIC if load.len > 0 => segments.dynamic = Some((load.at, load.len)),
                _ => {}
            }
        }
        if let Some((at, _)) = segments.dynamic {
            let holds = |load: &&Load| load.at <= at && at.saturating_sub(load.at) < load.len;
            let small = segments.loads.iter().filter(|load| load.len <= MAX_KEPT_SEGMENT).find(holds);
            view.likely.extend(small.map(|load| (load.at, load.len)));
        }
        Some(segments)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// The offset in the file of an address, and how much of its segment follows.
    pub(super) fn offset(&self, address: u64) -> Option<Range> {
        self.loads.iter().find_map(|load| {
            let within = address.checked_sub(load.address).filter(|within| *within < load.len)?;
            Some((load.at.saturating_add(within), load.len.saturating_sub(within)))
        })
    }
}
