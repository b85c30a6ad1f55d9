//! Needed symbol versions (`.gnu.version_r`), such as `GLIBC_2.28`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::super::ErrorKind;
use super::super::fields::{Fields, reach};
use super::super::strings::Overlap;
use super::super::view::{Range, View};
use super::dynamic::Dynamic;

/// Bytes of the table that are asked for, where only its start is known. Real tables have some hundred.
const MAX_TABLE: u64 = 1 << 16;
/// Records that are read: as many as fit into [`MAX_TABLE`].
const MAX_RECORDS: u64 = 1 << 12;
/// Length of a record, be it of a library or of one of its versions.
const RECORD: u64 = 16;
/// Longest version name; none of digits is longer.
const MAX_VERSION: u64 = 64;
/// Version names kept from a string table that goes by.
const MAX_HARVEST: usize = 1 << 12;
/// Families of versions that are told.
const FAMILIES: [&str; 3] = ["GLIBC_", "GLIBCXX_", "CXXABI_"];

/// Needed versions, by family, as numbers.
#[derive(Debug, Default)]
pub(super) struct Versions(BTreeSet<(&'static str, Vec<u32>)>);

impl Versions {
    /// The highest version of a family, number by number.
    pub(super) fn highest(&self, family: &str) -> Option<String> {
        let of_family = self.0.iter().filter(|(name, _)| *name == family);
        let numbers = of_family.map(|(_, numbers)| numbers).max()?;
        Some(numbers.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
    }
}

/// Splits `GLIBC_2.28` into family and numbers. `None` for other families, and for versions that are no numbers
/// (`GLIBC_PRIVATE`).
fn parse(name: &str) -> Option<(&'static str, Vec<u32>)> {
    FAMILIES.into_iter().find_map(|family| {
        let number =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let numbers = name.strip_prefix(family)?.split('.').map(number).collect::<Option<Vec<u32>>>()?;
        Some((family, numbers))
    })
}

/// Reads the needed versions. What is not at hand is wanted: the table, and the names of versions, or, while it is
/// not known which these are, all names in the string table that look like one.
pub(super) fn read(view: &mut View<'_>, dynamic: &Dynamic, harvest: &Harvest) -> Versions {
    let mut versions = Versions::default();
    let Some((range, libraries)) = dynamic.versions else { return versions };
    let Some(names) = names(view, range, libraries) else {
        let (at, len) = dynamic.strings.range;
        if view.peek(at, len).is_none() && !harvest.is_of(dynamic.strings.range) {
            view.harvest = Some((at, len));
        }
        return versions;
    };
    if harvest.full {
        view.wrong(
            ErrorKind::TooMany { what: "version names", limit: MAX_HARVEST }.at(dynamic.strings.range.0),
        );
    }
    for offset in names {
        let Some((at, len)) = dynamic.strings.place(view, offset.into(), MAX_VERSION) else { continue };
        if let Some(name) = view.text(at, len) {
            versions.0.extend(parse(&name));
        } else if harvest.is_of(dynamic.strings.range) {
            versions.0.extend(harvest.found.get(&at).and_then(|name| parse(name)));
        } else {
            view.wanted.push((at, len));
        }
    }
    versions
}

/// Walks the table: a record per library (`u16` version, `u16` count, `u32` library, `u32` offset of its first
/// version, `u32` offset of the next library), a record per version (`u32` hash, `u16` flags, `u16` index, `u32` name,
/// `u32` offset of the next). Yields offsets of names in the string table, or `None` where it is not at hand.
fn names<'a>(view: &mut View<'a>, (table, room): Range, libraries: u64) -> Option<BTreeSet<u32>> {
    let mut names = BTreeSet::new();
    let mut records = 0_u64;
    let mut record = |view: &mut View<'a>, at: u64| {
        records = records.saturating_add(1);
        let within = at.saturating_sub(table).saturating_add(RECORD);
        if records > MAX_RECORDS || within > room.min(MAX_TABLE) {
            let what = "table of needed versions";
            view.wrong(ErrorKind::TooLarge { what, found: within, limit: room.min(MAX_TABLE) }.at(at));
            return Record::End;
        }
        match view.peek(at, RECORD) {
            Some(bytes) => Record::At(Fields(bytes)),
            None => Record::Absent,
        }
    };
    let mut library_at = table;
    'table: for _ in 0..libraries {
        let library = match record(view, library_at) {
            Record::At(library) => library,
            Record::End => break,
            Record::Absent => return absent(view, table, room),
        };
        let mut version_at = library_at.saturating_add(library.u32(8)?.into());
        for _ in 0..library.u16(2)? {
            let version = match record(view, version_at) {
                Record::At(version) => version,
                Record::End => break 'table,
                Record::Absent => return absent(view, table, room),
            };
            names.insert(version.u32(8)?);
            match version.u32(12)? {
                0 => break,
                next => version_at = version_at.saturating_add(next.into()),
            }
        }
        match library.u32(12)? {
            0 => break,
            next => library_at = library_at.saturating_add(next.into()),
        }
    }
    Some(names)
}

