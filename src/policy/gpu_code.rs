//! Whether the GPU code of a wheel runs on a device: from images to libraries to the wheel.
//!
//! `policies/README.md` has the rule in words, with the evidence for its thresholds.

use super::cuda_runtime::library_cuda_major;
use super::image::{Fit, Gpu};
use super::rules::Thresholds;
use super::tables::TABLES;
use crate::fatbin::{ComputeCapability, GpuCode, Suffix};
use crate::wheel::{Facts, FatbinRow, Member, MemberKind};

/// Where the CUDA runtime looks for the fatbinaries that a library registers.
const REGISTERED: &str = ".nv_fatbin";

/// Where fatbinaries lie that have to be linked first.
const RELOCATABLE: &str = "__nv_relfatbin";

/// How far a library, or a whole wheel, runs; from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Runs {
    /// It runs.
    Yes,
    /// It runs, most of it compiled from PTX at first use.
    ByJit,
    /// Some of it fails.
    InPart,
    /// It does not run.
    No,
}

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

/// A library's fatbinaries, counted by how they fit. Portable ones hold an image without suffix.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    native: u64,
    same_major: u64,
    ptx: u64,
    ptx_too_new: u64,
    no: u64,
}

impl Counts {
    fn add(&mut self, fit: Fit, count: u64) {
        let slot = match fit {
            Fit::Native => &mut self.native,
            Fit::SameMajor => &mut self.same_major,
            Fit::Ptx => &mut self.ptx,
            Fit::PtxTooNew => &mut self.ptx_too_new,
            Fit::No => &mut self.no,
        };
        *slot = slot.saturating_add(count);
    }

    fn machine_code(&self) -> u64 {
        self.native.saturating_add(self.same_major)
    }

    fn compiled(&self, any_ptx: bool) -> u64 {
        self.ptx.saturating_add(if any_ptx { self.ptx_too_new } else { 0 })
    }

    fn covered(&self, any_ptx: bool) -> u64 {
        self.machine_code().saturating_add(self.compiled(any_ptx))
    }

    fn total(&self) -> u64 {
        self.covered(true).saturating_add(self.no)
    }
}

/// A library that holds fatbinaries, seen from a device.
#[derive(Debug)]
struct Library<'f> {
    member: &'f Member,
    /// Fatbinaries with an image without suffix.
    portable: Counts,
    /// The others.
    special: Counts,
    /// Whether a device must be able to run most of it; else it picks its kernels at run time.
    uniform: bool,
}

