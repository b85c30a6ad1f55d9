//! What is wrong with a file, and where.

use super::fields::Fields;

/// What could not be read, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {at:#x}: {kind}")]
pub struct Error {
    /// Offset in bytes from the start of the file.
    pub at: u64,
    /// What was wrong there.
    pub kind: ErrorKind,
}

/// What was wrong: what was found, and what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// The length in the fatbinary header cannot be.
    #[error("fatbinary of {found:#x} bytes, expected a multiple of 8 from 64 to {left:#x}")]
    FatbinLength {
        /// Length that the header states.
        found: u64,
        /// Bytes that the file still has.
        left: u64,
    },
    /// The file ends inside a fatbinary.
    #[error("file ends inside a fatbinary, expected {missing:#x} bytes more at least")]
    FatbinCut {
        /// Bytes that are missing at least.
        missing: u64,
    },
    /// The fatbinary ends inside the header of an entry.
    #[error("{left} bytes are left in the fatbinary, expected an entry header of 64")]
    EntryCut {
        /// Bytes that are left.
        left: u64,
    },
    /// The kind of an entry is 0.
    #[error("entry of kind 0, expected a kind from 1 on")]
    EntryKind,
    /// The header length of an entry cannot be.
    #[error("entry header of {found:#x} bytes, expected a multiple of 8 from 0x40 to 0x10000")]
    EntryHeaderLength {
        /// Length that the header states.
        found: u32,
    },
    /// The SM number of an entry cannot be.
    #[error("entry for SM {found}, expected a number below 10000")]
    EntrySm {
        /// Number that the header states.
        found: u32,
    },
    /// The payload of an entry does not fit into the fatbinary.
    #[error("entry payload of {found:#x} bytes, expected a multiple of 8 up to {left:#x}")]
    EntryPayload {
        /// Length that the header states.
        found: u64,
        /// Bytes that the fatbinary still has.
        left: u64,
    },
    /// The compressed size of an entry is above its stored size.
    #[error("entry payload of {found:#x} compressed bytes, expected {stored:#x} at most, as stored")]
    EntryCompressed {
        /// Compressed size that the header states.
        found: u32,
        /// Bytes stored.
        stored: u64,
    },
    /// The uncompressed size of an entry is more than its compression can yield.
    #[error(
        "entry claims {claimed:#x} bytes from {compressed:#x} compressed ones, expected {most:#x} at most"
    )]
    EntryBomb {
        /// Uncompressed size that the header states.
        claimed: u64,
        /// Compressed size.
        compressed: u64,
        /// The most that the compression can yield.
        most: u64,
    },
    /// The directory of a concatenated entry does not fit into the entry's header.
    #[error(
        "directory of {count} images and {length:#x} bytes at {offset:#x} of a concatenated entry, expected it inside the header of {header:#x} bytes"
    )]
    Directory {
        /// Number of images that it states.
        count: u32,
        /// Length that it states.
        length: u32,
        /// Where in the entry it begins.
        offset: u32,
        /// Length of the entry's header.
        header: u64,
    },
    /// An image in the directory of a concatenated entry cannot be.
    #[error(
        "image {index} of a concatenated entry is of kind {kind:#x} for SM {sm} and overruns the directory or nests, expected a plain image inside it"
    )]
    DirectoryImage {
        /// Number in the directory, from 0.
        index: u32,
        /// Kind that it states.
        kind: u16,
        /// SM number that it states.
        sm: u32,
    },
    /// More of something than is kept.
    #[error("more than {limit} {what}, expected fewer")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many are kept.
        limit: usize,
    },
    /// A part of an ELF file runs past the end of the file.
    #[error("{part} ends at {end:#x}, expected it inside the file of {size:#x} bytes")]
    PastEnd {
        /// Which part.
        part: &'static str,
        /// Where it ends.
        end: u64,
        /// Size of the file.
        size: u64,
    },
    /// A number in an ELF file is above what is read.
    #[error("{what} of {found:#x}, expected {limit:#x} at most")]
    TooLarge {
        /// Which number.
        what: &'static str,
        /// What the file states.
        found: u64,
        /// What is read at most.
        limit: u64,
    },
    /// A header of an ELF file has another length than its format says.
    #[error("{what} of {found} bytes, expected {wanted}")]
    HeaderLength {
        /// Which header.
        what: &'static str,
        /// Length that the file states.
        found: u64,
        /// Length that the format says.
        wanted: u64,
    },
    /// An address or offset of an ELF file leads nowhere.
    #[error("{what} at {found:#x}, expected it inside {inside}")]
    Astray {
        /// Which address or offset.
        what: &'static str,
        /// What the file states.
        found: u64,
        /// Where it should lie.
        inside: &'static str,
    },
    /// A part of an ELF file did not come by, although the file should have it.
    #[error("{len:#x} bytes were not read, expected them in the file")]
    Unread {
        /// How many bytes.
        len: u64,
    },
    /// The content is not what the name says.
    #[error("content begins with {:02x?}, expected {wanted}", .found.0)]
    Name {
        /// First bytes.
        found: First,
        /// What the name promises.
        wanted: &'static str,
    },
}

/// The first four bytes of a file, zeros where it has fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct First(pub [u8; 4]);

impl First {
    /// Takes them from the file's front.
    pub(super) fn of(front: &[u8]) -> Self {
        Self(std::array::from_fn(|at| Fields(front).u8(at).unwrap_or(0)))
    }
}

impl ErrorKind {
    /// Joins it with its place.
    pub(super) const fn at(self, at: u64) -> Error {
        Error { at, kind: self }
    }
}
