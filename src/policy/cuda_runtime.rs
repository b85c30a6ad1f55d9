//! Which CUDA a wheel needs, and whether the device's driver serves it.

use super::tables::TABLES;
use super::{Case, Code, DeviceProfile, Policy, Reason, Stack};
use crate::wheel::{Facts, Member, WheelFilename};

/// A CUDA release that a wheel needs; the minor version where something states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub major: u32,
    pub minor: Option<u32>,
}

impl std::fmt::Display for Need {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.minor {
            Some(minor) => write!(out, "{}.{minor}", self.major),
            None => write!(out, "{}", self.major),
        }
    }
}

/// A library's name without `lib`, and the numbers behind `.so`: `cudart` and `[11, 0]` of `libcudart.so.11.0`.
///
/// What auditwheel puts in is cut off: `libcudart-d0da41ae.so.11.8.89` and `libcudart.faf08d9a.so.13`.
fn soname_parts(soname: &str) -> Option<(&str, &str)> {
    let (stem, version) = soname.strip_prefix("lib")?.split_once(".so.")?;
    let stem = match stem.rsplit_once(['-', '.']) {
        Some((name, mangled))
            if mangled.len() == 8 && mangled.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            name
        }
        _ => stem,
    };
    Some((stem, version))
}

fn first_number(text: &str) -> Option<u32> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

/// Whether a soname begins as NVIDIA's do. Most others end here: every soname of every wheel of a page comes by.
pub(super) fn may_be_cuda(soname: &str) -> bool {
    matches!(soname.as_bytes(), [b'l', b'i', b'b', b'c', b'u', ..] | [b'l', b'i', b'b', b'n', ..])
}

/// The CUDA major version that a soname stands for, where it does.
fn soname_cuda_major(soname: &str) -> Option<u32> {
    if !may_be_cuda(soname) {
        return None;
    }
    let (stem, version) = soname_parts(soname)?;
    let table = &TABLES.cuda.soname;
    let is = |pattern: &String| match pattern.strip_suffix('*') {
        Some(start) => stem.starts_with(start),
        None => stem == pattern,
    };
    let major = || first_number(version);
    if table.cuda_major.iter().any(is) {
        return major();
    }
    let mapped = table.mapped.iter().filter(|row| row.library == stem);
    let major = mapped.clone().next().and_then(|_| major())?;
    mapped.into_iter().find(|row| row.soname_major == major).map(|row| row.cuda_major)
}

/// The newest CUDA major version whose libraries a library links.
pub(super) fn library_cuda_major(member: &Member) -> Option<u32> {
    member.needed.iter().filter_map(|soname| soname_cuda_major(soname)).max()
}

/// The CUDA release that a wheel needs, as far as it shows.
///
/// In this order: the libraries that its libraries link, where they agree; a `cu12` in the file name; a folder
/// `nvidia/cu13`; the newest PTX of the libraries with registered kernels. Libraries for several CUDA releases say nothing.
pub(super) fn need(facts: &Facts) -> Option<Need> {
    let mut majors = facts.members.iter().filter_map(library_cuda_major);
    let linked = majors.next();
    let several = linked.is_some_and(|first| majors.any(|major| major != first));
    let major = match linked {
        Some(major) if !several => Some(major),
        _ => major_in_filename(&facts.file)
            .or_else(|| facts.members.iter().filter_map(|member| major_in_folder(&member.path)).max())
            .or_else(|| if several { None } else { major_by_ptx(facts) }),
    }?;
    Some(Need { major, minor: minor(facts, major, linked.is_some()) })
}

/// `12` of `cupy_cuda12x-13.6.0-...`, of `nvidia_cublas_cu12-...` and of `torch-2.8.0+cu128-...`.
fn major_in_filename(file: &str) -> Option<u32> {
    ["cu", "cuda"].iter().find_map(|label| {
        file.match_indices(label).find_map(|(at, _)| {
            let before = file[..at].bytes().next_back();
            let digits = &file.as_bytes()[at + label.len()..];
            match (before, digits) {
                (Some(b'-' | b'_' | b'+' | b'.'), [b'1', digit, ..]) if digit.is_ascii_digit() => {
                    Some(10 + u32::from(digit - b'0'))
                }
                _ => None,
            }
        })
    })
}

/// `13` of `nvidia/cu13/lib/libcublas.so.13`.
fn major_in_folder(path: &str) -> Option<u32> {
    let (_, rest) = path.split_once("nvidia/cu")?;
    let (digits, _) = rest.split_once('/')?;
    (digits.len() == 2).then(|| first_number(digits)).flatten()
}

/// PTX ISA versions 7, 8 and 9 came with CUDA 11, 12 and 13.
fn major_by_ptx(facts: &Facts) -> Option<u32> {
    use crate::fatbin::GpuCode;
    let registered = facts.members.iter().filter(|member| member.registered_fatbins > 0);
    let codes = registered.flat_map(|member| &member.fatbins).flat_map(|row| &row.images);
    let isa = codes.filter_map(|code| match code {
        GpuCode::Ptx(_, isa) | GpuCode::RelocatablePtx(_, isa) => Some(isa.major),
        _ => None,
    });
    isa.max().map(|major| u32::from(major) + 4)
}

