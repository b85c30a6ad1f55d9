//! In which way a file has to do with a GPU.

use super::{Facts, GpuClass, Member, MemberKind};
use crate::fatbin::GpuCode;

/// Beginnings of the names of CUDA's own shared libraries. What follows is no letter: `libcudart.so.12`, and
/// `libcudart-3a5b7c9d.so.12` as `auditwheel` names its copies.
const CUDA_LIBRARIES: [&str; 31] = [
    "libcuda",
    "libcudart",
    "libcudadevrt",
    "libcublas",
    "libcublasLt",
    "libcudnn",
    "libcudnn_",
    "libcudss",
    "libcufft",
    "libcufftw",
    "libcufile",
    "libcupti",
    "libcurand",
    "libcusolver",
    "libcusolverMg",
    "libcusparse",
    "libcusparseLt",
    "libnccl",
    "libnpp",
    "libnvblas",
    "libnvinfer",
    "libnvinfer_",
    "libnvjpeg",
    "libnvJitLink",
    "libnvonnxparser",
    "libnvptxcompiler",
    "libnvrtc",
    "libnvshmem",
    "libnvToolsExt",
    "libnvtx",
    "libnvvm",
];

/// Folders whose CUDA sources are no part of what the project runs: templates of code generators, headers, tests.
const ASIDE: [&str; 6] = ["templates", "include", "test", "tests", "testing", "examples"];

/// Whether a path is that of a CUDA source file.
pub(super) fn is_cuda_source(path: &str) -> bool {
    path.ends_with(".cu") || path.ends_with(".cuh")
}

/// Whether a path is that of a CUDA source file which the project compiles on the device.
fn is_compiled_source(path: &str) -> bool {
    path.ends_with(".cu") && !path.split('/').any(|part| ASIDE.contains(&part))
}

/// The class of a wheel with those members.
///
/// Loose PTX counts as source, not as kernels: it is a text that the device compiles, and the two surveyed wheels that
/// have some use it so.
pub(super) fn classify<'a>(facts: &Facts, mut paths: impl Iterator<Item = &'a str>) -> GpuClass {
    let ptx = |member: &Member| member.kind == MemberKind::Ptx;
    if facts.members.iter().any(has_kernels) {
        GpuClass::Kernels
    } else if !facts.compilers.is_empty() {
        GpuClass::Compiler
    } else if paths.any(is_compiled_source) || facts.members.iter().any(ptx) {
        GpuClass::Source
    } else if facts.members.iter().any(is_runtime) {
        GpuClass::Runtime
    } else {
        GpuClass::None
    }
}

/// The class of a loose file.
pub(super) fn classify_loose(facts: &Facts) -> GpuClass {
    let code = |member: &Member| !member.images.is_empty() || !member.bare_cubins.is_empty();
    match classify(facts, std::iter::once(facts.file.as_str())) {
        GpuClass::Source if facts.cuda_sources == 0 => GpuClass::Kernels,
        GpuClass::Runtime | GpuClass::None if facts.members.iter().any(code) => GpuClass::Kernels,
        class => class,
    }
}

/// Whether a member holds GPU code that it loads itself.
///
/// Not such code are: `.nv_fatbin` without wrappers, where the compiler left an empty stub; `__nv_relfatbin` and LTO IR,
/// which are input of a linker, as archives are; and the instruments of CUPTI, a profiler that patches them into others'
/// kernels.
fn has_kernels(member: &Member) -> bool {
    match member.kind {
        MemberKind::Cubin | MemberKind::Fatbin => true,
        MemberKind::Archive | MemberKind::Ptx => false,
        MemberKind::Elf | MemberKind::Other => member.fatbins.iter().any(|row| {
            let linked = row.images.iter().all(|image| matches!(image, GpuCode::LtoIr(_)));
            !linked
                && match row.section.as_deref() {
                    Some("__nv_relfatbin") => false,
                    Some(".nv_fatbin") => member.registered_fatbins > 0,
                    _ => !member.path.contains("cupti"),
                }
        }),
    }
}

/// Whether a member is a CUDA library, or links one.
fn is_runtime(member: &Member) -> bool {
    let own = member.path.rsplit('/').next().unwrap_or_default();
    let is_library = matches!(member.kind, MemberKind::Elf | MemberKind::Archive);
    is_library
        && (is_cuda_library(own)
            || member.soname.as_deref().is_some_and(is_cuda_library)
            || member.needed.iter().any(|soname| is_cuda_library(soname)))
}

/// Whether a file name or soname is that of one of CUDA's own libraries.
pub(super) fn is_cuda_library(name: &str) -> bool {
    CUDA_LIBRARIES.iter().any(|library| {
        name.strip_prefix(library).is_some_and(|rest| {
            // NPP, and the parts of cuDNN and TensorRT, are families of libraries.
            matches!(*library, "libnpp" | "libcudnn_" | "libnvinfer_")
                || !rest.starts_with(char::is_alphanumeric)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_libraries_of_cuda() {
        for name in [
            "libcuda.so.1",
            "libcudart.so.12",
            "libcudart-3a5b7c9d.so.12.6.77",
            "libcublasLt.so.13",
            "libnppif.so.12",
            "libcudnn_engines_precompiled.so.9",
            "libnvrtc-builtins.so.13.0",
            "libcudart_static.a",
        ] {
            assert!(is_cuda_library(name), "{name}");
        }
        for name in ["libtorch_cuda.so", "libc.so.6", "libcudacxx.so", "libnccltest.so", "libcudf.so"] {
            assert!(!is_cuda_library(name), "{name}");
        }
    }

    #[test]
    fn templates_and_headers_are_no_sources() {
        assert!(is_compiled_source("flashinfer/data/csrc/norm.cu"));
        assert!(!is_compiled_source("torchgen/packaged/ATen/templates/UfuncCUDA.cu"));
        assert!(!is_compiled_source("torch/include/ATen/cuda/Atomic.cuh"));
    }
}
