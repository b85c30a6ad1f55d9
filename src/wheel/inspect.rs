//! From an archive to facts: all members in parallel, each read once.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::archive::{Archive, Entry, Source};
use super::assemble::{add_scan, finish_facts};
use super::class;
use super::dist_info::DistInfo;
use super::member::{self, Buffers, Outcome, Stated};
use super::{Damage, DamageCode, Error, Facts, FatbinRow, INSPECTOR, Member, WheelFilename};
use crate::digest::{Hasher, Sha256};
use crate::fatbin::{Finish, Format, Scan, Scanner};

/// The most things that are said to be wrong with one file; of more, their number is said.
pub(super) const MOST_DAMAGE: usize = 100;

/// The most characters of one of them.
const LONGEST_DAMAGE: usize = 1000;

/// How much the facts of all members may take in memory, in bytes, as [`weight`] estimates it. Those of the largest surveyed
/// wheel take some 300 KB; a wheel of 20,000 loose cubins would take 10 MB.
const FACTS_CAP: u64 = 16 << 20;

/// From how many bytes on a member that outweighs the others is worked on by two threads.
const SHARED_FLOOR: u64 = 32 << 20;

/// How much of the file is hashed at once, in bytes.
const HASHED: usize = 256 << 10;

/// After how many bytes progress is told.
const PROGRESS_STEP: u64 = 4 << 20;

/// How to inspect.
#[derive(Clone, Copy, Default)]
pub struct InspectOptions<'a> {
    /// How many threads inflate and scan; none for as many as there are cores, four at most.
    pub threads: Option<NonZeroUsize>,
    /// The file's digest where the caller knows it, so that the file need not be hashed.
    pub sha256: Option<Sha256>,
    /// Is told how many bytes of all the inflated ones are done; called from several threads.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

impl std::fmt::Debug for InspectOptions<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("InspectOptions")
            .field("threads", &self.threads)
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

impl InspectOptions<'_> {
    fn thread_count(&self) -> usize {
        /// More threads than this wait for the disk and for the largest member, and each has its buffers.
        const MOST: usize = 4;

        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST);
        self.threads.map_or_else(cores, NonZeroUsize::get)
    }
}

/// What inspecting a file yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// What the file contains.
    pub facts: Facts,
    /// The METADATA member, byte for byte; empty where there is none.
    pub metadata: Vec<u8>,
}

/// Inspects a wheel of that file name.
pub fn inspect_wheel_source(
    file: &str,
    source: &dyn Source,
    options: &InspectOptions<'_>,
) -> Result<Inspection, Error> {
    let name: WheelFilename = file.parse()?;
    let io = |source| Error::Io { file: file.to_owned(), source };
    let size = source.size().map_err(io)?;
    let mut archive = Archive::open(file, source)?;
    let mut damage = std::mem::take(&mut archive.damage);
    let mut buffers = Buffers::new();
    let info = DistInfo::read(&name, source, &archive, &mut buffers, &mut damage);

    let total = archive.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
    let progress = Progress::new(total, options);
    let (outcomes, weight, sha256) =
        read_members(source, &archive.entries, &info.stated, options, &progress, total, buffers);
    let sha256 = sha256.map_err(io)?;
    if weight > FACTS_CAP {
        let text = format!("the facts of its members take {weight} bytes, expected at most {FACTS_CAP}");
        // The first, for of the rest only some are said.
        damage.insert(0, Damage { code: DamageCode::Damaged, member: None, text });
    }
    progress.end();

    let mut facts = Facts { inspector: INSPECTOR, ..Facts::blank(file.to_owned(), sha256, size) };
    for (entry, outcome) in archive.entries.iter().zip(outcomes) {
        let Some(outcome) = outcome else { continue };
        damage.extend(outcome.damage);
        // Which of them fit depends on the order in which the threads got to them: so none is kept.
        if let Some(scan) = outcome.scan.filter(|_| weight <= FACTS_CAP) {
            add_scan(&mut facts, &entry.path, entry.size, *scan);
        }
    }
    let paths = archive.entries.iter().map(|entry| entry.path.as_str());
    let class_paths: Vec<&str> = paths.chain(archive.unreadable.iter().map(String::as_str)).collect();
    facts.cuda_sources = class_paths.iter().filter(|path| class::is_cuda_source(path)).count() as u64;
    finish_facts(&mut facts);
    facts.gpu = class::classify(&facts, class_paths.iter().copied());

    facts.project = Some(name.project.clone());
    facts.tags = name.tags().collect();
    let metadata = info.metadata_bytes;
    match info.metadata {
        Some(metadata) => {
            facts.version = Some(metadata.version);
            facts.requires_python = metadata.requires_python;
            facts.requires_dist = metadata.requires_dist;
            facts.provides_extra = metadata.provides_extra;
        }
        None => facts.version = Some(name.version_text().to_owned()),
    }
    facts.metadata_sha256 = (!metadata.is_empty()).then(|| Sha256::of(&metadata));
    facts.damage = shorten(damage);
    Ok(Inspection { facts, metadata })
}

