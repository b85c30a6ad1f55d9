//! What inspecting one file yields. The JSON form is that of `inspect --format json` and of the sidecar files.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ProjectName;
use crate::digest::Sha256;
use crate::fatbin::{GpuCode, Target};

/// What a wheel, or a loose ELF file, cubin, fatbinary or PTX file, contains.
///
/// Facts hold no judgement and name no device: those are [`crate::policy`]'s part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// File name, without folders, as fetched.
    pub file: String,
    /// Digest of the whole file.
    pub sha256: Sha256,
    /// Size in bytes of the whole file.
    pub size: u64,
    /// Project, from the file name; none where the file is no wheel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// Version, as METADATA writes it (not normalized).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Tags of the file name, expanded: `cp312-cp312-manylinux_2_28_aarch64`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// `Requires-Python`, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_python: Option<String>,
    /// `Requires-Dist`, as written.
    #[serde(default)]
    pub requires_dist: Vec<String>,
    /// `Provides-Extra`, as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provides_extra: Vec<String>,
    /// Digest of the METADATA member, which `.metadata` serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_sha256: Option<Sha256>,
    /// In which way the file has to do with a GPU.
    pub gpu: GpuClass,
    /// Members that matter: ELF files, archives, cubins, fatbinaries, PTX files.
    #[serde(default)]
    pub members: Vec<Member>,
    /// Compilers that make kernels on the device.
    #[serde(default)]
    pub compilers: Vec<Compiler>,
    /// How many fatbinaries or loose files hold each image, over all members; PTX without its ISA version.
    #[serde(default)]
    pub images: BTreeMap<String, u64>,
    /// Number of CUDA source files (`.cu`, `.cuh`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cuda_sources: u64,
    /// Names of shared libraries that code in the file opens by name, as far as strings show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed_dlopen: Vec<String>,
    /// What is wrong with the file.
    #[serde(default)]
    pub damage: Vec<Damage>,
    /// The [`INSPECTOR`] that found all this; 0 where it was not written down yet.
    #[serde(default, skip_serializing_if = "is_none")]
    pub inspector: u32,
}

/// Number of what an inspection finds and of what the fields mean. To be raised with every change that can change a verdict;
/// [`Facts::are_current`] says what earlier facts are still good for.
///
/// - 1: as released first.
/// - 2: what members were compiled against, [`Member::numpy_abi`] and [`Member::cxx11_abi`].
pub const INSPECTOR: u32 = 2;

impl Facts {
    /// Facts of a file that nobody has looked into.
    pub const fn blank(file: String, sha256: Sha256, size: u64) -> Self {
        Self {
            file,
            sha256,
            size,
            project: None,
            version: None,
            tags: Vec::new(),
            requires_python: None,
            requires_dist: Vec::new(),
            provides_extra: Vec::new(),
            metadata_sha256: None,
            gpu: GpuClass::None,
            members: Vec::new(),
            compilers: Vec::new(),
            images: BTreeMap::new(),
            cuda_sources: 0,
            inspector: 0,
            needed_dlopen: Vec::new(),
            damage: Vec::new(),
        }
    }

    /// Whether inspecting the file again could show nothing that matters. Of others the file is fetched and inspected anew, unless
    /// it is at hand, for what is not known refuses nothing.
    pub fn are_current(&self) -> bool {
        match self.inspector {
            0 => false,
            // What it did not look at stands in extension modules and in what links PyTorch, and nowhere else.
            1 => !self.members.iter().any(Member::may_show_abi),
            _ => true,
        }
    }

    /// Whether two inspections found the same, as far as both looked.
    pub fn agree_with(&self, other: &Self) -> bool {
        if self.inspector == other.inspector {
            return self == other;
        }
        let common = |facts: &Self| {
            let mut facts = Self { inspector: 0, ..facts.clone() };
            for member in &mut facts.members {
                (member.numpy_abi, member.cxx11_abi) = (None, None);
            }
            facts
        };
        common(self) == common(other)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(inspector: &u32) -> bool {
    *inspector == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// In which way a file has to do with a GPU; the first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuClass {
    /// Fatbinaries or cubins.
    Kernels,
    /// ptxas, NVRTC or nvJitLink: kernels are made on the device.
    Compiler,
    /// CUDA sources that are compiled on the device.
    Source,
    /// CUDA libraries without kernels, or ELF files that link them.
    Runtime,
    /// Nothing of a GPU.
    None,
}

impl fmt::Display for GpuClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Kernels => "kernels",
            Self::Compiler => "compiler",
            Self::Source => "source",
            Self::Runtime => "runtime",
            Self::None => "none",
        })
    }
}

