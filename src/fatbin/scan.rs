//! One scan of one file: what it is, what GPU code it holds, what it needs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::elf::{self, ElfFacts, Sections};
use super::search::Search;
use super::strings::CompilerStrings;
use super::tally::{Detail, Row, Tally};
use super::window::Windows;
use super::{Error, GpuCode, cubin, ptx};

/// Bytes kept from the start of each file: headers of ELF files, comments before PTX.
const FRONT: u64 = 1 << 16;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// A host ELF file: library, program or object file.
    Elf(ElfFacts),
    /// An `ar` archive.
    Archive,
    /// A loose cubin.
    Cubin(GpuCode),
    /// A loose fatbinary.
    Fatbin,
    /// A loose PTX file.
    Ptx(GpuCode),
    /// Anything else.
    Other,
}

/// All that a scan yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// What the file is.
    pub format: Format,
    /// Fatbinaries by section and set of images, in order of their first appearance.
    pub rows: Vec<Row>,
    /// Cubins outside fatbinaries, with how often. Their suffix is known as far as an ELF header knows it.
    pub bare_cubins: BTreeMap<GpuCode, u64>,
    /// What the strings say, where the name is that of a compiler.
    pub compiler: Option<CompilerStrings>,
    /// CUDA libraries that strings name, thus perhaps opened by name.
    pub dlopened: Vec<String>,
    /// What is wrong with the file, in file order.
    pub damage: Vec<Error>,
    /// Each fatbinary by itself, from [`Scanner::detailed`].
    pub detail: Option<Detail>,
}

/// A scan in progress, fed with the file from its front to its end, in chunks of any size.
#[derive(Debug)]
pub struct Scanner {
    passed: u64,
    windows: Windows,
    search: Search,
    tally: Tally,
}

/// What the end of the file leads to.
#[derive(Debug)]
pub enum Finish {
    /// All is known.
    Done(Scan),
    /// Bytes had gone by before it was known that they are needed: the file is fed again, to the [`Reread`].
    Reread(Reread),
}

/// A scan that needs to see some bytes again.
#[derive(Debug)]
pub struct Reread(Scan);

impl Scanner {
    /// Begins a scan of a file of `size` bytes. Its `name`, without folders, tells compilers from other programs.
    pub fn new(name: &str, size: u64) -> Self {
        Self::start(name, size, false)
    }

    /// Begins a scan that also lists each fatbinary: for tests and close looks, since memory grows with their number.
    pub fn detailed(name: &str, size: u64) -> Self {
        Self::start(name, size, true)
    }

    fn start(_name: &str, size: u64, detailed: bool) -> Self {
        let mut windows = Windows::default();
        windows.want(0, FRONT.min(size));
        Self { passed: 0, windows, search: Search::new(size), tally: Tally::new(detailed) }
    }

    /// Takes in the next bytes.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.windows.feed(self.passed, chunk);
        self.search.feed(chunk, &mut self.tally);
        self.passed = self.passed.saturating_add(chunk.len() as u64);
    }

    /// Ends the file.
    pub fn finish(mut self) -> Finish {
        self.search.finish(&mut self.tally);
        let front = self.windows.get(0, FRONT.min(self.passed)).unwrap_or_default();
        let format = if let Some(code) = cubin::from_header(front) {
            Format::Cubin(code)
        } else if let Some(facts) = elf::quick(front) {
            Format::Elf(facts)
        } else if let Some(code) = ptx::parse(front) {
            Format::Ptx(code)
        } else if front.starts_with(b"!<arch>\n") || front.starts_with(b"!<thin>\n") {
            Format::Archive
        } else if self.tally.begins_with_fatbin() {
            Format::Fatbin
        } else {
            Format::Other
        };
        let sum = self.tally.sum(&Sections);
        Finish::Done(Scan {
            format,
            rows: sum.rows,
            bare_cubins: sum.bare_cubins,
            compiler: None,
            dlopened: Vec::new(),
            damage: sum.damage,
            detail: sum.detail,
        })
    }
}

impl Reread {
    /// Takes in the next bytes, from the file's start on. Breaks where the rest is not needed.
    pub fn feed(&mut self, _chunk: &[u8]) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    /// Ends the second reading.
    pub fn finish(self) -> Scan {
        self.0
    }
}
