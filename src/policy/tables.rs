//! The built-in tables of `policies/`, as values.
#![expect(dead_code, reason = "every row carries its source, and some more, for readers of the table")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::image::{Chips, UnificationPair};
use super::{DeviceProfile, Stack, Version};
use crate::fatbin::{ComputeCapability, PtxIsa};

/// Lowest glibc for which an aarch64 platform tag exists (PEP 599).
const FIRST_MANYLINUX_MINOR: u32 = 17;

/// All built-in tables but the rules and advisories, which have the form of a site's.
#[derive(Debug)]
pub(super) struct Tables {
    pub socs: Vec<Soc>,
    pub jetpack: JetpackFile,
    pub cuda: CudaFile,
    pub chips: Chips,
    /// Profiles, by chip and release.
    pub devices: Vec<DeviceProfile>,
    /// Other ids, and the ids that they stand for.
    pub aliases: Vec<(String, String)>,
}

/// One chip.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Soc {
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SocFile {
    soc: Vec<Soc>,
}

/// `jetpack.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JetpackFile {
    os: BTreeMap<String, Os>,
    pub jetpack: Vec<Jetpack>,
    pub cuda_compat: Vec<CudaCompat>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Os {
    name: String,
    glibc: Version,
    glibcxx: Version,
    python: Version,
    ros: String,
    source: String,
}

/// One JetPack release.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Jetpack {
    pub version: String,
    pub l4t: Vec<Version>,
    pub cuda: Version,
    cuda_toolkit: String,
    cudnn: String,
    tensorrt: String,
    os: String,
    kernel_release: String,
    #[serde(default)]
    driver: Option<String>,
    pub stack: BTreeMap<String, Stack>,
    #[serde(default)]
    note: Option<String>,
    source: String,
}

/// CUDA releases that a package brings onto a JetPack.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CudaCompat {
    pub jetpack: String,
    #[serde(default)]
    pub socs: Vec<String>,
    pub package: String,
    pub allowed: Vec<Version>,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerFile {
    server: Vec<Server>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    name: String,
    soc: String,
    modules: String,
    gpu: String,
    compute_capability: ComputeCapability,
    driver_cuda: Vec<Version>,
    os: String,
    source: String,
}

/// `cuda.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CudaFile {
    cuda: Vec<Cuda>,
    alias: Vec<Alias>,
    integrated: Integrated,
    family: Vec<Family>,
    pub unification: Unification,
    pub soname: Sonames,
    system: System,
    pub checked: Vec<Checked>,
    pub providers: Providers,
    pub wheel: Wheel,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cuda {
    version: Version,
    ptx_isa: PtxIsa,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alias {
    is: ComputeCapability,
    was: ComputeCapability,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Integrated {
    compute_capabilities: Vec<ComputeCapability>,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    members: Vec<ComputeCapability>,
    source: String,
}

/// From which driver on integrated chips take desktop code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unification {
    pub driver_cuda: Version,
    source: String,
    pair: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    code: ComputeCapability,
    device: ComputeCapability,
    switch: bool,
}

/// What the names of shared libraries say of CUDA.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sonames {
    pub cuda_major: Vec<String>,
    pub mapped: Vec<Mapped>,
    source: String,
}

/// A library whose numbering is its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mapped {
    pub library: String,
    pub soname_major: u32,
    pub cuda_major: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct System {
    sonames: Vec<String>,
    source: String,
    cuda: Vec<SystemCuda>,
    cudnn: SystemCudnn,
    tensorrt: SystemTensorrt,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemCuda {
    major: u32,
    sonames: Vec<String>,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemCudnn {
    sonames: Vec<String>,
    split_from: u32,
    split: Vec<String>,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemTensorrt {
    sonames: Vec<String>,
    source: String,
}

/// A shared library that is looked for, and what brings it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Checked {
    pub soname: String,
    pub provider: String,
    pub remedy: String,
    source: String,
}

/// Projects that may bring shared libraries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Providers {
    pub projects: Vec<String>,
    source: String,
}

/// Peculiarities of wheels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wheel {
    pub variant_marker: String,
    pub ignored_pools: Vec<String>,
    pub runtime_projects: Vec<String>,
    source: String,
}

/// The built-in tables, read once.
pub(super) static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let mut tables = Tables {
        socs: builtin::<SocFile>(include_str!("../../policies/soc.toml")).soc,
        jetpack: builtin(include_str!("../../policies/jetpack.toml")),
        cuda: builtin(include_str!("../../policies/cuda.toml")),
        chips: Chips::default(),
        devices: Vec::new(),
        aliases: Vec::new(),
    };
    tables.chips = tables.cuda.chips();
    let servers: ServerFile = builtin(include_str!("../../policies/servers.toml"));
    tables.devices = tables.profiles(&servers.server);
    tables.aliases = tables.other_ids();
    tables
});

/// Reads a table that is compiled in.
pub(super) fn builtin<T: for<'de> Deserialize<'de>>(text: &str) -> T {
    toml::from_str(text).expect("the built-in tables are read by the tests of this module")
}

impl CudaFile {
    fn chips(&self) -> Chips {
        Chips {
            aliases: self.alias.iter().map(|row| (row.is, row.was)).collect(),
            integrated: self.integrated.compute_capabilities.clone(),
            families: self.family.iter().map(|row| row.members.clone()).collect(),
            unification: self
                .unification
                .pair
                .iter()
                .map(|row| UnificationPair { code: row.code, device: row.device, switch: row.switch })
                .collect(),
        }
    }

    /// The newest PTX ISA version that a CUDA release knows.
    pub(super) fn ptx_isa(&self, cuda: &Version) -> Option<PtxIsa> {
        let row = self.cuda.iter().find(|row| row.version.release() == cuda.release())?;
        Some(row.ptx_isa)
    }