impl Library<'_> {
    /// How far it runs.
    fn runs(&self, thresholds: &Thresholds, any_ptx: bool) -> Runs {
        let counts = if self.is_special() { &self.special } else { &self.portable };
        let covered = counts.covered(any_ptx);
        let share = share(covered, counts.total());
        let runs = if self.is_special() {
            covered > 0
        } else if self.uniform {
            if share >= thresholds.stray && share < thresholds.run {
                return Runs::InPart;
            }
            share >= thresholds.run
        } else {
            share >= thresholds.stray
        };
        match runs {
            false => Runs::No,
            true if !self.is_special() && counts.compiled(any_ptx) > counts.machine_code() => Runs::ByJit,
            true => Runs::Yes,
        }
    }

    /// Whether all its images are for one chip or family.
    fn is_special(&self) -> bool {
        self.portable.total() == 0
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share is compared with two decimals")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The fatbinaries of a member that can run: registered ones, else those in other sections (a pool).
fn units(member: &Member) -> impl Iterator<Item = &FatbinRow> {
    let pool = is_pool(member);
    let takes = move |row: &&FatbinRow| (pool || is_registered(member, row)) && counts_as_unit(member, row);
    member.fatbins.iter().filter(takes)
}

fn is_registered(member: &Member, row: &FatbinRow) -> bool {
    member.registered_fatbins > 0 && row.section.as_deref() == Some(REGISTERED)
}

fn is_pool(member: &Member) -> bool {
    let registers = |row: &FatbinRow| is_registered(member, row) && counts_as_unit(member, row);
    member.registered_fatbins == 0 || !member.fatbins.iter().any(registers)
}

/// Whether a fatbinary can run at all: not in archives, not where it has to be linked first, not if the compiler's empty
/// stub, not without an image that a driver loads.
fn counts_as_unit(member: &Member, row: &FatbinRow) -> bool {
    let place = match row.section.as_deref() {
        Some(REGISTERED) => member.kind != MemberKind::Elf || member.registered_fatbins > 0,
        Some(RELOCATABLE) => false,
        _ => true,
    };
    place
        && member.kind != MemberKind::Archive
        && row.images.iter().any(|code| matches!(code, GpuCode::Cubin(_) | GpuCode::Ptx(..)))
}

fn is_portable(images: &[GpuCode]) -> bool {
    let plain = |code: &GpuCode| match code {
        GpuCode::Cubin(target) | GpuCode::Ptx(target, _) => target.suffix == Suffix::Portable,
        _ => false,
    };
    images.iter().any(plain)
}

/// Whether a library is uniform: the median, over its own archs, of the share of its portable fatbinaries that a device of
/// just that arch could run, is high. Own archs are those of at least `stray` of them.
fn is_uniform(member: &Member, thresholds: &Thresholds) -> bool {
    let mut archs: Vec<(ComputeCapability, u64)> = Vec::with_capacity(16);
    let mut total: u64 = 0;
    for row in units(member).filter(|row| is_portable(&row.images)) {
        total = total.saturating_add(row.count);
        for (index, code) in row.images.iter().enumerate() {
            let arch = code.target().capability;
            let loads = |code: &GpuCode| matches!(code, GpuCode::Cubin(_) | GpuCode::Ptx(..));
            let seen = |earlier: &GpuCode| loads(earlier) && earlier.target().capability == arch;
            if !loads(code) || row.images[..index].iter().any(seen) {
                continue;
            }
            match archs.iter_mut().find(|(known, _)| *known == arch) {
                Some((_, count)) => *count = count.saturating_add(row.count),
                None => archs.push((arch, row.count)),
            }
        }
    }
    archs.retain(|&(_, count)| share(count, total) >= thresholds.stray);
    if archs.is_empty() {
        return true;
    }
    let mut shares: Vec<f64> = archs
        .iter()
        .map(|&(arch, _)| {
            let gpu = Gpu::of_arch(&TABLES.chips, arch);
            let rows = units(member).filter(|row| is_portable(&row.images));
            let runs = rows.filter(|row| gpu.best(&row.images) > Fit::No).map(|row| row.count);
            share(runs.fold(0, u64::saturating_add), total)
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    let middle = shares.len() / 2;
    let median = if shares.len() % 2 == 1 {
        shares[middle]
    } else {
        f64::midpoint(shares[middle - 1], shares[middle])
    };
    median >= thresholds.uniform
}

fn assess_library<'f>(member: &'f Member, gpu: &Gpu<'_>, thresholds: &Thresholds) -> Option<Library<'f>> {
    let mut library =
        Library { member, portable: Counts::default(), special: Counts::default(), uniform: false };
    for row in units(member) {
        let counts = if is_portable(&row.images) { &mut library.portable } else { &mut library.special };
        counts.add(gpu.best(&row.images), row.count);
    }
    if library.portable.total() == 0 && library.special.total() == 0 {
        return None;
    }
    // Its kind matters in between alone: below, nothing runs, and above, all does.
    let in_between = |any_ptx| {
        let covered = share(library.portable.covered(any_ptx), library.portable.total());
        covered >= thresholds.stray && covered < thresholds.run
    };
    library.uniform =
        (in_between(false) || in_between(true)) && !is_pool(member) && is_uniform(member, thresholds);
    Some(library)
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
                members.filter_map(|member| assess_library(member, gpu, thresholds)).collect();
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
    let variants = || libraries.iter().filter(|library| is_variant(&library.member.path));
    if variants().nth(1).is_some() {
        let major = |library: &Library<'_>| library_cuda_major(library.member).unwrap_or(0);
        let exact = variants().any(|library| major(library) == driver_major);
        let usable = variants().filter(|library| {
            if exact { major(library) == driver_major } else { major(library) <= driver_major }
        });
        let usable: Vec<_> = usable.collect();
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
        same_major: core(libraries, thresholds).any(|library| by_same_major(library, thresholds)),
    }
}

fn by_same_major(library: &Library<'_>, thresholds: &Thresholds) -> bool {
    let counts = if library.is_special() { &library.special } else { &library.portable };
    library.runs(thresholds, false) <= Runs::ByJit && counts.same_major > counts.native
}

/// The libraries that hold enough of the wheel's portable fatbinaries to decide.
fn core<'l, 'f>(
    libraries: &'l [Library<'f>],
    thresholds: &Thresholds,
) -> impl Iterator<Item = &'l Library<'f>> {
    let total = portable_total(libraries);
    let least = thresholds.core;
    libraries
        .iter()
        .filter(move |library| !library.is_special() && share(library.portable.total(), total) >= least)
}

fn portable_total(libraries: &[Library<'_>]) -> u64 {
    libraries.iter().map(|library| library.portable.total()).fold(0, u64::saturating_add)
}

fn worst(libraries: &[Library<'_>], thresholds: &Thresholds, any_ptx: bool) -> Runs {
    let of_core = core(libraries, thresholds).map(|library| library.runs(thresholds, any_ptx)).max();
    match of_core {
        // Nothing but code for single chips and families: any of it will do.
        None => {
            let special = libraries.iter().filter(|library| library.is_special());
            special.map(|library| library.runs(thresholds, any_ptx)).min().unwrap_or(Runs::No)
        }
        Some(Runs::No) => {
            let failing = core(libraries, thresholds)
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
pub(super) fn failing<'f>(facts: &'f Facts, gpu: &Gpu<'_>, thresholds: &Thresholds) -> Vec<Failing<'f>> {
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
                members.filter_map(|member| assess_library(member, gpu, thresholds)).collect();
            let variants = libraries.iter().filter(|library| is_variant(&library.member.path)).count() > 1;
            let mut deciding: Vec<_> = core(&libraries, thresholds).collect();
            if variants || deciding.is_empty() {
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
