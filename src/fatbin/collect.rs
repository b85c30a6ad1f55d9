//! Keeps those bytes of a file that say what it is and needs, as it goes by once, or a second time.

use super::elf::{self, ElfFacts, Harvest, Identity, Sections};
use super::view::View;
use super::window::Windows;
use super::{Error, ErrorKind, GpuCode, cubin, ptx};

/// Bytes kept from the start of each file: headers of ELF files, comments before PTX.
const FRONT: u64 = 1 << 16;
/// Length of the ELF header, from which the rest is planned.
const HEADER: u64 = 64;

/// Bytes kept so far.
#[derive(Debug)]
pub(super) struct Collector {
    windows: Windows,
    harvest: Harvest,
    size: u64,
}

/// What the kept bytes say.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) content: Content,
    pub(super) damage: Vec<Error>,
}

/// What a file is, as its front says.
#[derive(Debug)]
pub(super) enum Content {
    /// A host ELF file.
    Elf(ElfFacts, Sections),
    /// A cubin.
    Cubin(GpuCode),
    /// PTX.
    Ptx(GpuCode),
    /// An `ar` archive.
    Archive,
    /// Anything else.
    Other,
}

impl Collector {
    /// Begins with the front of a file of `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        let mut windows = Windows::default();
        windows.want(0, HEADER.min(size));
        windows.want(0, FRONT.min(size));
        Self { windows, harvest: Harvest::default(), size }
    }

    /// Takes what is needed of a chunk that stands at `base`.
    pub(super) fn feed(&mut self, base: u64, chunk: &[u8]) {
        self.harvest.feed(base, chunk);
        let mut completed = self.windows.feed(base, chunk);
        // Each round but the last makes a window whole, and their number is bounded.
        while completed {
            let mut view = View::new(&self.windows, self.size);
            read(&mut view, &self.harvest);
            let View { wanted, likely, harvest, .. } = view;
            for (at, len) in likely {
                let ahead = at.max(base);
                let len = at.saturating_add(len).min(self.size).saturating_sub(ahead);
                self.windows.want(ahead, len);
            }
            for (at, len) in wanted.into_iter().filter(|(at, _)| *at >= base) {
                self.windows.want(at, len);
            }
            if let Some(range) = harvest.filter(|(at, _)| *at >= base) {
                self.harvest.begin(range);
                self.harvest.feed(base, chunk);
            }
            completed = self.windows.feed(base, chunk);
        }
    }

    /// Ends the file, of which `passed` bytes came: what they say, and whether some are needed once more.
    pub(super) fn finish(&mut self, passed: u64) -> (Known, bool) {
        self.size = passed;
        let mut view = View::new(&self.windows, passed);
        let content = read(&mut view, &self.harvest);
        let View { wanted, harvest, damage, .. } = view;
        let again = !wanted.is_empty() || harvest.is_some();
        if again {
            self.windows.forget_partial();
            self.harvest.forget_partial();
            for (at, len) in wanted {
                self.windows.want(at, len);
            }
            if let Some(range) = harvest {
                self.harvest.begin(range);
            }
        }
        (Known { content, damage }, again)
    }

    /// Ends a second reading. What is still not at hand is damage.
    pub(super) fn finish_again(&self) -> Known {
        let mut view = View::new(&self.windows, self.size);
        let content = read(&mut view, &self.harvest);
        for (at, len) in view.wanted.clone().into_iter().chain(view.harvest) {
            view.wrong(ErrorKind::Unread { len }.at(at));
        }
        Known { content, damage: view.damage }
    }

    /// Offset behind the last byte that is waited for from `at` on.
    pub(super) fn waits_until(&self, at: u64) -> Option<u64> {
        let harvest = self.harvest.waits_until().filter(|end| *end > at);
        self.windows.waits_until(at).max(harvest)
    }

    /// The first bytes of the file.
    pub(super) fn front(&self) -> &[u8] {
        self.windows.longest(0)
    }
}

fn read(view: &mut View<'_>, harvest: &Harvest) -> Content {
    let front = view.front();
    if let Some(identity) = Identity::parse(front) {
        if !identity.is_read {
            let facts = ElfFacts {
                machine: identity.machine,
                object_type: identity.object_type,
                ..ElfFacts::default()
            };
            return Content::Elf(facts, Sections::default());
        }
        if cubin::from_header(front).is_some()
            && let Some(code) = cubin::read(view)
        {
            return Content::Cubin(code);
        }
        let (facts, sections) = elf::read(view, harvest);
        return Content::Elf(facts, sections);
    }
    if front.starts_with(b"!<arch>\n") || front.starts_with(b"!<thin>\n") {
        Content::Archive
    } else if let Some(code) = ptx::parse(front) {
        Content::Ptx(code)
    } else {
        Content::Other
    }
}