    /// The first and last CUDA release of the table.
    pub(super) fn known(&self) -> (&Version, &Version) {
        let mut versions = self.cuda.iter().map(|row| &row.version);
        let first = versions.next().expect("the table has rows");
        (first, versions.next_back().unwrap_or(first))
    }

    /// Shared libraries of a system with that CUDA, cuDNN and TensorRT.
    pub(super) fn system_sonames(
        &self,
        cuda: Option<&Version>,
        cudnn: Option<&str>,
        tensorrt: Option<&str>,
    ) -> BTreeSet<String> {
        let mut sonames: BTreeSet<String> = self.system.sonames.iter().cloned().collect();
        if let Some(cuda) = cuda {
            let of_major = self.system.cuda.iter().filter(|row| row.major == cuda.major());
            let names = of_major.flat_map(|row| &row.sonames);
            sonames.extend(names.map(|name| name.replace("{cuda}", &cuda.to_string())));
        }
        let major = |version: &str| version.split('.').next().unwrap_or_default().to_owned();
        if let Some(major) = cudnn.map(major) {
            let split = major.parse::<u32>().is_ok_and(|major| major >= self.system.cudnn.split_from);
            let parts = self.system.cudnn.split.iter().filter(|_| split);
            let names = self.system.cudnn.sonames.iter().chain(parts);
            sonames.extend(names.map(|name| name.replace("{major}", &major)));
        }
        if let Some(major) = tensorrt.map(major) {
            sonames.extend(self.system.tensorrt.sonames.iter().map(|name| name.replace("{major}", &major)));
        }
        sonames
    }
}

impl Tables {
    /// Whether an id is of a built-in profile.
    pub(super) fn has(&self, id: &str) -> bool {
        self.devices.iter().any(|device| device.id == id)
    }

    fn profiles(&self, servers: &[Server]) -> Vec<DeviceProfile> {
        let of_jetpack = self.socs.iter().flat_map(|soc| {
            let releases = self.jetpack.jetpack.iter();
            releases.filter_map(|release| self.jetson(soc, release))
        });
        let of_servers = servers.iter().flat_map(|server| {
            let releases = server.driver_cuda.iter();
            releases.map(|cuda| self.server(server, cuda))
        });
        of_jetpack.chain(of_servers).collect()
    }

    fn jetson(&self, soc: &Soc, release: &Jetpack) -> Option<DeviceProfile> {
        let stack = *release.stack.get(&soc.id)?;
        let os = &self.jetpack.os[&release.os];
        let (cudnn, tensorrt) = (release.cudnn.as_str(), release.tensorrt.as_str());
        Some(DeviceProfile {
            id: format!("{}-jp{}", soc.name, release.version),
            soc: soc.id.clone(),
            compute_capability: soc.compute_capability,
            integrated: soc.integrated,
            jetpack: Some(release.version.clone()),
            l4t: release.l4t.iter().map(Version::to_string).collect(),
            stack,
            driver_cuda: release.cuda.clone(),
            cuda_compat: None,
            ptx_isa: self.cuda.ptx_isa(&release.cuda).expect("every release's CUDA has a row"),
            glibc: os.glibc.clone(),
            glibcxx: os.glibcxx.clone(),
            python: os.python.clone(),
            kernel_release: Some(release.kernel_release.clone()),
            os: Some(os.name.clone()),
            cudnn: Some(cudnn.to_owned()),
            tensorrt: Some(tensorrt.to_owned()),
            ros: Some(os.ros.clone()),
            platform_tags: platform_tags(&os.glibc),
            sonames: self.cuda.system_sonames(Some(&release.cuda), Some(cudnn), Some(tensorrt)),
            nearest: None,
        })
    }

    fn server(&self, server: &Server, cuda: &Version) -> DeviceProfile {
        let os = &self.jetpack.os[&server.os];
        DeviceProfile {
            id: format!("{}-cuda{cuda}", server.name),
            soc: server.soc.clone(),
            compute_capability: server.compute_capability,
            integrated: false,
            jetpack: None,
            l4t: Vec::new(),
            stack: Stack::SbsaOpenrm,
            driver_cuda: cuda.clone(),
            cuda_compat: None,
            ptx_isa: self.cuda.ptx_isa(cuda).expect("every driver's CUDA has a row"),
            glibc: os.glibc.clone(),
            glibcxx: os.glibcxx.clone(),
            python: os.python.clone(),
            kernel_release: None,
            os: Some(os.name.clone()),
            cudnn: None,
            tensorrt: None,
            ros: None,
            platform_tags: platform_tags(&os.glibc),
            sonames: self.cuda.system_sonames(None, None, None),
            nearest: None,
        }
    }

    fn other_ids(&self) -> Vec<(String, String)> {
        let mut aliases = Vec::new();
        for soc in &self.socs {
            for device in self.devices.iter().filter(|device| device.soc == soc.id) {
                let release = &device.id[soc.name.len()..];
                aliases.extend(soc.also.iter().map(|other| (format!("{other}{release}"), device.id.clone())));
            }
        }
        aliases
    }
}

/// The platform tags that an installer takes under that glibc, best first, as `packaging` orders them.
pub(super) fn platform_tags(glibc: &Version) -> Vec<String> {
    let mut tags = Vec::new();
    if glibc.major() == 2 {
        let newest = glibc.minor().min(99); // a site may write anything; no glibc is near
        for minor in (FIRST_MANYLINUX_MINOR..=newest).rev() {
            tags.push(format!("manylinux_2_{minor}_aarch64"));
        }
        if newest >= FIRST_MANYLINUX_MINOR {
            tags.push("manylinux2014_aarch64".to_owned());
        }
    }
    tags.push("linux_aarch64".to_owned());
    tags
}
