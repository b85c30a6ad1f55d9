//! Headers: of a fatbinary, of its entries, and of the images in a concatenated entry.

use super::fields::{Fields, reach};
use super::{ComputeCapability, ErrorKind, GpuCode, PtxIsa, Suffix, Target};

/// `50 ed 55 ba`, 0xBA55ED50.
pub(super) const MAGIC: [u8; 4] = [0x50, 0xed, 0x55, 0xba];
/// Length of a fatbinary's header; other lengths are no fatbinary for cuobjdump either.
pub(super) const FATBIN_HEADER: usize = 16;
/// Length of the fixed part of an entry's header.
pub(super) const ENTRY_HEADER: usize = 64;
/// Longest entry header that is read. Real ones have up to 128 bytes, concatenated entries a few thousand.
const MAX_ENTRY_HEADER: u32 = 1 << 16;
/// SM numbers from here on are damage; the newest real ones have three digits.
const MAX_SM: u32 = 10_000;
/// No LZ4 block grows more.
const MAX_LZ4_RATIO: u64 = 255;
/// No zstd frame and no other stream seen grows more; the format's own limit is one block of 128 KiB from 4 bytes.
const MAX_RATIO: u64 = 1 << 15;

const KIND_PTX: u16 = 0x01;
const KIND_CUBIN: u16 = 0x02;
const KIND_LTO_IR: u16 = 0x08;
const KIND_RELOCATABLE_PTX: u16 = 0x40;
const KIND_TILE_IR: u16 = 0x80;
/// A container of several images.
pub(super) const KIND_CONCATENATED: u16 = 0x100;

const FLAG_DEBUG: u64 = 0x2;
const FLAG_EXACT: u64 = 0x10_0000;
const FLAG_FAMILY: u64 = 0x20_0000;
const FLAGS_COMPRESSED: u64 = 0xf000;

/// How a payload is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// An old LZ77.
    Lz77,
    /// One LZ4 block.
    Lz4,
    /// An LZ4 frame.
    Lz4Frame,
    /// One zstd frame.
    Zstd,
}

impl Compression {
    fn of(flags: u64) -> Option<Self> {
        [(0x1000, Self::Lz77), (0x2000, Self::Lz4), (0x4000, Self::Lz4Frame), (0x8000, Self::Zstd)]
            .into_iter()
            .find_map(|(bit, compression)| (flags & bit != 0).then_some(compression))
    }
}

/// One image of a fatbinary, as its header describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Kind, target and, for PTX, ISA version.
    pub code: GpuCode,
    /// Major and minor version: of the PTX ISA for PTX, of the ABI and such for others.
    pub version: (u16, u16),
    /// How the payload is compressed; `None` is as it is.
    pub compression: Option<Compression>,
    /// Bytes stored in the fatbinary, padded.
    pub stored: u64,
    /// Bytes after decompression, as the header claims; nothing is allocated by it.
    pub size: u64,
    /// Built with debug information.
    pub debug: bool,
    /// Identifier, where the packer wrote one.
    pub identifier: Option<String>,
    /// What the claimed size exceeds, where no stream of that length can yield it.
    pub bomb: Option<ErrorKind>,
}

/// Reads the length of the entries out of a fatbinary's header of 16 bytes.
///
/// Layout: magic `u32`, version `u16` (1; not checked, as cuobjdump does not), header length `u16` (16), length of
/// the entries `u64`. `None` where magic or header length differ: that is no fatbinary.
pub(super) fn fatbin_length(header: &[u8]) -> Option<u64> {
    let fields = Fields(header);
    let matches = fields.array(0)? == MAGIC && usize::from(fields.u16(6)?) == FATBIN_HEADER;
    matches.then(|| fields.u64(8)).flatten()
}

/// The fixed part of an entry's header, checked against what is left of the fatbinary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// Kind of the entry.
    pub(super) kind: u16,
    /// Length of the header with its extension.
    pub(super) header: u64,
    /// Length of the payload.
    pub(super) stored: u64,
}

impl Head {
    /// Reads and checks the 64 fixed bytes. `left` is what remains of the fatbinary, this entry included.
    pub(super) fn parse(bytes: &[u8], left: u64) -> Result<Self, ErrorKind> {
        let cut = ErrorKind::EntryCut { left };
        let fields = Fields(bytes);
        let read =
            || Some((fields.u16(0)?, fields.u32(4)?, fields.u64(8)?, fields.u32(16)?, fields.u32(28)?));
        let (kind, header, stored, compressed, sm) = read().ok_or(cut)?;
        if kind == 0 {
            return Err(ErrorKind::EntryKind);
        }
        if !(64..=MAX_ENTRY_HEADER).contains(&header) || header % 8 != 0 {
            return Err(ErrorKind::EntryHeaderLength { found: header });
        }
        if sm >= MAX_SM {
            return Err(ErrorKind::EntrySm { found: sm });
        }
        let header = u64::from(header);
        let room = left.checked_sub(header).ok_or(ErrorKind::EntryPayload { found: stored, left })?;
        if stored % 8 != 0 || stored > room {
            return Err(ErrorKind::EntryPayload { found: stored, left: room });
        }
        if u64::from(compressed) > stored {
            return Err(ErrorKind::EntryCompressed { found: compressed, stored });
        }
        Ok(Self { kind, header, stored })
    }
}

