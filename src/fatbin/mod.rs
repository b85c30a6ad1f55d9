//! Which GPU code a file holds: a scanner fed with chunks, front to back, in flat memory.
//!
//! `docs/fatbin.md` describes CUDA's fatbinary format and how each field was established.

mod capability;

pub use capability::{ComputeCapability, GpuCode, NotGpuCode, PtxIsa, Suffix, Target};
