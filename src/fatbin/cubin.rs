//! Cubins outside fatbinaries: what they were built for.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::elf::{self, Header, Section};
use super::fields::Fields;
use super::view::View;
use super::{ComputeCapability, GpuCode, Suffix, Target};

/// Length of an ELF64 header.
pub(super) const HEADER: usize = 64;
/// `EM_CUDA`.
const EM_CUDA: u16 = 190;
/// `EI_OSABI` of CUDA up to 12.x for SM below 100.
const OLD_ABI: u8 = 0x33;
/// `EI_OSABI` of CUDA 12.8 and later for SM from 100 on, and of CUDA 13 for all.
const NEW_ABI: u8 = 0x41;
/// Below, hand-made cubins of cuBLAS 12.0 set the bit of the suffix without having one.
const FIRST_WITH_SUFFIX: u16 = 90;

/// Reads what a cubin was built for out of its ELF header. `None` where that is no cubin's.
///
/// Of the new ABI, the header knows neither the suffix `f` nor, from CUDA 13 on, `a`: [`read`] does.
pub(super) fn from_header(header: &[u8]) -> Option<GpuCode> {
    target_in_header(header).map(GpuCode::Cubin)
}

fn target_in_header(header: &[u8]) -> Option<Target> {
    let fields = Fields(header);
    let magic = fields.array(0)? == [0x7f, b'E', b'L', b'F', 2, 1, 1];
    if !magic || fields.u16(18)? != EM_CUDA {
        return None;
    }
    let [first, second, _, _] = fields.array::<4>(48)?;
    let flags = fields.u32(48)?;
    let (sm, exact) = match fields.u8(7)? {
        OLD_ABI => (u16::from(first), flags & 0x800 != 0 && u16::from(first) >= FIRST_WITH_SUFFIX),
        NEW_ABI => (u16::from(second), flags & 0x8 != 0),
        _ => return None,
    };
    let suffix = if exact { Suffix::Exact } else { Suffix::Portable };
    Some(Target { capability: ComputeCapability::from_sm(sm), suffix })
}

/// Sections of a cubin that are read for its suffix; real cubins have two.
const MAX_READ: usize = 64;
/// Bytes of such a section; real ones have some hundred.
const MAX_LEN: u64 = 1 << 16;
const SHT_NOTE: u32 = 7;
/// `.nv.compat`.
const SHT_CUDA_COMPAT: u32 = 0x7000_0086;
/// Attribute of `.nv.compat` that stands for the suffix `a`.
const COMPAT_EXACT: u8 = 9;

static ARCH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("-arch"));

/// Reads what a loose cubin was built for, suffix included. `None` where the file is no cubin.
///
/// Of the new ABI, the suffix `f` stands in the tool note alone, as ptxas's command line, and `a` in `.nv.compat` too.
pub(super) fn read(view: &mut View<'_>) -> Option<GpuCode> {
    let header = view.bytes("ELF header", 0, HEADER as u64)?;
    let mut target = target_in_header(header)?;
    if Fields(header).u8(7)? == OLD_ABI {
        return Some(GpuCode::Cubin(target));
    }
    let header = Header::parse(header)?;
    if let Some((at, len)) = header.section_table() {
        view.likely.push((at, len));
    }
    let (sections, _) = elf::table(view, &header).unwrap_or_default();
    let is_read =
        |section: &&Section| matches!(section.kind, SHT_NOTE | SHT_CUDA_COMPAT) && section.len <= MAX_LEN;
    let mut from_note = None;
    for section in sections.iter().filter(is_read).take(MAX_READ) {
        let Some(body) = view.bytes("section of a cubin", section.at, section.len) else { continue };
        if section.kind == SHT_NOTE {
            from_note = from_note.or_else(|| target_in_note(body, target.capability));
        } else if compat_is_exact(Fields(body)) {
            target.suffix = Suffix::Exact;
        }
    }
    Some(GpuCode::Cubin(from_note.unwrap_or(target)))
}

/// Finds ptxas's option `-arch sm_110f`, for the SM that the header names.
fn target_in_note(note: &[u8], capability: ComputeCapability) -> Option<Target> {
    ARCH.find_iter(note).find_map(|at| {
        let value = note.get(at.saturating_add(ARCH.needle().len())..)?;
        let value = value.trim_ascii_start();
        let value = value.strip_prefix(b"=").unwrap_or(value);
        let name = value.strip_prefix(b"sm_").or_else(|| value.strip_prefix(b"compute_"))?;
        let len = name.iter().take_while(|byte| byte.is_ascii_alphanumeric()).take(8).count();
        let target: Target = std::str::from_utf8(name.get(..len)?).ok()?.parse().ok()?;
        (target.capability == capability).then_some(target)
    })
}

/// Walks `.nv.compat`: `u8` format, `u8` attribute, `u16` value, of format 4 the length of what follows.
fn compat_is_exact(mut rest: Fields<'_>) -> bool {
    while let Some([format, attribute, value, _]) = rest.array(0) {
        if attribute == COMPAT_EXACT && value == 1 {
            return true;
        }
        let body = if format == 4 { usize::from(value) } else { 0 };
        let Some(next) = rest.from(body.saturating_add(4)) else { break };
        rest = next;
    }
    false
}
