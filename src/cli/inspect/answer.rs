//! The JSON of `inspect`: facts with every key, also where there is nothing to tell.
//!
//! Sidecar files leave such keys out, since the store has millions of them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::digest::Sha256;
use crate::policy::Judgement;
use crate::wheel::{Compiler, Damage, Facts, FatbinRow, GpuClass, Member, MemberKind, ProjectName};

/// All files, and those that cannot be read.
#[derive(Debug, Default, Serialize)]
pub(super) struct AllAnswers {
    pub files: Vec<FileAnswer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Unread>,
}

/// A file: its facts, and a verdict for each device. The keys are those of [`Facts`].
#[derive(Debug, Serialize)]
pub(super) struct FileAnswer {
    file: String,
    sha256: Sha256,
    size: u64,
    project: Option<ProjectName>,
    version: Option<String>,
    tags: Vec<String>,
    requires_python: Option<String>,
    requires_dist: Vec<String>,
    provides_extra: Vec<String>,
    metadata_sha256: Option<Sha256>,
    gpu: GpuClass,
    members: Vec<MemberAnswer>,
    compilers: Vec<Compiler>,
    images: BTreeMap<String, u64>,
    cuda_sources: u64,
    needed_dlopen: Vec<String>,
    damage: Vec<Damage>,
    inspector: u32,
    verdicts: Vec<DeviceVerdict>,
}

/// A member of a file. The keys are those of [`Member`].
#[derive(Debug, Serialize)]
struct MemberAnswer {
    path: String,
    size: u64,
    kind: MemberKind,
    machine: Option<String>,
    soname: Option<String>,
    needed: Vec<String>,
    runpath: Vec<String>,
    glibc: Option<String>,
    glibcxx: Option<String>,
    cxxabi: Option<String>,
    numpy_abi: Option<u32>,
    cxx11_abi: Option<bool>,
    registered_fatbins: u64,
    fatbins: Vec<FatbinRow>,
    bare_cubins: BTreeMap<String, u64>,
    images: BTreeMap<String, u64>,
}

/// What a device makes of a file.
#[derive(Debug, Serialize)]
pub(super) struct DeviceVerdict {
    pub device: String,
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// A file that cannot be read.
#[derive(Debug, Serialize)]
pub(super) struct Unread {
    pub file: String,
    pub error: String,
}

impl FileAnswer {
    pub(super) fn new(facts: Facts, verdicts: Vec<DeviceVerdict>) -> Self {
        Self {
            file: facts.file,
            sha256: facts.sha256,
            size: facts.size,
            project: facts.project,
            version: facts.version,
            tags: facts.tags,
            requires_python: facts.requires_python,
            requires_dist: facts.requires_dist,
            provides_extra: facts.provides_extra,
            metadata_sha256: facts.metadata_sha256,
            gpu: facts.gpu,
            members: facts.members.into_iter().map(MemberAnswer::from).collect(),
            compilers: facts.compilers,
            images: facts.images,
            cuda_sources: facts.cuda_sources,
            needed_dlopen: facts.needed_dlopen,
            damage: facts.damage,
            inspector: facts.inspector,
            verdicts,
        }
    }
}

impl From<Member> for MemberAnswer {
    fn from(member: Member) -> Self {
        Self {
            path: member.path,
            size: member.size,
            kind: member.kind,
            machine: member.machine,
            soname: member.soname,
            needed: member.needed,
            runpath: member.runpath,
            glibc: member.glibc,
            glibcxx: member.glibcxx,
            cxxabi: member.cxxabi,
            numpy_abi: member.numpy_abi,
            cxx11_abi: member.cxx11_abi,
            registered_fatbins: member.registered_fatbins,
            fatbins: member.fatbins,
            bare_cubins: member.bare_cubins,
            images: member.images,
        }
    }
}
