//! What a search found, summed up: fatbinaries with the same images in the same section are one row.

use std::collections::{BTreeMap, HashMap};

use super::elf::Sections;
use super::entry::Entry;
use super::{Error, ErrorKind, GpuCode};

/// Fatbinaries whose place is kept until the section table comes by, 16 bytes each. cuFFT, the largest seen, has 18 227.
const MAX_FATBINS: usize = 1 << 18;
/// Distinct images of one fatbinary. The most seen are 20.
const MAX_IMAGES: usize = 512;
/// Images in all distinct sets together, 12 bytes each. cuDNN and cuBLAS, the most varied, have 41 sets.
const MAX_SETS: usize = 1 << 16;
/// Rejected fatbinaries kept until it is known whether they lie in a section of GPU code.
const MAX_REJECTED: usize = 1 << 12;
/// Errors that a scan reports; one is enough to call a file damaged.
pub(super) const MAX_DAMAGE: usize = 64;
/// Sections that hold nothing but fatbinaries: there, a magic that leads nowhere is damage, not chance.
const CUDA_SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];

/// Fatbinaries with the same images in the same section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Section of the ELF file; none outside sections and in other files.
    pub section: Option<String>,
    /// Images, in file order, without repetition.
    pub images: Vec<GpuCode>,
    /// How many fatbinaries.
    pub count: u64,
}

/// Each fatbinary and bare cubin by itself, as [`super::Scanner::detailed`] lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Detail {
    /// Fatbinaries, in file order.
    pub fatbins: Vec<Fatbin>,
    /// Cubins outside fatbinaries, in file order.
    pub cubins: Vec<BareCubin>,
    /// How often the magic of a fatbinary stood where it meant nothing, such as in an instruction.
    pub ignored: u64,
}

/// One fatbinary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fatbin {
    /// Offset in the file.
    pub at: u64,
    /// Size with header, as it states.
    pub size: u64,
    /// Section of the ELF file.
    pub section: Option<String>,
    /// Its images, in file order; up to the damage, where it is damaged.
    pub entries: Vec<Entry>,
    /// Whether it could not be read to its end.
    pub damaged: bool,
}

/// A cubin outside fatbinaries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BareCubin {
    /// Offset in the file.
    pub at: u64,
    /// What it was built for.
    pub code: GpuCode,
    /// Section of the ELF file.
    pub section: Option<String>,
}

/// A fatbinary that was given up before its first image, thus perhaps none.
#[derive(Debug)]
struct Rejected {
    at: u64,
    error: Error,
}

/// Sums up while the file goes by.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The fatbinary at hand: its place, whether it had images, their set, and what is wrong with it.
    at: u64,
    begun: bool,
    images: Vec<GpuCode>,
    bomb: Option<ErrorKind>,
    /// Distinct sets of images, by their number.
    sets: HashMap<Vec<GpuCode>, u32>,
    in_sets: usize,
    /// Where each fatbinary stands, and the number of its set.
    placed: Vec<(u64, u32)>,
    first_fatbin: Option<u64>,
    rejected: Vec<Rejected>,
    cubins: BTreeMap<GpuCode, u64>,
    damage: Vec<Error>,
    full: Option<Error>,
    detail: Option<Detail>,
}

/// A tally at the end of the file, with sections.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) rows: Vec<Row>,
    pub(super) bare_cubins: BTreeMap<GpuCode, u64>,
    pub(super) damage: Vec<Error>,
    pub(super) detail: Option<Detail>,
}

impl Tally {
    /// Begins an empty tally; `detailed` lists each fatbinary too, so that memory grows with their number.
    pub(super) fn new(detailed: bool) -> Self {
        Self { detail: detailed.then(Detail::default), ..Self::default() }
    }

    /// A fatbinary begins.
    pub(super) fn begin(&mut self, at: u64, size: u64) {
        self.at = at;
        self.begun = false;
        self.images.clear();
        self.bomb = None;
        if let Some(detail) = &mut self.detail {
            detail.fatbins.push(Fatbin { at, size, section: None, entries: Vec::new(), damaged: false });
        }
    }

    /// One of its images.
    pub(super) fn image(&mut self, entry: Entry) {
        self.begun = true;
        self.bomb = self.bomb.or(entry.bomb);
        if !self.images.contains(&entry.code) {
            if self.images.len() < MAX_IMAGES {
                self.images.push(entry.code);
            } else {
                self.overflow("different images in one fatbinary", MAX_IMAGES);
            }
        }
        if let Some(fatbin) = self.detail.as_mut().and_then(|detail| detail.fatbins.last_mut()) {
            fatbin.entries.push(entry);
        }
    }

