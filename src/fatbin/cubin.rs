//! Cubins outside fatbinaries: what they were built for.

use super::fields::{Fields, reach};
use super::window::Windows;
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
