//! Compute capabilities, and the kinds of code that a fatbinary holds for them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A compute capability such as 8.7; its text form is `8.7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The generation: 8 for Ampere.
    pub major: u16,
    /// The chip within the generation.
    pub minor: u16,
}

impl ComputeCapability {
    /// Reads the decimal SM number of headers and names: 87 is 8.7, 110 is 11.0.
    pub const fn from_sm(sm: u16) -> Self {
        Self { major: sm / 10, minor: sm % 10 }
    }

    /// The decimal SM number: 87 for 8.7.
    pub const fn sm(self) -> u16 {
        self.major.saturating_mul(10).saturating_add(self.minor)
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

/// The letter behind an SM number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suffix {
    /// `sm_87`: portable within the rules of its major version.
    Portable,
    /// `sm_90a`: that compute capability alone.
    Exact,
    /// `sm_110f`: its family.
    Family,
}

/// What one image was built for: `90a` in `sm_90a` and `compute_90a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The compute capability.
    pub capability: ComputeCapability,
    /// The suffix.
    pub suffix: Suffix,
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.suffix {
            Suffix::Portable => "",
            Suffix::Exact => "a",
            Suffix::Family => "f",
        };
        write!(out, "{}{suffix}", self.capability.sm())
    }
}

/// The version of the PTX instruction set, as `.version` states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PtxIsa {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
}

impl fmt::Display for PtxIsa {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

/// One image of a fatbinary, or a loose one.
///
/// Text forms, which [`FromStr`] reads back: `sm_90a`, `compute_120 ptx9.0`, `relptx_90 ptx8.0`, `lto_90a`,
/// `tile_110`, and `kind16_90` for kinds that no driver loads as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuCode {
    /// Machine code.
    Cubin(Target),
    /// PTX text, compiled by the driver.
    Ptx(Target, PtxIsa),
    /// PTX text that has to be linked.
    RelocatablePtx(Target, PtxIsa),
    /// Input of link-time optimisation.
    LtoIr(Target),
    /// Tile IR.
    TileIr(Target),
    /// Any other kind of entry, by its number.
    Other(u16, Target),
}

impl GpuCode {
    /// What the image was built for.
    pub const fn target(&self) -> Target {
        match *self {
            Self::Cubin(target)
            | Self::Ptx(target, _)
            | Self::RelocatablePtx(target, _)
            | Self::LtoIr(target)
            | Self::TileIr(target)
            | Self::Other(_, target) => target,
        }
    }
}

impl fmt::Display for GpuCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cubin(target) => write!(out, "sm_{target}"),
            Self::Ptx(target, isa) => write!(out, "compute_{target} ptx{isa}"),
            Self::RelocatablePtx(target, isa) => write!(out, "relptx_{target} ptx{isa}"),
            Self::LtoIr(target) => write!(out, "lto_{target}"),
            Self::TileIr(target) => write!(out, "tile_{target}"),
            Self::Other(kind, target) => write!(out, "kind{kind}_{target}"),
        }
    }
}

/// Why a text names no GPU code, compute capability or PTX ISA version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {wanted}")]
pub struct NotGpuCode {
    found: String,
    wanted: &'static str,
}

fn bad(text: &str, wanted: &'static str) -> NotGpuCode {
    NotGpuCode { found: text.chars().take(80).collect(), wanted }
}

/// Reads digits alone: no sign, no empty text.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn dotted(text: &str) -> Option<(u16, u16)> {
    let (major, minor) = text.split_once('.')?;
    Some((number(major)?, number(minor)?))
}

impl FromStr for ComputeCapability {
    type Err = NotGpuCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = dotted(text).ok_or_else(|| bad(text, "a compute capability such as 8.7"))?;
        Ok(Self { major, minor })
    }
}

impl FromStr for PtxIsa {
    type Err = NotGpuCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = dotted(text).ok_or_else(|| bad(text, "a PTX ISA version such as 8.5"))?;
        Ok(Self { major, minor })
    }
}

impl FromStr for Target {
    type Err = NotGpuCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (digits, suffix) = if let Some(digits) = text.strip_suffix('a') {
            (digits, Suffix::Exact)
        } else if let Some(digits) = text.strip_suffix('f') {
            (digits, Suffix::Family)
        } else {
            (text, Suffix::Portable)
        };
        let sm = number(digits).ok_or_else(|| bad(text, "an SM number such as 87, 90a or 110f"))?;
        Ok(Self { capability: ComputeCapability::from_sm(sm), suffix })
    }
}

impl FromStr for GpuCode {
    type Err = NotGpuCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || bad(text, "GPU code such as sm_87 or compute_87 ptx8.5");
        let (name, isa) = match text.split_once(" ptx") {
            Some((name, isa)) => (name, Some(isa.parse::<PtxIsa>()?)),
            None => (text, None),
        };
        let (kind, target) = name.split_once('_').ok_or_else(wrong)?;
        let target = target.parse()?;
        match (kind, isa) {
            ("sm", None) => Ok(Self::Cubin(target)),
            ("compute", Some(isa)) => Ok(Self::Ptx(target, isa)),
            ("relptx", Some(isa)) => Ok(Self::RelocatablePtx(target, isa)),
            ("lto", None) => Ok(Self::LtoIr(target)),
            ("tile", None) => Ok(Self::TileIr(target)),
            (other, None) => {
                let kind = other.strip_prefix("kind").and_then(number).ok_or_else(wrong)?;
                Ok(Self::Other(kind, target))
            }
            _ => Err(wrong()),
        }
    }
}

macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

serde_as_text!(ComputeCapability, PtxIsa, Target, GpuCode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_read_back() {
        for text in [
            "sm_87",
            "sm_90a",
            "sm_110f",
            "compute_120 ptx9.0",
            "relptx_90 ptx8.0",
            "lto_90a",
            "tile_110",
            "kind16_90",
        ] {
            assert_eq!(text.parse::<GpuCode>().unwrap().to_string(), text);
        }
        assert_eq!(ComputeCapability::from_sm(110).to_string(), "11.0");
    }

    #[test]
    fn refuses_other_texts() {
        for text in ["", "sm_", "sm_+7", "sm_87b", "compute_87", "sm_87 ptx8.0", "gpu_87", "sm_99999", "é"] {
            assert!(text.parse::<GpuCode>().is_err(), "{text}");
        }
    }
}
