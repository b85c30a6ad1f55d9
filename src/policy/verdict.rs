//! What judging a wheel for a device yields.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether a wheel runs on a device; from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It runs.
    Admit,
    /// It runs, but most of its kernels are compiled from PTX at first use.
    AdmitJit,
    /// Some of its modules would fail.
    Partial,
    /// It does not run.
    Refuse,
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Admit => "admit",
            Self::AdmitJit => "admit-jit",
            Self::Partial => "partial",
            Self::Refuse => "refuse",
        })
    }
}

/// Why a wheel is refused or partial, most basic first: reasons are listed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The file cannot be read whole.
    Damaged,
    /// RECORD or the upstream states another digest than the bytes have.
    HashMismatch,
    /// METADATA or WHEEL disagree with the file name.
    MetadataMismatch,
    /// Built for another Python or ABI.
    PythonTag,
    /// Built for another platform.
    PlatformTag,
    /// `Requires-Python` excludes the device's Python.
    RequiresPython,
    /// Its ELF files need a newer glibc.
    GlibcTooNew,
    /// Its ELF files need a newer libstdc++.
    GlibcxxTooNew,
    /// Built with a CUDA that the device's driver cannot run.
    CudaTooNew,
    /// Fits the device but not the request.
    SpecConflict,
    /// A CPU build of a project that must hold GPU code.
    NoGpuCode,
    /// No kernel image for the device.
    NoKernelImage,
    /// Its PTX is newer than what the driver compiles.
    PtxTooNew,
    /// Some modules have no kernel image for the device.
    PartialKernels,
    /// The compiler in it does not know the device.
    CompilerTargetMissing,
    /// A shared library that nothing brings.
    SonameMissing,
    /// It pins another GPU project to a version of which this device has none.
    PairMismatch,
    /// Built with another C++ ABI than what it links.
    AbiMismatch,
    /// Built for another `NumPy` ABI.
    NumpyAbi,
    /// Curated knowledge says no.
    Advisory,
    /// A source distribution.
    SourceBuild,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Which.
    pub code: Code,
    /// The member that decides, where one does.
    #[serde(default)]
    pub member: Option<String>,
    /// What the wheel has.
    #[serde(default)]
    pub found: Vec<String>,
    /// What the device takes.
    #[serde(default)]
    pub wanted: Vec<String>,
    /// A sentence for people.
    pub text: String,
    /// What to use or do instead.
    pub remedy: String,
}

/// Kinds of notes on top of an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteCode {
    /// Most kernels are compiled from PTX at first use.
    JitOnly,
    /// Runs only by code for an older minor version of the same major one.
    SameMajorOnly,
    /// Curated knowledge warns.
    Advisory,
    /// A dependency does not fit the device.
    UnfitDependency,
    /// The profile is that of the nearest known release.
    NearestProfile,
    /// Built for Arm servers, judged for classic L4T.
    SbsaOnL4t,
}

/// One note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Which.
    pub code: NoteCode,
    /// A sentence for people.
    pub text: String,
}

/// A verdict with its reasons and notes, for one wheel on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why not, in the order of [`Code`]; empty for `admit` and `admit-jit`.
    pub reasons: Vec<Reason>,
    /// What to know all the same.
    pub notes: Vec<Note>,
}