/// Inspects a loose file: an ELF file, cubin, fatbinary, PTX file or archive. Any other has nothing in its facts.
pub fn inspect_file_source(
    file: &str,
    source: &dyn Source,
    options: &InspectOptions<'_>,
) -> Result<Inspection, Error> {
    let io = |source| Error::Io { file: file.to_owned(), source };
    let size = source.size().map_err(io)?;
    let progress = Progress::new(size, options);
    let mut scanner = Scanner::new(file, size);
    let mut hasher = options.sha256.is_none().then(Hasher::default);
    read_file(source, &mut |chunk| {
        scanner.feed(chunk);
        if let Some(hasher) = &mut hasher {
            hasher.update(chunk);
        }
        progress.add(chunk.len() as u64);
        std::ops::ControlFlow::Continue(())
    })
    .map_err(io)?;
    let scan = match scanner.finish() {
        Finish::Done(scan) => scan,
        Finish::Reread(mut reread) => {
            read_file(source, &mut |chunk| reread.feed(chunk)).map_err(io)?;
            reread.finish()
        }
    };
    progress.end();
    let sha256 = options.sha256.or_else(|| hasher.map(Hasher::finish)).unwrap_or_else(|| Sha256::of(&[]));
    let mut facts = Facts { inspector: INSPECTOR, ..Facts::blank(file.to_owned(), sha256, size) };
    facts.damage = scan
        .damage
        .iter()
        .map(|error| Damage { code: DamageCode::Damaged, member: None, text: error.to_string() })
        .collect();
    add_scan(&mut facts, file, size, scan);
    facts.cuda_sources = u64::from(class::is_cuda_source(file));
    finish_facts(&mut facts);
    facts.gpu = class::classify_loose(&facts);
    Ok(Inspection { facts, metadata: Vec::new() })
}

/// Tells how far the work has come, not too often.
struct Progress<'a> {
    done: AtomicU64,
    total: u64,
    tell: Option<&'a (dyn Fn(u64, u64) + Sync)>,
}

impl<'a> Progress<'a> {
    fn new(total: u64, options: &InspectOptions<'a>) -> Self {
        Self { done: AtomicU64::new(0), total, tell: options.progress }
    }

    fn add(&self, count: u64) {
        let Some(tell) = self.tell else { return };
        let before = self.done.fetch_add(count, Ordering::Relaxed);
        let after = before.saturating_add(count);
        if before / PROGRESS_STEP != after / PROGRESS_STEP {
            tell(after.min(self.total), self.total);
        }
    }

    fn end(&self) {
        if let Some(tell) = self.tell {
            tell(self.total, self.total);
        }
    }
}

