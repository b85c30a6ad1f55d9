//! Host ELF files.

use super::fields::Fields;

/// What a host ELF file needs and is. Of files other than ELF64 little-endian, `machine` and `object_type` alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElfFacts {
    /// `e_machine`: 183 for aarch64, 62 for x86-64.
    pub machine: u16,
    /// `e_type`: 1 relocatable, 2 program, 3 shared object.
    pub object_type: u16,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// `DT_NEEDED`, in file order.
    pub needed: Vec<String>,
    /// `DT_RUNPATH`, or `DT_RPATH` where there is none, split at `:`.
    pub runpath: Vec<String>,
    /// Highest `GLIBC_` version needed.
    pub glibc: Option<String>,
    /// Highest `GLIBCXX_` version needed.
    pub glibcxx: Option<String>,
    /// Highest `CXXABI_` version needed.
    pub cxxabi: Option<String>,
    /// Number of `.nvFatBinSegment` wrappers, 24 bytes each.
    pub registered_fatbins: u64,
}

/// Sections that have bytes in the file.
#[derive(Debug, Default)]
pub(super) struct Sections;

impl Sections {
    /// The section that an offset lies in.
    pub(super) fn index_at(&self, _at: u64) -> Option<usize> {
        None
    }

    /// Its name.
    pub(super) fn name(&self, _index: usize) -> String {
        String::new()
    }
}

pub(super) fn quick(front: &[u8]) -> Option<ElfFacts> {
    let fields = Fields(front);
    (fields.array(0)? == *b"\x7fELF").then_some(())?;
    let field = |at| {
        let bytes = fields.array(at)?;
        Some(if fields.u8(5)? == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    Some(ElfFacts { object_type: field(16)?, machine: field(18)?, ..ElfFacts::default() })
}
