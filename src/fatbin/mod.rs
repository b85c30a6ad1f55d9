//! Which GPU code a file holds: a scanner fed with chunks, front to back, in flat memory.
//!
//! `docs/fatbin.md` describes CUDA's fatbinary format and how each field was established.
//!
//! ```
//! use jetwheel::fatbin::{Finish, Format, Scanner};
//!
//! let text = b"//\n.version 9.0\n.target sm_110f\n";
//! let mut scanner = Scanner::new("kernel.ptx", text.len() as u64);
//! for chunk in text.chunks(7) {
//!     scanner.feed(chunk);
//! }
//! let Finish::Done(scan) = scanner.finish() else { panic!("a file this small is never read again") };
//! assert_eq!(scan.format, Format::Ptx("compute_110f ptx9.0".parse().unwrap()));
//! ```
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unwrap_used
)]

mod capability;
mod error;

mod fields;

mod entry;
mod search;
mod tally;

mod view;
mod window;

mod cubin;
mod elf;
mod ptx;
mod signs;
mod strings;

mod collect;
mod scan;

pub use capability::{ComputeCapability, GpuCode, NotGpuCode, PtxIsa, Suffix, Target};
pub use elf::ElfFacts;
pub use entry::{Compression, Entry};
pub use error::{Error, ErrorKind, First};
pub use scan::{Finish, Format, Reread, Scan, Scanner};
pub use signs::Signs;
pub use strings::CompilerStrings;
pub use tally::{BareCubin, Detail, Fatbin, Row};
