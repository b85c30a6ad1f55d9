//! Whether the GPU code of a wheel runs on a device: from libraries to the wheel.
//!
//! `policies/README.md` has the rule in words, with the evidence for its thresholds.

use super::cuda_runtime::library_cuda_major;
use super::image::{Fit, Gpu};
use super::library::{self, Library, is_pool, share, units};
use super::rules::Thresholds;
use super::tables::TABLES;
use crate::fatbin::GpuCode;
use crate::wheel::{Facts, Member, MemberKind};

pub(super) use super::library::Runs;

/// What assessing a wheel's GPU code for a device yields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    /// How far it runs.
    pub runs: Runs,
    /// How far it would run if the driver compiled any PTX.
    pub with_any_ptx: Runs,
    /// All its variants for several CUDA releases are for newer ones than the driver's; then `runs` is `No`.
    pub no_variant: bool,
    /// It runs by machine code for older chips of the same major version, on an integrated chip.
    pub same_major: bool,
}

/// Which members decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    /// Libraries with fatbinaries.
    Libraries,
    /// Loose cubins and fatbinaries.
    Loose,
    /// None: there are no kernels.
    Nothing,
}

fn judged(facts: &Facts) -> Judged {
    let is_ignored = |member: &Member| {
        let path = &member.path;
        is_pool(member) && TABLES.cuda.wheel.ignored_pools.iter().any(|part| path.contains(part.as_str()))
    };
    let library = |member: &Member| member.kind == MemberKind::Elf && units(member).next().is_some();
    if facts.members.iter().any(|member| library(member) && !is_ignored(member)) {
        return Judged::Libraries;
    }
    let loose = |member: &Member| is_loose(member, facts) && has_loose_code(member);
    if facts.members.iter().any(loose) { Judged::Loose } else { Judged::Nothing }
}

/// Whether a member is GPU code by itself. A PTX file is only where it is the whole file: in wheels they are test data and
/// sources.
fn is_loose(member: &Member, facts: &Facts) -> bool {
    match member.kind {
        MemberKind::Cubin | MemberKind::Fatbin | MemberKind::Other => true,
        MemberKind::Ptx => facts.project.is_none(),
        MemberKind::Elf | MemberKind::Archive => false,
    }
}

fn has_loose_code(member: &Member) -> bool {
    units(member).next().is_some() || !member.bare_cubins.is_empty()
}

/// Assesses the GPU code of a file; none if it has no kernels.
pub(super) fn assess(
    facts: &Facts,
    gpu: &Gpu<'_>,
    thresholds: &Thresholds,
    driver_major: u32,
) -> Option<Outcome> {
    match judged(facts) {
        Judged::Nothing => None,
        Judged::Loose => Some(assess_loose(facts, gpu)),
        Judged::Libraries => {
            let members = facts.members.iter().filter(|member| member.kind == MemberKind::Elf);
            let libraries: Vec<_> =
                members.filter_map(|member| library::assess(member, gpu, thresholds)).collect();
            Some(assess_wheel(&libraries, thresholds, driver_major))
        }
    }
}

/// Loose code is loaded by name, one file for one chip: it runs if any does.
fn assess_loose(facts: &Facts, gpu: &Gpu<'_>) -> Outcome {
    let mut best = Fit::No;
    for member in facts.members.iter().filter(|member| is_loose(member, facts)) {
        let rows = units(member).map(|row| gpu.best(&row.images));
        let bare = member.bare_cubins.keys().filter_map(|name| name.parse().ok()).map(|code| gpu.fit(&code));
        best = rows.chain(bare).fold(best, Fit::max);
    }
    let runs = |any_ptx: bool| match best {
        Fit::No => Runs::No,
        Fit::PtxTooNew if !any_ptx => Runs::No,
        Fit::PtxTooNew | Fit::Ptx => Runs::ByJit,
        Fit::SameMajor | Fit::Native => Runs::Yes,
    };
    Outcome {
        runs: runs(false),
        with_any_ptx: runs(true),
        no_variant: false,
        same_major: best == Fit::SameMajor,
    }
}

/// The worst library that matters decides; libraries that are variants for several CUDA releases, the best of those for the
/// driver's.
fn assess_wheel(libraries: &[Library<'_>], thresholds: &Thresholds, driver_major: u32) -> Outcome {
    if let Some(usable) = usable_variants(libraries, driver_major) {
        let best = |any_ptx| usable.iter().map(|library| library.runs(thresholds, any_ptx)).min();
        let same_major = usable.iter().any(|library| by_same_major(library, thresholds));
        return Outcome {
            runs: best(false).unwrap_or(Runs::No),
            with_any_ptx: best(true).unwrap_or(Runs::No),
            no_variant: usable.is_empty(),
            same_major,
        };
    }
    let runs = |any_ptx| worst(libraries, thresholds, any_ptx);
    Outcome {
        runs: runs(false),
        with_any_ptx: runs(true),
        no_variant: false,
        same_major: core(libraries, thresholds).iter().any(|library| by_same_major(library, thresholds)),
    }
}

/// Of libraries that are variants for several CUDA releases, those that a driver can take: of its own major version, else of
/// earlier ones. None where a wheel has no variants.
fn usable_variants<'l, 'f>(libraries: &'l [Library<'f>], driver_major: u32) -> Option<Vec<&'l Library<'f>>> {
    let variants = || libraries.iter().filter(|library| is_variant(&library.member.path));
    variants().nth(1)?;
    let major = |library: &Library<'_>| library_cuda_major(library.member).unwrap_or(0);
    let exact = variants().any(|library| major(library) == driver_major);
    let usable = variants().filter(|library| {
        if exact { major(library) == driver_major } else { major(library) <= driver_major }
    });
    Some(usable.collect())
}