/// Reads all members, the large ones first, and hashes the file beside them. Outcomes are in the order of the entries; what
/// was found of them weighs as much as is returned, and is dropped past [`FACTS_CAP`].
fn read_members(
    source: &dyn Source,
    entries: &[Entry],
    stated: &[Stated],
    options: &InspectOptions<'_>,
    progress: &Progress<'_>,
    total: u64,
    buffers: Buffers,
) -> (Vec<Option<Outcome>>, u64, io::Result<Sha256>) {
    let threads = options.thread_count();
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(entries.get(index).map_or(0, |entry| entry.size)));
    let next = AtomicUsize::new(0);
    let weighed = AtomicU64::new(0);
    let outcomes: Mutex<Vec<Option<Outcome>>> = Mutex::new(entries.iter().map(|_| None).collect());
    let none = Stated::default();
    let work = |mut buffers: Buffers| {
        while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(entry) = entries.get(index) else { continue };
            let stated = stated.get(index).unwrap_or(&none);
            // It would be the last to end: the second core helps it.
            let shared =
                threads > 1 && entry.size >= SHARED_FLOOR && entry.size > total.saturating_sub(entry.size);
            let mut outcome =
                member::read(source, entry, stated, &mut buffers, shared, &|count| progress.add(count));
            if let Some(scan) = &outcome.scan {
                let added = weight(&entry.path, scan);
                if weighed.fetch_add(added, Ordering::Relaxed).saturating_add(added) > FACTS_CAP {
                    outcome.scan = None;
                }
            }
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(slot) = outcomes.get_mut(index) {
                *slot = Some(outcome);
            }
        }
    };
    let hash = || options.sha256.map_or_else(|| hash_file(source), Ok);
    let sha256 = if threads == 1 {
        work(buffers);
        hash()
    } else {
        std::thread::scope(|scope| {
            let others = threads.min(entries.len().max(1));
            let hashing = scope.spawn(hash);
            for _ in 1..others {
                scope.spawn(|| work(Buffers::new()));
            }
            work(buffers);
            hashing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    };
    (outcomes.into_inner().unwrap_or_else(PoisonError::into_inner), weighed.into_inner(), sha256)
}

/// About how many bytes the facts of a member take in memory.
fn weight(path: &str, scan: &Scan) -> u64 {
    /// A string's place, and what the allocator adds to its bytes.
    const STRING: usize = 40;
    /// An image: in its row, and counted under its name.
    const IMAGE: usize = 64;

    let text = |text: &String| text.len().saturating_add(STRING);
    let texts = |texts: &[String]| texts.iter().map(text).sum::<usize>();
    let images = |count: usize| count.saturating_mul(IMAGE);
    let rows = scan.rows.iter().map(|row| {
        let section = row.section.as_ref().map_or(STRING, text);
        [size_of::<FatbinRow>(), section, images(row.images.len())].iter().sum::<usize>()
    });
    let elf = match &scan.format {
        Format::Elf(elf) => {
            let soname = elf.soname.as_ref().map_or(0, text);
            [texts(&elf.needed), texts(&elf.runpath), soname].iter().sum()
        }
        _ => 0,
    };
    let targets = scan.compiler.as_ref().map_or(0, |compiler| images(compiler.targets.len()));
    let parts = [
        size_of::<Member>(),
        size_of::<Scan>(),
        path.len(),
        texts(&scan.dlopened),
        images(scan.bare_cubins.len()),
        rows.sum(),
        elf,
        targets,
    ];
    parts.iter().map(|part| *part as u64).sum()
}

fn hash_file(source: &dyn Source) -> io::Result<Sha256> {
    let mut hasher = Hasher::default();
    read_file(source, &mut |chunk| {
        hasher.update(chunk);
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(hasher.finish())
}

/// Hands on the whole file in chunks.
fn read_file(
    source: &dyn Source,
    consume: &mut dyn FnMut(&[u8]) -> std::ops::ControlFlow<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; HASHED];
    let mut at: u64 = 0;
    loop {
        match source.read_at(&mut buffer, at) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                at = at.saturating_add(count as u64);
                if consume(buffer.get(..count).unwrap_or_default()).is_break() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Bounds how much is said: names of members and values of fields may have megabytes.
fn shorten(mut damage: Vec<Damage>) -> Vec<Damage> {
    let cut = |text: &mut String| {
        if let Some((end, _)) = text.char_indices().nth(LONGEST_DAMAGE) {
            text.truncate(end);
            text.push('…');
        }
    };
    for Damage { member, text, .. } in &mut damage {
        cut(text);
        if let Some(member) = member {
            cut(member);
        }
    }
    if damage.len() > MOST_DAMAGE {
        let more = damage.len().saturating_sub(MOST_DAMAGE);
        let code = damage.iter().map(|damage| damage.code).min().unwrap_or(DamageCode::Damaged);
        damage.truncate(MOST_DAMAGE);
        damage.push(Damage { code, member: None, text: format!("and at least {more} more of these") });
    }
    damage
}
