//! How far one library runs on a device, by the fatbinaries that it holds.

use super::image::{Fit, Gpu};
use super::rules::Thresholds;
use super::tables::TABLES;
use crate::fatbin::{ComputeCapability, GpuCode, Suffix};
use crate::wheel::{FatbinRow, Member, MemberKind};

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

/// A library's fatbinaries, counted by how they fit. Portable ones hold an image without suffix.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub native: u64,
    pub same_major: u64,
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

    /// All units, those that do not run among them.
    pub(super) fn total(&self) -> u64 {
        self.covered(true).saturating_add(self.no)
    }
}

/// A library that holds fatbinaries, seen from a device.
#[derive(Debug)]
pub(super) struct Library<'f> {
    /// The library.
    pub member: &'f Member,
    /// Fatbinaries with an image without suffix.
    pub portable: Counts,
    /// The others.
    pub special: Counts,
    /// Whether a device must be able to run most of it; else it picks its kernels at run time.
    uniform: bool,
}

impl Library<'_> {
    /// How far it runs.
    pub(super) fn runs(&self, thresholds: &Thresholds, any_ptx: bool) -> Runs {
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
    pub(super) fn is_special(&self) -> bool {
        self.portable.total() == 0
    }
}

/// The part of a whole, between 0 and 1; that of nothing is 0.
#[expect(clippy::cast_precision_loss, reason = "a share is compared with two decimals")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The fatbinaries of a member that can run: registered ones, else those in other sections (a pool).
pub(super) fn units(member: &Member) -> impl Iterator<Item = &FatbinRow> {
    let pool = is_pool(member);
    let takes = move |row: &&FatbinRow| (pool || is_registered(member, row)) && counts_as_unit(member, row);
    member.fatbins.iter().filter(takes)
}

fn is_registered(member: &Member, row: &FatbinRow) -> bool {
    member.registered_fatbins > 0 && row.section.as_deref() == Some(REGISTERED)
}

/// Whether no fatbinary of a member that can run is registered with the CUDA runtime: then any of them may be loaded.
pub(super) fn is_pool(member: &Member) -> bool {
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

/// A library as a device sees it; none without fatbinaries that can run.
pub(super) fn assess<'f>(member: &'f Member, gpu: &Gpu<'_>, thresholds: &Thresholds) -> Option<Library<'f>> {
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
