//! What a wheel is judged against.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::fatbin::{ComputeCapability, PtxIsa};

/// A dotted version of numbers alone: `2.35`, `3.4.30`, `12.6`, `36.4.3`. Compared number by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub Vec<u32>);

/// Why a text is no dotted version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a version is numbers with dots, such as 12.6; found {0:?}")]
pub struct NotAVersion(String);

impl Version {
    /// The first number.
    pub fn major(&self) -> u32 {
        self.0.first().copied().unwrap_or(0)
    }

    /// The second number.
    pub fn minor(&self) -> u32 {
        self.0.get(1).copied().unwrap_or(0)
    }

    /// The first two numbers: of CUDA 12.6.68, the release 12.6.
    pub fn release(&self) -> (u32, u32) {
        (self.major(), self.minor())
    }
}

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || NotAVersion(text.chars().take(80).collect());
        if text.len() > 64 {
            return Err(bad());
        }
        text.split('.')
            .map(|part| {
                let digits = part.bytes().all(|byte| byte.is_ascii_digit());
                digits.then(|| part.parse().ok()).flatten().ok_or_else(bad)
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            write!(out, "{}{part}", if index == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Which CUDA packages and driver a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stack {
    /// Classic L4T: `aarch64-jetson` packages, nvgpu driver; no minor-version compatibility upwards.
    TegraNvgpu,
    /// Arm server packages on the nvgpu driver (Orin from JetPack 7.2 on).
    SbsaNvgpu,
    /// Arm server packages on the open resource-manager driver (Thor, Arm servers).
    SbsaOpenrm,
}

/// What a wheel is judged against: a chip with a JetPack release, or an Arm server with a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProfile {
    /// `orin-jp6.2`.
    pub id: String,
    /// chip: `tegra234`, `gb10`.
    pub soc: String,
    /// Compute capability of its GPU.
    pub compute_capability: ComputeCapability,
    /// Whether the GPU is integrated, so that code for desktop GPUs of the same major version is not promised to run.
    pub integrated: bool,
    /// JetPack release, where there is one.
    pub jetpack: Option<String>,
    /// L4T releases that this JetPack stands for.
    pub l4t: Vec<String>,
    /// CUDA packages and driver.
    pub stack: Stack,
    /// Newest CUDA that the driver serves.
    pub driver_cuda: Version,
    /// CUDA that an installed cuda-compat package brings.
    pub cuda_compat: Option<Version>,
    /// Newest PTX ISA version that the driver compiles.
    pub ptx_isa: PtxIsa,
    /// glibc.
    pub glibc: Version,
    /// Highest `GLIBCXX_` symbol version of libstdc++.
    pub glibcxx: Version,
    /// Default Python: `3.10`.
    pub python: Version,
    /// `uname -r`.
    pub kernel_release: Option<String>,
    /// Linux distribution: `Ubuntu 22.04`.
    pub os: Option<String>,
    /// cuDNN.
    pub cudnn: Option<String>,
    /// TensorRT.
    pub tensorrt: Option<String>,
    /// ROS release.
    pub ros: Option<String>,
    /// Platform tags that its installer takes, best first.
    pub platform_tags: Vec<String>,
    /// Shared libraries that the system brings.
    pub sonames: BTreeSet<String>,
    /// The L4T release for which this profile stands in, as the nearest that the tables know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}
