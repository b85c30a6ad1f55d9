//! Whether an installer on the device takes the wheel by its name, and by `Requires-Python`.

use std::collections::HashSet;

use pep440_rs::{Version as ProjectVersion, VersionSpecifiers};

use super::{Case, Code, DeviceProfile, Reason};
use crate::wheel::{Facts, MemberKind, SupportedTags, TagMismatch, WheelFilename};

/// Micro releases that a Python such as `3.10` is taken to stand for: those that exist so far and some more.
const MICRO_RELEASES: u64 = 30;

/// What an installer on a device accepts, for looking up.
#[derive(Debug, Clone)]
pub(super) struct DeviceTags {
    supported: SupportedTags,
    all: HashSet<String>,
}

impl DeviceTags {
    /// The tags of a device's default Python.
    pub(super) fn of(device: &DeviceProfile) -> Self {
        let number = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let python = (number(device.python.major()), number(device.python.minor().min(MOST_MINOR)));
        let supported = SupportedTags::new(python, &device.platform_tags);
        Self { all: supported.iter().collect(), supported }
    }
}

/// A Python 3 with more minor versions than this is a site's error; tags are made for each.
const MOST_MINOR: u32 = 99;

/// Refuses a wheel built for another Python or platform, and one without a part for the device's processor.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let facts = case.facts;
    if facts.project.is_none() || facts.tags.iter().any(|tag| case.tags.all.contains(tag)) {
        judge_machine(case, reasons);
        return;
    }
    if let Ok(filename) = facts.file.parse() {
        judge_filename(&filename, case.device, case.tags, reasons);
    }
    judge_machine(case, reasons);
}

/// Refuses a file name that no installer on the device takes.
pub(super) fn judge_filename(
    filename: &WheelFilename,
    device: &DeviceProfile,
    tags: &DeviceTags,
    reasons: &mut Vec<Reason>,
) {
    let glibc = &device.glibc;
    for mismatch in tags.supported.mismatches(filename) {
        let reason = match mismatch {
            TagMismatch::Python { found, wanted } => Reason {
                code: Code::PythonTag,
                member: None,
                text: format!("built for {}; {} has Python {}", found.join(", "), device.id, device.python),
                remedy: format!(
                    "look for a {} build, or state another python for the device in devices.toml",
                    wanted.first().map_or("fitting", String::as_str)
                ),
                found,
                wanted,
            },
            TagMismatch::Platform { found, wanted } => Reason {
                code: Code::PlatformTag,
                member: None,
                text: format!(
                    "built for {}; {} takes linux_aarch64, and manylinux up to its glibc {glibc}",
                    found.join(", "),
                    device.id
                ),
                remedy: "look for an aarch64 build, or for one made for an older glibc".to_owned(),
                found,
                wanted,
            },
        };
        reasons.push(reason);
    }
}

/// Refuses a file all of whose host code is for another processor, whatever its tags say.
fn judge_machine(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    if reasons.iter().any(|reason| reason.code == Code::PlatformTag) {
        return;
    }
    let hosts = || case.facts.members.iter().filter(|member| member.kind == MemberKind::Elf);
    let machines = || hosts().filter_map(|member| member.machine.as_deref());
    if machines().next().is_none() || machines().any(|machine| machine != OTHER_MACHINE) {
        return;
    }
    reasons.push(Reason {
        code: Code::PlatformTag,
        member: hosts().next().map(|member| member.path.clone()),
        found: vec![OTHER_MACHINE.to_owned()],
        wanted: vec!["aarch64".to_owned()],
        text: format!("all its ELF files are for {OTHER_MACHINE}, whatever its tags say"),
        remedy: "look for an aarch64 build".to_owned(),
    });
}

/// The processor whose code is found in wheels that are tagged for any.
const OTHER_MACHINE: &str = "x86_64";

/// Refuses a wheel whose `Requires-Python` excludes the device's Python.
pub(super) fn judge_requires_python(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let Facts { requires_python, .. } = case.facts;
    reasons.extend(requires_python.as_deref().and_then(|text| excluded(text, case.device)));
}

/// Why `Requires-Python` excludes a device's Python. A text that is no specifier excludes nothing, as with pip.
///
/// Where the profile has two numbers, such as 3.10, any of its micro releases will do.
pub(super) fn excluded(requires_python: &str, device: &DeviceProfile) -> Option<Reason> {
    let specifiers: VersionSpecifiers = requires_python.parse().ok()?;
    let python = device.python.0.iter().map(|&number| u64::from(number));
    let admits = |micro: Option<u64>| specifiers.contains(&ProjectVersion::new(python.clone().chain(micro)));
    let admitted = match device.python.0.len() {
        0..=2 => (0..=MICRO_RELEASES).rev().any(|micro| admits(Some(micro))),
        _ => admits(None),
    };
    (!admitted).then(|| Reason {
        code: Code::RequiresPython,
        member: None,
        found: vec![requires_python.to_owned()],
        wanted: vec![device.python.to_string()],
        text: format!("Requires-Python is {requires_python}; {} has Python {}", device.id, device.python),
        remedy:
            "take an earlier version of the project, or state another python for the device in devices.toml"
                .to_owned(),
    })
}
