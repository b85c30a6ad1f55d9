//! What to use or do instead.

use super::cuda_runtime::{Need, serves};
use super::tables::TABLES;
use super::{Case, DeviceProfile, Policy, Version, gpu_code};

/// What helps against a CUDA that is too new.
pub(super) fn for_cuda(case: &Case<'_>, need: Option<Need>) -> String {
    let mut ways = Vec::new();
    if let Some((package, cuda)) = need.and_then(|need| compat_package(case.device, need)) {
        ways.push(format!(
            "install {package} on the devices and state cuda_compat = \"{cuda}\" for them in devices.toml"
        ));
    }
    ways.push(format!("look for a build for CUDA {}", label(case)));
    ways.extend(other_release(case));
    ways.join("; or ")
}

/// What helps against a CUDA that is too new by what a name or a pin says.
pub(super) fn for_release(device: &DeviceProfile, policy: &Policy, need: Need) -> String {
    let mut ways = Vec::new();
    if let Some((package, cuda)) = compat_package(device, need) {
        ways.push(format!(
            "install {package} on the devices and state cuda_compat = \"{cuda}\" for them in devices.toml"
        ));
    }
    let (major, minor) = super::driver_cuda(device);
    ways.push(format!("look for a build for CUDA {major}.{minor} or older (+cu{major}{minor})"));
    let newer =
        policy.other_drivers(device).find(|other| serves(super::driver_cuda(other), other.stack, need));
    ways.extend(newer.map(|other| format!("its CUDA is served with {}", release(other))));
    ways.join("; or ")
}

/// What helps against kernels for other chips.
pub(super) fn for_kernels(case: &Case<'_>) -> String {
    let mut ways = vec![format!(
        "look for a build for sm_{}: {}",
        case.device.compute_capability.sm(),
        where_builds_are(case)
    )];
    ways.extend(other_release(case));
    ways.join("; or ")
}

/// What helps against PTX that is too new.
pub(super) fn for_ptx(case: &Case<'_>, found: &str) -> String {
    let mut ways =
        vec![format!("look for a build for CUDA {}, or with machine code for the device", label(case))];
    let compat = compat_rows(case.device).find_map(|(package, cuda)| {
        let isa = TABLES.cuda.ptx_isa(cuda)?;
        let enough = found.parse().is_ok_and(|found| isa >= found);
        enough.then(|| (name_of(package, cuda), cuda))
    });
    if let Some((package, cuda)) = compat {
        ways.push(format!(
            "install {package} on the devices and state cuda_compat = \"{cuda}\" for them in devices.toml"
        ));
    }
    ways.extend(other_release(case));
    ways.join("; or ")
}

/// What helps against symbol versions that are too new.
pub(super) fn for_system(case: &Case<'_>, name: &str, needed: &Version) -> String {
    let soc = &case.device.soc;
    let newer = case.policy.devices().find(|other| {
        let has = if name == "glibc" { &other.glibc } else { &other.glibcxx };
        other.soc == *soc && has >= needed
    });
    match newer {
        Some(newer) => format!(
            "look for an older build, or for one made on {}; or move the device to {}",
            case.device.os.as_deref().unwrap_or("the same system"),
            release(newer)
        ),
        None => format!(
            "look for an older build, or for one made on {}",
            case.device.os.as_deref().unwrap_or("the same system")
        ),
    }
}

/// Where builds for the device are.
pub(super) fn where_builds_are(case: &Case<'_>) -> String {
    let (major, minor) = case.driver_cuda;
    let jetpack = case.device.jetpack.as_deref().and_then(|version| version.split('.').next());
    match jetpack {
        Some(jetpack) if case.device.stack == super::Stack::TegraNvgpu => {
            format!("the Jetson indexes name theirs jp{jetpack}/cu{major}{minor}")
        }
        _ => format!("builds for Arm servers are labelled +cu{major}{minor} or of an earlier CUDA {major}"),
    }
}

/// `12.6 or older (+cu126)`.
fn label(case: &Case<'_>) -> String {
    let (major, minor) = case.driver_cuda;
    format!("{major}.{minor} or older (+cu{major}{minor})")
}

/// Packages that raise a device's CUDA, with what they bring, oldest first.
fn compat_rows(device: &DeviceProfile) -> impl Iterator<Item = (&'static str, &'static Version)> {
    let jetpack = device.jetpack.clone().unwrap_or_default();
    let soc = device.soc.clone();
    TABLES
        .jetpack
        .cuda_compat
        .iter()
        .filter(move |row| {
            jetpack
                .strip_prefix(row.jetpack.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                && (row.socs.is_empty() || row.socs.contains(&soc))
        })
        .flat_map(|row| row.allowed.iter().map(|cuda| (row.package.as_str(), cuda)))
}

/// The package that brings the first CUDA that suffices.
fn compat_package(device: &DeviceProfile, need: Need) -> Option<(String, &'static Version)> {
    let wanted = (need.major, need.minor.unwrap_or(0));
    compat_rows(device)
        .find(|(_, cuda)| cuda.major() == need.major && cuda.release() >= wanted)
        .map(|(package, cuda)| (name_of(package, cuda), cuda))
}

fn name_of(package: &str, cuda: &Version) -> String {
    package.replace("{major}", &cuda.major().to_string()).replace("{minor}", &cuda.minor().to_string())
}

/// Another release for the same chip on which the wheel's GPU code runs.
fn other_release(case: &Case<'_>) -> Option<String> {
    let facts = case.facts;
    let policy = case.policy;
    let fits = |other: &&DeviceProfile| {
        let gpu = policy.gpu(other);
        let driver = super::driver_cuda(other);
        case.cuda_need.is_none_or(|need| serves(driver, other.stack, need))
            && gpu_code::assess(facts, &gpu, &policy.rules.thresholds, driver.0)
                .is_none_or(|outcome| outcome.runs <= gpu_code::Runs::ByJit)
    };
    let other = policy.other_drivers(case.device).find(fits)?;
    Some(format!("its GPU code runs with {}", release(other)))
}

/// `JetPack 7.2 (profile orin-jp7.2)`.
fn release(device: &DeviceProfile) -> String {
    match &device.jetpack {
        Some(jetpack) => format!("JetPack {jetpack} (profile {})", device.id),
        None => format!("a driver of CUDA {} (profile {})", device.driver_cuda, device.id),
    }
}
