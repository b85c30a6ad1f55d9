//! The built-in tables of `policies/`, as values, and the profiles that follow from them.

mod rows;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use super::image::{Chips, UnificationPair};
use super::{DeviceProfile, Stack, Version};
use crate::fatbin::PtxIsa;
use rows::{CudaFile, JetpackFile, Server, ServerFile, SocFile};

pub(super) use rows::{Checked, Jetpack, Soc};

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

/// The built-in tables, read once.
pub(super) static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let mut tables = Tables {
        socs: builtin::<SocFile>(include_str!("../../../policies/soc.toml")).soc,
        jetpack: builtin(include_str!("../../../policies/jetpack.toml")),
        cuda: builtin(include_str!("../../../policies/cuda.toml")),
        chips: Chips::default(),
        devices: Vec::new(),
        aliases: Vec::new(),
    };
    tables.chips = tables.cuda.chips();
    let servers: ServerFile = builtin(include_str!("../../../policies/servers.toml"));
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
