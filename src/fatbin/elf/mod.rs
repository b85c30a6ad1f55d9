//! Host ELF files: what they need, and which section an offset lies in. ELF64 little-endian, as on Jetson and x86-64.

mod dynamic;
mod header;
mod sections;
mod versions;

pub(super) use header::{Header, Identity};
pub(super) use sections::{Section, Sections, table};
pub(super) use versions::Harvest;

use super::view::View;

/// What a host ELF file is and needs. Of files other than ELF64 little-endian, `machine` and `object_type` alone.
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
    /// Highest `GLIBC_` version needed, such as `2.28`; versions that are no numbers do not count.
    pub glibc: Option<String>,
    /// Highest `GLIBCXX_` version needed, such as `3.4.22`.
    pub glibcxx: Option<String>,
    /// Highest `CXXABI_` version needed, such as `1.3.9`.
    pub cxxabi: Option<String>,
    /// Number of `.nvFatBinSegment` wrappers: the size of that section in units of 24 bytes. 0 without section table.
    pub registered_fatbins: u64,
}

/// Bytes before the section table that are kept with it, since the names of sections nearly always stand there.
const BEFORE_SECTIONS: u64 = 1 << 16;

/// Reads all that is known so far. Complete where `view.wanted` and `view.harvest` stay empty.
///
/// Needed libraries and versions come by the program headers, as for the dynamic linker; by sections only where there
/// are none. Sections are needed for names, and for the number of wrappers.
pub(super) fn read(view: &mut View<'_>, harvest: &Harvest) -> (ElfFacts, Sections) {
    let mut facts = ElfFacts::default();
    let Some(header) = view.bytes("ELF header", 0, header::LEN).and_then(Header::parse) else {
        return (facts, Sections::default());
    };
    facts.machine = header.identity.machine;
    facts.object_type = header.identity.object_type;

    if let Some((at, mut len)) = header.section_table() {
        if header.sections == 0 {
            // Their number stands in the table itself.
            len = (sections::MAX_SECTIONS.saturating_mul(header::SECTION)).min(view.size.saturating_sub(at));
        }
        let before = at.min(BEFORE_SECTIONS);
        view.likely.push((at.saturating_sub(before), len.saturating_add(before)));
    }
    let sections = Sections::read(view, &header);
    facts.registered_fatbins = sections.wrappers(view);

    if let Some(segments) = header::Segments::read(view, &header)
        && let Some(dynamic) = dynamic::Dynamic::read(view, &segments, &sections)
    {
        let names = &dynamic.strings;
        facts.soname = dynamic.soname.and_then(|at| names.text(view, at));
        facts.needed = dynamic.needed.iter().filter_map(|at| names.text(view, *at)).collect();
        let runpath = dynamic.runpath.or(dynamic.rpath).and_then(|at| names.text(view, at));
        let folders = runpath.iter().flat_map(|path| path.split(':')).filter(|folder| !folder.is_empty());
        facts.runpath = folders.map(str::to_owned).collect();
        let versions = versions::read(view, &dynamic, harvest);
        facts.glibc = versions.highest("GLIBC_");
        facts.glibcxx = versions.highest("GLIBCXX_");
        facts.cxxabi = versions.highest("CXXABI_");
    }
    (facts, sections)
}