fn by_same_major(library: &Library<'_>, thresholds: &Thresholds) -> bool {
    let counts = if library.is_special() { &library.special } else { &library.portable };
    library.runs(thresholds, false) <= Runs::ByJit && counts.same_major > counts.native
}

/// The libraries that hold enough of the wheel's portable fatbinaries to decide; all that hold any, where none holds enough:
/// a wheel of many small extension modules.
fn core<'l, 'f>(libraries: &'l [Library<'f>], thresholds: &Thresholds) -> Vec<&'l Library<'f>> {
    let total = portable_total(libraries);
    let portable = || libraries.iter().filter(|library| !library.is_special());
    let large = portable().filter(|library| share(library.portable.total(), total) >= thresholds.core);
    let large: Vec<_> = large.collect();
    if large.is_empty() { portable().collect() } else { large }
}

fn portable_total(libraries: &[Library<'_>]) -> u64 {
    libraries.iter().map(|library| library.portable.total()).fold(0, u64::saturating_add)
}

fn worst(libraries: &[Library<'_>], thresholds: &Thresholds, any_ptx: bool) -> Runs {
    let core = core(libraries, thresholds);
    match core.iter().map(|library| library.runs(thresholds, any_ptx)).max() {
        // Nothing but code for single chips and families: any of it will do.
        None => libraries.iter().map(|library| library.runs(thresholds, any_ptx)).min().unwrap_or(Runs::No),
        Some(Runs::No) => {
            let failing = core
                .iter()
                .filter(|library| library.runs(thresholds, any_ptx) == Runs::No)
                .map(|library| library.portable.total())
                .fold(0, u64::saturating_add);
            let all = share(failing, portable_total(libraries)) >= thresholds.condemn;
            if all { Runs::No } else { Runs::InPart }
        }
        Some(runs) => runs,
    }
}

/// Whether a library is one of several built for different CUDA releases: `libbitsandbytes_cuda126.so`.
fn is_variant(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let marker = TABLES.cuda.wheel.variant_marker.as_str();
    name.match_indices(marker).any(|(at, _)| {
        let rest = &name.as_bytes()[at + marker.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (2..=3).contains(&digits) && matches!(rest.get(digits), Some(b'.' | b'_'))
    })
}

/// A member whose GPU code does not run, or only in part, for the explanation.
#[derive(Debug)]
pub(super) struct Failing<'f> {
    /// The member.
    pub member: &'f Member,
    /// Its fatbinaries, or loose files.
    pub count: u64,
}

/// The members that fail, those with the most fatbinaries first.
pub(super) fn failing<'f>(
    facts: &'f Facts,
    gpu: &Gpu<'_>,
    thresholds: &Thresholds,
    driver_major: u32,
) -> Vec<Failing<'f>> {
    let mut failing = match judged(facts) {
        Judged::Nothing => Vec::new(),
        Judged::Loose => facts
            .members
            .iter()
            .filter(|member| is_loose(member, facts) && has_loose_code(member))
            .map(|member| Failing { member, count: 1 })
            .collect::<Vec<_>>(),
        Judged::Libraries => {
            let members = facts.members.iter().filter(|member| member.kind == MemberKind::Elf);
            let libraries: Vec<_> =
                members.filter_map(|member| library::assess(member, gpu, thresholds)).collect();
            let mut deciding =
                usable_variants(&libraries, driver_major).unwrap_or_else(|| core(&libraries, thresholds));
            if deciding.is_empty() {
                deciding = libraries.iter().collect();
            }
            deciding
                .into_iter()
                .filter(|library| library.runs(thresholds, false) >= Runs::InPart)
                .map(|library| Failing {
                    member: library.member,
                    count: library.portable.total().max(library.special.total()),
                })
                .collect()
        }
    };
    failing.sort_by(|one, other| other.count.cmp(&one.count).then(one.member.path.cmp(&other.member.path)));
    failing
}

/// The images of a member's runnable fatbinaries, or of the loose code that it is.
pub(super) fn images_of(member: &Member) -> Vec<GpuCode> {
    let bare = member.bare_cubins.keys().filter(|_| member.kind != MemberKind::Elf);
    let bare = bare.filter_map(|name| name.parse().ok());
    units(member).flat_map(|row| row.images.iter().copied()).chain(bare).collect()
}