/// A step through the table.
enum Record<'a> {
    At(Fields<'a>),
    End,
    Absent,
}

fn absent(view: &mut View<'_>, table: u64, room: u64) -> Option<BTreeSet<u32>> {
    let len = room.min(MAX_TABLE).min(view.size.saturating_sub(table));
    view.bytes("table of needed versions", table, len);
    None
}

static GLIBC: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("GLIBC"));
static CXXABI: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("CXXABI_"));

/// Names of versions in a string table, gathered as it goes by: which of them are needed is known only behind it.
///
/// The string tables of the largest libraries have tens of megabytes; the names of versions in them are few.
#[derive(Debug, Default)]
pub(in super::super) struct Harvest {
    range: Option<Range>,
    overlap: Overlap,
    /// By their offset in the file.
    found: BTreeMap<u64, String>,
    ended: bool,
    /// Whether it had more names than are kept.
    full: bool,
}

impl Harvest {
    /// Begins with a string table that has not begun to go by.
    pub(in super::super) fn begin(&mut self, range: Range) {
        *self = Self { range: Some(range), ..Self::default() };
    }

    /// Whether it is, or will be, done with a string table.
    pub(in super::super) fn is_of(&self, range: Range) -> bool {
        self.range == Some(range)
    }

    /// Offset behind the last byte that is waited for.
    pub(in super::super) fn waits_until(&self) -> Option<u64> {
        self.range.filter(|_| !self.ended).map(|(at, len)| at.saturating_add(len))
    }

    /// Forgets a table that did not go by as a whole.
    pub(in super::super) fn forget_partial(&mut self) {
        if !self.ended {
            *self = Self::default();
        }
    }

    /// Takes what it needs of a chunk that stands at `base`.
    pub(in super::super) fn feed(&mut self, base: u64, chunk: &[u8]) {
        let Some((at, len)) = self.range.filter(|_| !self.ended) else { return };
        let end = at.saturating_add(len);
        let from = reach(at.saturating_sub(base)).min(chunk.len());
        let to = reach(end.saturating_sub(base)).min(chunk.len());
        let part = chunk.get(from..to).unwrap_or_default();
        let (found, full) = (&mut self.found, &mut self.full);
        let mut gather = |text: &[u8], text_at: u64, starts: std::ops::Range<usize>| {
            for finder in [&*GLIBC, &*CXXABI] {
                Overlap::each(finder, text, starts.clone(), |place| {
                    let name = text.get(place..).unwrap_or_default();
                    let name = name.get(..reach(MAX_VERSION)).unwrap_or(name);
                    let Some(name) = Fields(name).text(0).filter(|name| parse(name).is_some()) else {
                        return;
                    };
                    if found.len() < MAX_HARVEST {
                        found.insert(at.saturating_add(text_at).saturating_add(place as u64), name);
                    } else {
                        *full = true;
                    }
                });
            }
        };
        self.overlap.feed(part, &mut gather);
        if base.saturating_add(chunk.len() as u64) >= end {
            self.overlap.finish(&mut gather);
            self.ended = true;
        }
    }
}
