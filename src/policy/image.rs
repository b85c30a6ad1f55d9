//! When one image of GPU code runs on a GPU.

use crate::fatbin::{ComputeCapability, GpuCode, PtxIsa, Suffix, Target};

/// How an image, or the best one of a fatbinary, fits a GPU; from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// It does not run.
    No,
    /// It would be compiled, were its PTX not newer than what the driver knows.
    PtxTooNew,
    /// The driver compiles it.
    Ptx,
    /// Machine code for an older chip of the same major version, on an integrated chip that takes it.
    SameMajor,
    /// Machine code for it.
    Native,
}

/// What is known of chips: renamed ones, integrated ones, families, and which integrated ones take desktop code.
#[derive(Debug, Clone, Default)]
pub(super) struct Chips {
    /// Pairs of names of one chip.
    pub aliases: Vec<(ComputeCapability, ComputeCapability)>,
    /// Integrated chips.
    pub integrated: Vec<ComputeCapability>,
    /// Members of each family.
    pub families: Vec<Vec<ComputeCapability>>,
    /// Desktop code that an integrated chip takes under a newer driver.
    pub unification: Vec<UnificationPair>,
}

/// Desktop code that an integrated chip takes under a newer driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnificationPair {
    /// What the code was built for.
    pub code: ComputeCapability,
    /// The chip that runs it.
    pub device: ComputeCapability,
    /// Whether the rule `tegra_same_major` may allow it under older drivers.
    pub switch: bool,
}

impl Chips {
    /// Whether both are one chip, if by two names.
    pub(super) fn same(&self, one: ComputeCapability, other: ComputeCapability) -> bool {
        one == other || self.aliases.iter().any(|&pair| pair == (one, other) || pair == (other, one))
    }

    /// Whether one family holds both.
    fn one_family(&self, one: ComputeCapability, other: ComputeCapability) -> bool {
        self.families.iter().any(|family| family.contains(&one) && family.contains(&other))
    }
}

/// The GPU and driver that an image is tried on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gpu<'t> {
    /// What is known of chips.
    pub chips: &'t Chips,
    /// Its compute capability.
    pub capability: ComputeCapability,
    /// Whether it is an integrated chip.
    pub integrated: bool,
    /// Whether its driver takes Arm server code on integrated chips (CUDA 13.2 and later).
    pub unified: bool,
    /// Whether policy allows older code of the same major version without such a driver.
    pub allow_same_major: bool,
    /// Newest PTX ISA version that the driver compiles; none is no limit.
    pub ptx_isa: Option<PtxIsa>,
}

impl<'t> Gpu<'t> {
    /// A device of just that compute capability, with the newest of drivers.
    pub(super) fn of_arch(chips: &'t Chips, capability: ComputeCapability) -> Self {
        let integrated = chips.integrated.contains(&capability);
        Self { chips, capability, integrated, unified: true, allow_same_major: false, ptx_isa: None }
    }

    /// How an image fits.
    ///
    /// Machine code runs on its own chip; without suffix also on later desktop chips of its major version; with `f` on
    /// later chips of its family; with `a` nowhere else. An integrated chip takes its own code alone, but for
    /// [`UnificationPair`]. PTX runs where its target is not newer than the chip (its suffix narrows that in the same
    /// way) and its ISA version not newer than the driver's. What has to be linked first does not run.
    pub(super) fn fit(&self, code: &GpuCode) -> Fit {
        match *code {
            GpuCode::Cubin(target) => self.fit_cubin(target),
            GpuCode::Ptx(target, isa) if self.compiles(target) => {
                if self.ptx_isa.is_none_or(|newest| isa <= newest) { Fit::Ptx } else { Fit::PtxTooNew }
            }
            _ => Fit::No,
        }
    }

    /// How the best image of a fatbinary fits.
    pub(super) fn best(&self, images: &[GpuCode]) -> Fit {
        images.iter().map(|code| self.fit(code)).max().unwrap_or(Fit::No)
    }

    /// Whether this is a switch of policy: it would run if `tegra_same_major` were `allow`.
    pub(super) fn refused_by_switch(&self, code: &GpuCode) -> bool {
        let GpuCode::Cubin(Target { capability, suffix: Suffix::Portable }) = *code else { return false };
        self.fit(code) == Fit::No && self.pair(capability).is_some_and(|pair| pair.switch)
    }

    fn pair(&self, code: ComputeCapability) -> Option<&UnificationPair> {
        self.chips.unification.iter().find(|pair| pair.code == code && pair.device == self.capability)
    }

    fn fit_cubin(&self, target: Target) -> Fit {
        let built_for = target.capability;
        if self.chips.same(built_for, self.capability) {
            return Fit::Native;
        }
        let runs = match target.suffix {
            Suffix::Exact => false,
            Suffix::Family => {
                built_for <= self.capability && self.chips.one_family(built_for, self.capability)
            }
            Suffix::Portable if self.chips.integrated.contains(&built_for) => false,
            Suffix::Portable if self.integrated => {
                let taken = |pair: &UnificationPair| self.unified || (self.allow_same_major && pair.switch);
                return if self.pair(built_for).is_some_and(taken) { Fit::SameMajor } else { Fit::No };
            }
            Suffix::Portable => built_for.major == self.capability.major && built_for <= self.capability,
        };
        if runs { Fit::Native } else { Fit::No }
    }

    fn compiles(&self, target: Target) -> bool {
        let built_for = target.capability;
        if self.chips.same(built_for, self.capability) {
            return true;
        }
        match target.suffix {
            Suffix::Exact => false,
            Suffix::Family => {
                built_for <= self.capability && self.chips.one_family(built_for, self.capability)
            }
            Suffix::Portable => built_for <= self.capability,
        }
    }
}
