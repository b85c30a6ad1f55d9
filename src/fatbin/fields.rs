//! Little-endian fields of a header, by their offset; out of reach is `None`, never a panic.

/// Bytes of a header, of which fields are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// `N` bytes at an offset.
    pub(super) fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    /// A byte.
    pub(super) fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    /// A 16-bit field.
    pub(super) fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    /// A 32-bit field.
    pub(super) fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// A 64-bit field.
    pub(super) fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// The bytes from an offset on.
    pub(super) fn from(self, at: usize) -> Option<Self> {
        self.0.get(at..).map(Self)
    }

    /// A range of bytes, by offset and length.
    pub(super) fn range(self, at: usize, len: usize) -> Option<&'a [u8]> {
        self.0.get(at..)?.get(..len)
    }

    /// Text up to a NUL (or to the end); what is not UTF-8 is replaced.
    pub(super) fn text(self, at: usize) -> Option<String> {
        let bytes = self.0.get(at..)?;
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
    }
}

/// A length or offset of a file as one of memory; what does not fit is out of any reach.
pub(super) fn reach(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
