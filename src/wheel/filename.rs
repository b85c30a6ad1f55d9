//! The file name of a wheel (PEP 427, and the binary distribution format).

use super::ProjectName;

/// The parts of a wheel's file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelFilename {
    /// The name as written.
    pub text: String,
    /// The project, normalized.
    pub project: ProjectName,
    /// The version.
    pub version: pep440_rs::Version,
    /// The build tag: its number and the rest.
    pub build: Option<(u64, String)>,
    /// Python tags.
    pub python: Vec<String>,
    /// ABI tags.
    pub abi: Vec<String>,
    /// Platform tags.
    pub platform: Vec<String>,
}