    /// The fatbinary ends well.
    pub(super) fn end(&mut self) {
        if let Some(bomb) = self.bomb {
            self.damaged(bomb.at(self.at));
        }
        self.first_fatbin.get_or_insert(self.at);
        if self.placed.len() >= MAX_FATBINS {
            return self.overflow("fatbinaries", MAX_FATBINS);
        }
        let set = match self.sets.get(&self.images) {
            Some(set) => *set,
            None if self.in_sets.saturating_add(self.images.len()) > MAX_SETS => {
                return self.overflow("images in different fatbinaries", MAX_SETS);
            }
            None => {
                // At least one image is in each set, so their number is below MAX_SETS.
                let set = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
                self.in_sets = self.in_sets.saturating_add(self.images.len());
                self.sets.insert(self.images.clone(), set);
                set
            }
        };
        self.placed.push((self.at, set));
    }

    /// The fatbinary is given up.
    pub(super) fn reject(&mut self, error: Error) {
        if self.begun {
            self.damaged(error);
            if let Some(fatbin) = self.detail.as_mut().and_then(|detail| detail.fatbins.last_mut()) {
                fatbin.damaged = true;
            }
            self.end();
            return;
        }
        if let Some(detail) = &mut self.detail {
            detail.fatbins.pop();
        }
        if self.rejected.len() < MAX_REJECTED {
            self.rejected.push(Rejected { at: self.at, error });
        } else {
            self.overflow("broken fatbinaries", MAX_REJECTED);
        }
    }

    /// A cubin stands outside fatbinaries.
    pub(super) fn cubin(&mut self, at: u64, code: GpuCode) {
        let count = self.cubins.entry(code).or_default();
        *count = count.saturating_add(1);
        if let Some(detail) = &mut self.detail {
            detail.cubins.push(BareCubin { at, code, section: None });
        }
    }

    /// Whether the file begins with a fatbinary, be it a damaged one.
    pub(super) fn begins_with_fatbin(&self) -> bool {
        self.first_fatbin == Some(0) || self.rejected.first().is_some_and(|first| first.at == 0)
    }

    fn damaged(&mut self, error: Error) {
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(error);
        }
    }

    fn overflow(&mut self, what: &'static str, limit: usize) {
        self.full.get_or_insert(ErrorKind::TooMany { what, limit }.at(self.at));
    }

    /// Ends the file: places all in their sections.
    pub(super) fn sum(mut self, sections: &Sections) -> Sum {
        let mut sets = vec![Vec::new(); self.sets.len()];
        for (images, set) in self.sets {
            if let Some(slot) = sets.get_mut(usize::try_from(set).unwrap_or(usize::MAX)) {
                *slot = images;
            }
        }
        let mut rows: Vec<Row> = Vec::new();
        let mut row_of: HashMap<(Option<usize>, u32), usize> = HashMap::new();
        for (at, set) in self.placed {
            let section = sections.index_at(at);
            let row = *row_of.entry((section, set)).or_insert_with(|| {
                let images =
                    sets.get(usize::try_from(set).unwrap_or(usize::MAX)).cloned().unwrap_or_default();
                rows.push(Row { section: section.map(|index| sections.name(index)), images, count: 0 });
                rows.len().saturating_sub(1)
            });
            if let Some(row) = rows.get_mut(row) {
                row.count = row.count.saturating_add(1);
            }
        }

        let total = self.rejected.len();
        let real = self.rejected.into_iter().filter(|rejected| {
            let section = sections.index_at(rejected.at).map(|index| sections.name(index));
            rejected.at == 0 || section.is_some_and(|name| CUDA_SECTIONS.contains(&name.as_str()))
        });
        let real: Vec<Error> = real.map(|rejected| rejected.error).collect();
        let ignored = total.saturating_sub(real.len()) as u64;
        let mut damage = self.damage;
        damage.extend(real);
        damage.sort_by_key(|error| error.at);
        damage.truncate(MAX_DAMAGE);
        damage.extend(self.full);

        if let Some(detail) = &mut self.detail {
            let name = |at| sections.index_at(at).map(|index| sections.name(index));
            detail.fatbins.iter_mut().for_each(|fatbin| fatbin.section = name(fatbin.at));
            detail.cubins.iter_mut().for_each(|cubin| cubin.section = name(cubin.at));
            detail.ignored = ignored;
        }
        Sum { rows, bare_cubins: self.cubins, damage, detail: self.detail }
    }
}