/// The minor version, where the wheel links CUDA and a label or pin states it: `+cu128`, `nvidia-cuda-runtime-cu12==12.8.90`.
///
/// A wheel that links no CUDA library carries its runtime inside and speaks to the driver alone; then a label does not bind.
fn minor(facts: &Facts, major: u32, links: bool) -> Option<u32> {
    if !links {
        return None;
    }
    // CUDA 10 writes its minor version into the soname.
    let exact = facts.members.iter().flat_map(|member| &member.needed).find_map(|soname| {
        let (stem, version) = soname_parts(soname)?;
        let (digits, minor) = version.split_once('.')?;
        (stem == "cudart" && digits == "10" && major == 10).then(|| first_number(minor)).flatten()
    });
    exact.or_else(|| minor_by_label(facts, major)).or_else(|| minor_by_pin(facts, major))
}

fn minor_by_label(facts: &Facts, major: u32) -> Option<u32> {
    let (_, label) = facts.version.as_deref()?.split_once('+')?;
    label.split('.').find_map(|part| {
        let digits = part.strip_prefix("cu")?.strip_prefix(major.to_string().as_str())?;
        (digits.len() == 1).then(|| first_number(digits)).flatten()
    })
}

fn minor_by_pin(facts: &Facts, major: u32) -> Option<u32> {
    let mut pins = facts.requires_dist.iter().filter_map(|requirement| pinned_release(requirement));
    pins.find(|pinned| pinned.0 == major).map(|pinned| pinned.1)
}

/// The CUDA release that a requirement of a CUDA runtime pins: 12.8 of `nvidia-cuda-runtime-cu12==12.8.90`.
fn pinned_release(requirement: &str) -> Option<(u32, u32)> {
    let (requirement, marker) = requirement.split_once(';').unwrap_or((requirement, ""));
    if marker.contains("x86_64") || marker.contains("extra") {
        return None;
    }
    let (name, version) = requirement.split_once("==")?;
    let name = name.split(['[', '(', ' ']).next()?;
    let (major, minor) = version.trim().split_once('.')?;
    let runtime = TABLES.cuda.wheel.runtime_projects.iter().any(|project| project == name);
    Some((major.parse().ok()?, first_number(minor)?)).filter(|_| runtime)
}

/// Refuses by the name and the pins what the whole wheel would be refused for.
///
/// A label's minor version does not bind alone: a wheel that carries its runtime inside may still run.
pub(super) fn judge_listing(
    filename: &WheelFilename,
    requires_dist: &[String],
    device: &DeviceProfile,
    policy: &Policy,
) -> Option<Reason> {
    let driver = super::driver_cuda(device);
    let pinned = requires_dist.iter().find_map(|requirement| pinned_release(requirement));
    let need = match pinned {
        Some((major, minor)) => Need { major, minor: Some(minor) },
        None => Need { major: major_in_filename(&filename.text)?, minor: None },
    };
    if serves(driver, device.stack, need) {
        return None;
    }
    Some(Reason {
        code: Code::CudaTooNew,
        member: None,
        found: vec![format!("CUDA {need}")],
        wanted: vec![format!("CUDA {}.{} or older", driver.0, driver.1)],
        text: format!(
            "{} CUDA {need}; the driver of {} serves up to CUDA {}.{}",
            if pinned.is_some() { "pins" } else { "its name says" },
            device.id,
            driver.0,
            driver.1
        ),
        remedy: super::remedy::for_release(device, policy, need),
    })
}

/// Whether a driver that serves CUDA `driver` runs a program of that CUDA.
///
/// On classic L4T a program's CUDA must not be newer at all; elsewhere the same major version suffices (CUDA for Tegra
/// application note; CUDA Compatibility, minor version compatibility).
pub(super) fn serves(driver: (u32, u32), stack: Stack, need: Need) -> bool {
    match need.minor {
        Some(minor) if stack == Stack::TegraNvgpu => (need.major, minor) <= driver,
        _ => need.major <= driver.0,
    }
}

/// Refuses a wheel whose CUDA is newer than what the device's driver runs.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let need = case.cuda_need;
    let device = case.device;
    let driver = case.driver_cuda;
    let no_variant = case.kernels.is_some_and(|outcome| outcome.no_variant);
    let compiler = super::compiler::too_new(case);
    if need.is_none_or(|need| serves(driver, device.stack, need)) && !no_variant && compiler.is_none() {
        return;
    }
    let (major, minor) = driver;
    let (found, member) = match (need, compiler) {
        _ if no_variant => ("a newer CUDA in each of its variants".to_owned(), None),
        (Some(need), _) if !serves(driver, device.stack, need) => {
            let links = |member: &&Member| library_cuda_major(member) == Some(need.major);
            let member = case.facts.members.iter().find(links).map(|member| member.path.clone());
            (format!("CUDA {need}"), member)
        }
        (_, compiler) => (
            format!("CUDA {}", compiler.and_then(|compiler| compiler.cuda.as_deref()).unwrap_or("unknown")),
            compiler.map(|compiler| compiler.path.clone()),
        ),
    };
    reasons.push(Reason {
        code: Code::CudaTooNew,
        member,
        text: format!("needs {found}; the driver of {} serves up to CUDA {major}.{minor}", device.id),
        found: vec![found],
        wanted: vec![format!("CUDA {major}.{minor} or older")],
        remedy: super::remedy::for_cuda(case, need),
    });
}
