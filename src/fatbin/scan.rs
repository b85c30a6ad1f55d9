//! One scan of one file: what it is, what GPU code it holds, what it needs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::collect::{Collector, Content, Known};
use super::elf::{ElfFacts, Sections};
use super::search::Search;
use super::signs::{self, Signs};
use super::strings::{Compiler, CompilerStrings, Libraries, is_compiler};
use super::tally::{Detail, Row, Sum, Tally};
use super::{Error, ErrorKind, First, GpuCode};

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
    /// What a host ELF file was compiled against, as far as its strings show it.
    pub signs: Signs,
    /// What is wrong with the file, in file order.
    pub damage: Vec<Error>,
    /// Each fatbinary by itself, from [`Scanner::detailed`].
    pub detail: Option<Detail>,
}

/// A scan in progress, fed with the file from its front to its end, in chunks of any size.
///
/// Memory is bounded by constants, whatever the file claims or holds.
#[derive(Debug)]
pub struct Scanner {
    passed: u64,
    collector: Collector,
    search: Search,
    tally: Tally,
    promise: Option<Promise>,
    compiler: Option<Compiler>,
    libraries: Libraries,
    signs: signs::Gatherer,
}

/// What the end of the file leads to.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per file")]
pub enum Finish {
    /// All is known.
    Done(Scan),
    /// Bytes had gone by before it was known that they are needed: the file is fed again, to the [`Reread`].
    Reread(Reread),
}

/// A scan that needs to see some bytes again.
#[derive(Debug)]
pub struct Reread {
    passed: u64,
    collector: Collector,
    rest: Rest,
}

/// What is known after the first reading, but for sections.
#[derive(Debug)]
struct Rest {
    tally: Tally,
    promise: Option<Promise>,
    first: First,
    size: u64,
    compiler: Option<CompilerStrings>,
    dlopened: Vec<String>,
    signs: Signs,
}

/// What the name of a file says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    Cubin,
    Fatbin,
    Ptx,
}

impl Promise {
    fn of(name: &str) -> Option<Self> {
        match name.rsplit_once('.')?.1 {
            "cubin" => Some(Self::Cubin),
            "fatbin" => Some(Self::Fatbin),
            "ptx" => Some(Self::Ptx),
            _ => None,
        }
    }

    /// Whether the file holds what the name says; an empty file holds nothing, wrongly or rightly.
    fn is_kept(self, format: &Format, size: u64) -> bool {
        let kept = match self {
            Self::Cubin => matches!(format, Format::Cubin(_)),
            Self::Fatbin => matches!(format, Format::Fatbin | Format::Cubin(_) | Format::Elf(_)),
            Self::Ptx => matches!(format, Format::Ptx(_)),
        };
        kept || size == 0
    }

    const fn wanted(self) -> &'static str {
        match self {
            Self::Cubin => "a cubin, 7f 45 4c 46, as the file is named",
            Self::Fatbin => "a fatbinary, 50 ed 55 ba, as the file is named",
            Self::Ptx => "PTX with .version and .target, as the file is named",
        }
    }
}

impl Scanner {
    /// Begins a scan of a file of `size` bytes. Its `name`, without folders, tells compilers from other programs, and
    /// what `.cubin`, `.fatbin` and `.ptx` files should hold.
    pub fn new(name: &str, size: u64) -> Self {
        Self::start(name, size, false)
    }

    /// Begins a scan that also lists each fatbinary: for tests and close looks, since memory grows with their number.
    pub fn detailed(name: &str, size: u64) -> Self {
        Self::start(name, size, true)
    }

    fn start(name: &str, size: u64, detailed: bool) -> Self {
        let name = name.rsplit('/').next().unwrap_or(name);
        Self {
            passed: 0,
            collector: Collector::new(size),
            search: Search::new(size),
            tally: Tally::new(detailed),
            promise: Promise::of(name),
            compiler: is_compiler(name).then(Compiler::default),
            libraries: Libraries::default(),
            signs: signs::Gatherer::default(),
        }
    }

    /// Takes in the next bytes.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.collector.feed(self.passed, chunk);
        self.search.feed(chunk, &mut self.tally);
        if let Some(compiler) = &mut self.compiler {
            compiler.feed(chunk);
        }
        self.libraries.feed(chunk);
        self.signs.feed(chunk);
        self.passed = self.passed.saturating_add(chunk.len() as u64);
    }

    /// Ends the file.
    pub fn finish(mut self) -> Finish {
        self.search.finish(&mut self.tally);
        let rest = Rest {
            tally: self.tally,
            promise: self.promise,
            first: First::of(self.collector.front()),
            size: self.passed,
            compiler: self.compiler.map(Compiler::finish),
            dlopened: self.libraries.finish(),
            signs: self.signs.finish(),
        };
        match self.collector.finish(self.passed) {
            (known, false) => Finish::Done(rest.join(known)),
            (_, true) => Finish::Reread(Reread { passed: 0, collector: self.collector, rest }),
        }
    }
}

impl Reread {
    /// Takes in the next bytes, from the file's start on. Breaks where the rest is not needed.
    pub fn feed(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        self.collector.feed(self.passed, chunk);
        self.passed = self.passed.saturating_add(chunk.len() as u64);
        match self.collector.waits_until(self.passed) {
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }

    /// Ends the second reading.
    pub fn finish(self) -> Scan {
        self.rest.join(self.collector.finish_again())
    }
}

impl Rest {
    fn join(self, known: Known) -> Scan {
        let Known { content, mut damage } = known;
        let begins_with_fatbin = self.tally.begins_with_fatbin();
        let (format, sections) = match content {
            Content::Elf(facts, sections) => (Format::Elf(facts), sections),
            Content::Cubin(code) => (Format::Cubin(code), Sections::default()),
            Content::Ptx(code) => (Format::Ptx(code), Sections::default()),
            Content::Archive => (Format::Archive, Sections::default()),
            Content::Other if begins_with_fatbin => (Format::Fatbin, Sections::default()),
            Content::Other => (Format::Other, Sections::default()),
        };
        let mut dlopened = self.dlopened;
        if let Format::Elf(facts) = &format {
            // Names in the dynamic section are linked, not opened.
            dlopened.retain(|name| !facts.needed.contains(name) && facts.soname.as_ref() != Some(name));
        }
        let signs = if matches!(format, Format::Elf(_)) { self.signs } else { Signs::default() };
        let mut sum = Sum::default();
        // A loose cubin is one image; what else stands in it is its own.
        if !matches!(format, Format::Cubin(_)) {
            sum = self.tally.sum(&sections);
        }
        if let Some(promise) = self.promise.filter(|promise| !promise.is_kept(&format, self.size)) {
            damage.push(ErrorKind::Name { found: self.first, wanted: promise.wanted() }.at(0));
        }
        damage.append(&mut sum.damage);
        damage.sort_by_key(|error| error.at);
        Scan {
            format,
            rows: sum.rows,
            bare_cubins: sum.bare_cubins,
            compiler: self.compiler,
            dlopened,
            signs,
            damage,
            detail: sum.detail,
        }
    }
}
