//! Strings of compilers and of code that opens libraries by name.

use std::collections::BTreeSet;

use super::Target;

/// What the strings of a compiler say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompilerStrings {
    /// Targets that it knows: strings such as `compute_90a`.
    pub targets: BTreeSet<Target>,
    /// CUDA release, such as `12.8`, from `Cuda compilation tools, release 12.8, V12.8.93`.
    pub cuda: Option<String>,
}