/// Reads the images of one entry, whose header is at hand as a whole, and hands each to `take`.
///
/// That is one image, or those in the directory of a concatenated entry; of the latter none is handed on where the
/// directory is damaged.
pub(super) fn images(header: &[u8], mut take: impl FnMut(Entry)) -> Result<(), ErrorKind> {
    if Fields(header).u16(0) != Some(KIND_CONCATENATED) {
        if let Some(entry) = describe(header, 0) {
            take(entry);
        }
        return Ok(());
    }
    directory(header, |_| ())?;
    directory(header, take)
}

/// Walks the directory of a concatenated entry: at the extension's offset `u32` count, `u32` length of directory with
/// these 8 bytes, then headers like an entry's, whose own length follows from their identifier and extension.
fn directory(header: &[u8], mut take: impl FnMut(Entry)) -> Result<(), ErrorKind> {
    let fields = Fields(header);
    let flags = fields.u64(40).unwrap_or(0);
    let offset = fields.u32(20).unwrap_or(0);
    let start = reach(offset.into());
    let count = fields.u32(start).unwrap_or(0);
    let length = fields.u32(start.saturating_add(4)).unwrap_or(0);
    let bad = ErrorKind::Directory { count, length, offset, header: header.len() as u64 };
    let directory = fields.range(start, reach(length.into())).ok_or(bad)?;
    if start < ENTRY_HEADER || count > length / 64 {
        return Err(bad);
    }
    let mut rest = Fields(directory).from(8).ok_or(bad)?;
    for index in 0..count {
        let kind = rest.u16(0).ok_or(bad)?;
        let sm = rest.u32(28).ok_or(bad)?;
        let astray = ErrorKind::DirectoryImage { index, kind, sm };
        let own = own_length(rest)
            .filter(|_| kind != KIND_CONCATENATED && kind != 0 && sm < MAX_SM)
            .ok_or(astray)?;
        let image = rest.range(0, own).ok_or(astray)?;
        take(describe(image, flags).ok_or(astray)?);
        rest = rest.from(own).ok_or(astray)?;
    }
    Ok(())
}

/// Length of a header in the directory of a concatenated entry, which it does not state itself.
fn own_length(header: Fields<'_>) -> Option<usize> {
    // Texts end with a NUL and are padded to 8.
    let padded = |end: u64| end.checked_add(8).map(|end| end & !7);
    let (name, name_len) = (u64::from(header.u32(32)?), u64::from(header.u32(36)?));
    let mut length = ENTRY_HEADER as u64;
    if name != 0 {
        length = length.max(padded(name.checked_add(name_len)?)?);
    }
    let extension = header.u32(20)?;
    if extension != 0 {
        let extension = header.from(reach(extension.into()))?;
        let end = u64::from(extension.u32(0)?).checked_add(extension.u32(4)?.into())?;
        length = length.max(padded(end)?);
    }
    Some(reach(length))
}

/// Describes one image from its header; `outer` are the flags of the concatenated entry that it is in.
///
/// Layout: see `docs/fatbin.md`. `None` where the header is shorter than 64 bytes or its SM number past 16 bits.
fn describe(header: &[u8], outer: u64) -> Option<Entry> {
    let fields = Fields(header);
    let kind = fields.u16(0)?;
    let stored = fields.u64(8)?;
    let compressed = u64::from(fields.u32(16)?);
    let isa = PtxIsa { major: fields.u16(26)?, minor: fields.u16(24)? };
    let sm = u16::try_from(fields.u32(28)?).ok()?;
    let flags = fields.u64(40)?;
    let uncompressed = fields.u64(56)?;
    let suffix = match flags {
        flags if flags & FLAG_EXACT != 0 => Suffix::Exact,
        flags if flags & FLAG_FAMILY != 0 => Suffix::Family,
        _ => Suffix::Portable,
    };
    let target = Target { capability: ComputeCapability::from_sm(sm), suffix };
    let code = match kind {
        KIND_PTX => GpuCode::Ptx(target, isa),
        KIND_CUBIN => GpuCode::Cubin(target),
        KIND_LTO_IR => GpuCode::LtoIr(target),
        KIND_RELOCATABLE_PTX => GpuCode::RelocatablePtx(target, isa),
        KIND_TILE_IR => GpuCode::TileIr(target),
        other => GpuCode::Other(other, target),
    };
    let compression = Compression::of(flags | outer);
    let itself_compressed = flags & FLAGS_COMPRESSED != 0;
    let ratio = if compression == Some(Compression::Lz4) { MAX_LZ4_RATIO } else { MAX_RATIO };
    let most = compressed.max(1).saturating_mul(ratio);
    let bomb = (itself_compressed && uncompressed > most).then_some(ErrorKind::EntryBomb {
        claimed: uncompressed,
        compressed,
        most,
    });
    let (name, name_len) = (reach(fields.u32(32)?.into()), reach(fields.u32(36)?.into()));
    let identifier = (name >= ENTRY_HEADER)
        .then(|| fields.range(name, name_len))
        .flatten()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Some(Entry {
        code,
        version: (isa.major, isa.minor),
        compression,
        stored,
        size: if itself_compressed { uncompressed } else { stored },
        debug: flags & FLAG_DEBUG != 0,
        identifier,
        bomb,
    })
}