/// One member of a wheel, or the loose file itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Path inside the wheel; the file name for a loose file.
    pub path: String,
    /// Size in bytes, uncompressed.
    pub size: u64,
    /// What it is.
    pub kind: MemberKind,
    /// ELF machine: `aarch64`, `x86_64`, or `em-N` by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// `DT_SONAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soname: Option<String>,
    /// `DT_NEEDED`, in file order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
    /// `DT_RUNPATH` (or `DT_RPATH` where there is none), split at `:`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runpath: Vec<String>,
    /// Highest `GLIBC_` version needed, such as `2.28`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glibc: Option<String>,
    /// Highest `GLIBCXX_` version needed, such as `3.4.22`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glibcxx: Option<String>,
    /// Highest `CXXABI_` version needed, such as `1.3.9`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cxxabi: Option<String>,
    /// Major version of NumPy whose C API it was compiled against, as far as it shows: 1 runs under NumPy 1 alone, 2 under both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numpy_abi: Option<u32>,
    /// Whether strings that it hands to PyTorch, or takes as PyTorch, are those of the C++11 ABI, as far as it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cxx11_abi: Option<bool>,
    /// Number of `.nvFatBinSegment` wrappers: fatbinaries that the CUDA runtime registers.
    #[serde(default)]
    pub registered_fatbins: u64,
    /// Fatbinaries by section and set of images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fatbins: Vec<FatbinRow>,
    /// Cubins that stand outside any fatbinary, with how often.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bare_cubins: BTreeMap<String, u64>,
    /// How many fatbinaries hold each image; PTX without its ISA version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, u64>,
}

impl Member {
    /// Whether it is compiled against Python or PyTorch, as far as its name and what it links tell.
    fn may_show_abi(&self) -> bool {
        let file = self.path.rsplit('/').next().unwrap_or_default();
        let module = file.rsplit_once('.').is_some_and(|(_, end)| end == "so") && !file.starts_with("lib");
        let links = |start: &&str| self.needed.iter().any(|soname| soname.starts_with(*start));
        let brings = |start: &&str| self.soname.as_ref().is_some_and(|soname| soname.starts_with(*start));
        let torch = ["libtorch", "libc10", "libpython"];
        self.kind == MemberKind::Elf && (module || torch.iter().any(|start| links(start) || brings(start)))
    }
}

/// The kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberKind {
    /// A host ELF file: library, program or object file.
    Elf,
    /// An `ar` archive.
    Archive,
    /// A loose cubin.
    Cubin,
    /// A loose fatbinary.
    Fatbin,
    /// A loose PTX file.
    Ptx,
    /// Any other file in which GPU code was found.
    Other,
}

/// Fatbinaries with the same images in the same section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FatbinRow {
    /// Section of the ELF file; none outside sections, in archives, and in loose files.
    pub section: Option<String>,
    /// Images, in file order, without repetition.
    pub images: Vec<GpuCode>,
    /// How many fatbinaries.
    pub count: u64,
}

/// A compiler that makes kernels on the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiler {
    /// Path inside the wheel.
    pub path: String,
    /// CUDA release of the compiler, such as `12.8`, where its text says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Targets that it knows, written `compute_90a`.
    pub targets: Vec<CompilerTarget>,
}

/// A target of a compiler; its text form is `compute_90a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompilerTarget(pub Target);

impl Serialize for CompilerTarget {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("compute_{}", self.0))
    }
}

impl<'de> Deserialize<'de> for CompilerTarget {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let target = text
            .strip_prefix("compute_")
            .ok_or_else(|| serde::de::Error::custom(format_args!("{text:?} does not begin with compute_")))?;
        target.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Which reason a verdict gives for it.
    pub code: DamageCode,
    /// Member, where it is inside one.
    #[serde(default)]
    pub member: Option<String>,
    /// What was found and what was expected, with the offset.
    pub text: String,
}

/// The sorts of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamageCode {
    /// The zip, an ELF file or a fatbinary cannot be read whole.
    Damaged,
    /// RECORD states another digest or size than the bytes have.
    HashMismatch,
    /// METADATA or WHEEL disagree with the file name.
    MetadataMismatch,
}
