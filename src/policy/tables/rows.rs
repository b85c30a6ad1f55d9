//! The rows of the tables in `policies/`, as TOML has them; the files say what each key means.
#![expect(dead_code, reason = "every row carries its source, and some more, for readers of the table")]

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::fatbin::{ComputeCapability, PtxIsa};
use crate::policy::{Stack, Version};

/// One chip.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Soc {
    pub id: String,
    pub name: String,
    pub words: Vec<String>,
    #[serde(default)]
    pub also: Vec<String>,
    pub modules: String,
    pub gpu: String,
    pub compute_capability: ComputeCapability,
    pub integrated: bool,
    pub compatible: Vec<String>,
    pub boards: Vec<String>,
    pub parts: Vec<String>,
    source: String,
}

/// `soc.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct SocFile {
    pub soc: Vec<Soc>,
}

/// `jetpack.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct JetpackFile {
    pub os: BTreeMap<String, Os>,
    pub jetpack: Vec<Jetpack>,
    pub cuda_compat: Vec<CudaCompat>,
}

/// The base system of a JetPack release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Os {
    pub name: String,
    pub glibc: Version,
    pub glibcxx: Version,
    pub python: Version,
    pub ros: String,
    source: String,
}

/// One JetPack release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Jetpack {
    pub version: String,
    pub l4t: Vec<Version>,
    pub cuda: Version,
    pub cuda_toolkit: String,
    pub cudnn: String,
    pub tensorrt: String,
    pub os: String,
    pub kernel_release: String,
    #[serde(default)]
    pub driver: Option<String>,
    pub stack: BTreeMap<String, Stack>,
    #[serde(default)]
    pub note: Option<String>,
    source: String,
}

/// CUDA releases that a package brings onto a JetPack.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct CudaCompat {
    pub jetpack: String,
    #[serde(default)]
    pub socs: Vec<String>,
    pub package: String,
    pub allowed: Vec<Version>,
    source: String,
}

/// `server.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct ServerFile {
    pub server: Vec<Server>,
}

/// One Arm server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Server {
    pub name: String,
    pub soc: String,
    pub modules: String,
    pub gpu: String,
    pub compute_capability: ComputeCapability,
    pub driver_cuda: Vec<Version>,
    pub os: String,
    source: String,
}

/// `cuda.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct CudaFile {
    pub cuda: Vec<Cuda>,
    pub alias: Vec<Alias>,
    pub integrated: Integrated,
    pub family: Vec<Family>,
    pub unification: Unification,
    pub soname: Sonames,
    pub system: System,
    pub checked: Vec<Checked>,
    pub providers: Providers,
    pub wheel: Wheel,
}

/// One CUDA release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Cuda {
    pub version: Version,
    pub ptx_isa: PtxIsa,
    source: String,
}

/// Another name of a compute capability.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Alias {
    pub is: ComputeCapability,
    pub was: ComputeCapability,
    source: String,
}

/// The compute capabilities of integrated GPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Integrated {
    pub compute_capabilities: Vec<ComputeCapability>,
    source: String,
}

/// Compute capabilities whose family-specific code runs on each other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Family {
    pub members: Vec<ComputeCapability>,
    source: String,
}

/// From which driver on integrated chips take desktop code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Unification {
    pub driver_cuda: Version,
    source: String,
    pub pair: Vec<Pair>,
}

/// Code for one compute capability, and the integrated GPU that it runs on as well.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Pair {
    pub code: ComputeCapability,
    pub device: ComputeCapability,
    pub switch: bool,
}

/// What the names of shared libraries say of CUDA.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Sonames {
    pub cuda_major: Vec<String>,
    pub mapped: Vec<Mapped>,
    source: String,
}

/// A library whose numbering is its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Mapped {
    pub library: String,
    pub soname_major: u32,
    pub cuda_major: u32,
}

/// What a base system brings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct System {
    pub sonames: Vec<String>,
    source: String,
    pub cuda: Vec<SystemCuda>,
    pub cudnn: SystemCudnn,
    pub tensorrt: SystemTensorrt,
}

/// The CUDA libraries of a base system.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct SystemCuda {
    pub major: u32,
    pub sonames: Vec<String>,
    source: String,
}

/// The cuDNN of a base system.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct SystemCudnn {
    pub sonames: Vec<String>,
    pub split_from: u32,
    pub split: Vec<String>,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct SystemTensorrt {
    pub sonames: Vec<String>,
    source: String,
}

/// A shared library that is looked for, and what brings it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Checked {
    pub soname: String,
    pub provider: String,
    pub remedy: String,
    source: String,
}

/// Projects that may bring shared libraries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Providers {
    pub projects: Vec<String>,
    source: String,
}

/// Peculiarities of wheels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::policy) struct Wheel {
    pub variant_marker: String,
    pub ignored_pools: Vec<String>,
    pub runtime_projects: Vec<String>,
    source: String,
}
