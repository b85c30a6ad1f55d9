//! From an archive to facts: all members in parallel, each read once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::archive::{Archive, Entry, Source, plain_path};
use super::class;
use super::member::{self, Buffers, Outcome, Stated};
use super::metadata::{METADATA_CAP, Metadata, wheel_tags};
use super::record::{self, Digest, LONGEST_LINE, RECORD_CAP};
use super::{
    Compiler, CompilerTarget, Damage, DamageCode, Error, Facts, FatbinRow, GpuClass, INSPECTOR, Member,
    MemberKind, ProjectName, WheelFilename,
};
use crate::digest::{Hasher, Sha256};
use crate::fatbin::{Finish, Format, GpuCode, Scan, Scanner};

/// The most things that are said to be wrong with one file; of more, their number is said.
const MOST_DAMAGE: usize = 100;

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

    let mut facts = empty_facts(file, sha256, size);
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
    let mut facts = empty_facts(file, sha256, size);
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

fn empty_facts(file: &str, sha256: Sha256, size: u64) -> Facts {
    Facts {
        file: file.to_owned(),
        sha256,
        size,
        project: None,
        version: None,
        tags: Vec::new(),
        requires_python: None,
        requires_dist: Vec::new(),
        provides_extra: Vec::new(),
        metadata_sha256: None,
        gpu: GpuClass::None,
        members: Vec::new(),
        compilers: Vec::new(),
        images: BTreeMap::new(),
        cuda_sources: 0,
        inspector: INSPECTOR,
        needed_dlopen: Vec::new(),
        damage: Vec::new(),
    }
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

/// What the `.dist-info` folder says.
#[derive(Default)]
struct DistInfo {
    metadata: Option<Metadata>,
    metadata_bytes: Vec<u8>,
    /// What RECORD says of each entry.
    stated: Vec<Stated>,
}

impl DistInfo {
    fn read(
        name: &WheelFilename,
        source: &dyn Source,
        archive: &Archive,
        buffers: &mut Buffers,
        damage: &mut Vec<Damage>,
    ) -> Self {
        let mut info = Self::default();
        let Some(folder) = find_folder(name, archive, damage) else { return info };
        let index: HashMap<String, usize> = archive
            .entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (plain_path(&entry.path), index))
            .collect();
        let mut read = |member: &str, cap| {
            let path = format!("{folder}/{member}");
            let Some(entry) = index.get(&path).and_then(|&index| archive.entries.get(index)) else {
                if !archive.unreadable.iter().any(|unreadable| plain_path(unreadable) == path) {
                    let text = format!("no {path}, expected one in every wheel");
                    damage.push(Damage { code: DamageCode::Damaged, member: None, text });
                }
                return None;
            };
            match member::read_small(source, entry, cap, buffers) {
                Ok(bytes) => Some(bytes),
                Err(problem) => {
                    damage.push(problem);
                    None
                }
            }
        };
        let metadata = read("METADATA", METADATA_CAP);
        let wheel = read("WHEEL", METADATA_CAP);
        let record = read("RECORD", RECORD_CAP);

        if let Some(bytes) = metadata {
            let member = || Some(format!("{folder}/METADATA"));
            match Metadata::parse(&bytes) {
                Ok(metadata) => {
                    for text in name_mismatches(name, &metadata) {
                        damage.push(Damage { code: DamageCode::MetadataMismatch, member: member(), text });
                    }
                    info.metadata = Some(metadata);
                }
                Err(error) => damage.push(Damage {
                    code: DamageCode::MetadataMismatch,
                    member: member(),
                    text: error.to_string(),
                }),
            }
            info.metadata_bytes = bytes;
        }
        if let Some(text) = wheel.and_then(|bytes| tag_mismatch(name, &wheel_tags(&bytes))) {
            let member = Some(format!("{folder}/WHEEL"));
            damage.push(Damage { code: DamageCode::MetadataMismatch, member, text });
        }
        if let Some(bytes) = record {
            info.stated = read_record(&folder, &bytes, &index, archive, damage);
        }
        info
    }
}

/// The `.dist-info` folder: the one that is named after the file, else the only one.
fn find_folder(name: &WheelFilename, archive: &Archive, damage: &mut Vec<Damage>) -> Option<String> {
    let paths = archive.entries.iter().map(|entry| entry.path.as_str());
    let folders: BTreeSet<&str> = paths
        .chain(archive.unreadable.iter().map(String::as_str))
        .filter_map(|path| path.split_once('/'))
        .map(|(folder, _)| folder)
        .filter(|folder| folder.ends_with(".dist-info"))
        .collect();
    let belongs = |folder: &str| {
        let stem = folder.strip_suffix(".dist-info").unwrap_or(folder);
        let (project, version) = stem.rsplit_once('-').unwrap_or((stem, ""));
        project.parse::<ProjectName>().is_ok_and(|project| project == name.project)
            && version.parse::<pep440_rs::Version>().is_ok_and(|version| version == name.version)
    };
    let own = folders.iter().find(|folder| belongs(folder));
    let mut say = |code, text| damage.push(Damage { code, member: None, text });
    match (own, folders.len()) {
        (_, 0) => {
            if archive.unreadable.is_empty() || !archive.entries.is_empty() {
                say(DamageCode::Damaged, format!("no {}.dist-info folder, expected one", name.stem()));
            }
            None
        }
        (Some(folder), 1) => Some((*folder).to_owned()),
        (Some(folder), count) => {
            say(DamageCode::MetadataMismatch, format!("{count} .dist-info folders, expected one"));
            Some((*folder).to_owned())
        }
        (None, _) => {
            let folder = folders.first()?;
            say(
                DamageCode::MetadataMismatch,
                format!("the metadata folder is {folder}, expected {}.dist-info", name.stem()),
            );
            Some((*folder).to_owned())
        }
    }
}

/// Where METADATA names another project or version than the file name.
fn name_mismatches(name: &WheelFilename, metadata: &Metadata) -> Vec<String> {
    let mut texts = Vec::new();
    if metadata.name.parse::<ProjectName>().ok().as_ref() != Some(&name.project) {
        texts.push(format!("Name is {:?}, expected {} as in the file name", metadata.name, name.project));
    }
    if metadata.version.parse::<pep440_rs::Version>().ok().as_ref() != Some(&name.version) {
        let expected = name.version_text();
        texts.push(format!("Version is {:?}, expected {expected} as in the file name", metadata.version));
    }
    texts
}

/// Where the file name claims a python tag, ABI tag or processor that WHEEL does not know.
///
/// The rest of the platform tag may differ: `auditwheel` and vendors rename files without touching WHEEL
/// (cupy-cuda12x 13.6.0 has `linux_aarch64` in it, nvidia-cusparselt-cu13 0.8.0 `manylinux2014_sbsa`).
fn tag_mismatch(name: &WheelFilename, wheel: &[String]) -> Option<String> {
    let parts: Vec<(&str, &str, &str)> = wheel
        .iter()
        .filter_map(|tag| {
            let (rest, platform) = tag.rsplit_once('-')?;
            let (python, abi) = rest.split_once('-')?;
            Some((python, abi, platform))
        })
        .collect();
    if parts.is_empty() {
        return None;
    }
    let known = |(python, abi)| parts.iter().any(|part| (part.0, part.1) == (python, abi));
    let list = || wheel.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some((python, abi)) = name.interpreters().find(|&pair| !known(pair)) {
        return Some(format!("the tags are {}, but the file name claims {python}-{abi}", list()));
    }
    let processors: BTreeSet<&str> = parts.iter().filter_map(|part| processor(part.2)).collect();
    let strange = name
        .platform
        .iter()
        .find(|platform| processor(platform).is_some_and(|processor| !processors.contains(processor)));
    strange
        .filter(|_| !processors.is_empty())
        .map(|platform| format!("the tags are {}, but the file name claims {platform}", list()))
}

/// The processor that a platform tag of Linux ends in.
fn processor(platform: &str) -> Option<&'static str> {
    const PROCESSORS: [(&str, &str); 7] = [
        ("aarch64", "aarch64"),
        ("sbsa", "aarch64"),
        ("x86_64", "x86_64"),
        ("i686", "i686"),
        ("armv7l", "armv7l"),
        ("ppc64le", "ppc64le"),
        ("s390x", "s390x"),
    ];
    PROCESSORS.iter().find(|(end, _)| platform.ends_with(end)).map(|&(_, processor)| processor)
}

/// What RECORD states of each entry; paths without a member and members without a line are damage.
fn read_record(
    folder: &str,
    bytes: &[u8],
    index: &HashMap<String, usize>,
    archive: &Archive,
    damage: &mut Vec<Damage>,
) -> Vec<Stated> {
    let path = format!("{folder}/RECORD");
    let unread = |text: String| Damage { code: DamageCode::HashMismatch, member: Some(path.clone()), text };
    let Ok(text) = std::str::from_utf8(bytes) else {
        damage.push(unread("it is not UTF-8".to_owned()));
        return Vec::new();
    };
    if let Some(longest) = text.split('\n').map(str::len).max().filter(|length| *length > LONGEST_LINE) {
        damage.push(unread(format!("a line of {longest} bytes, expected at most {LONGEST_LINE}")));
        return Vec::new();
    }
    let mut mismatch = |member: &str, text: String| {
        // Kept short here already: RECORD can have very many lines.
        if damage.len() <= MOST_DAMAGE.saturating_mul(2) {
            damage.push(Damage { code: DamageCode::HashMismatch, member: Some(member.to_owned()), text });
        }
    };
    let mut stated = vec![Stated::default(); archive.entries.len()];
    let unreadable: BTreeSet<String> = archive.unreadable.iter().map(|path| plain_path(path)).collect();
    for line in record::lines(text) {
        let plain = plain_path(&line.path.replace('\\', "/"));
        let Some(slot) = index.get(&plain).and_then(|&index| stated.get_mut(index)) else {
            // Byte code that is made at installation is listed by some tools, without a digest.
            if !line.digest.is_empty() && !unreadable.contains(&plain) {
                let text =
                    format!("line {} of RECORD lists it, but the wheel has no such member", line.number);
                mismatch(&line.path, text);
            }
            continue;
        };
        slot.listed = true;
        if plain == path {
            continue;
        }
        slot.size = line.size.parse().ok().or(slot.size);
        if !line.digest.is_empty() {
            match Digest::parse(line.digest) {
                Some(digest) if slot.digest.as_ref().is_some_and(|first| *first != digest) => {
                    mismatch(
                        &line.path,
                        format!("line {} of RECORD contradicts an earlier one", line.number),
                    );
                }
                Some(digest) => slot.digest = Some(digest),
                None => {
                    let digest: String = line.digest.chars().take(100).collect();
                    let line = line.number;
                    mismatch(
                        &plain,
                        format!("line {line} of RECORD states {digest:?}, expected sha256= or stronger"),
                    );
                }
            }
        }
    }
    let exempt = [path.clone(), format!("{path}.jws"), format!("{path}.p7s")];
    for (entry, stated) in archive.entries.iter().zip(&stated) {
        if !stated.listed && !exempt.contains(&plain_path(&entry.path)) {
            mismatch(&entry.path, "RECORD does not list it".to_owned());
        }
    }
    stated
}

/// Adds what a scan of a member, or of the file itself, found.
fn add_scan(facts: &mut Facts, path: &str, size: u64, scan: Scan) {
    facts.needed_dlopen.extend(scan.dlopened);
    if let Some(compiler) = scan.compiler.filter(|compiler| !compiler.targets.is_empty()) {
        facts.compilers.push(Compiler {
            path: path.to_owned(),
            cuda: compiler.cuda,
            targets: compiler.targets.into_iter().map(CompilerTarget).collect(),
        });
    }
    let fatbins: Vec<FatbinRow> = scan
        .rows
        .into_iter()
        .map(|row| FatbinRow { section: row.section, images: row.images, count: row.count })
        .collect();
    let mut member = Member {
        path: path.to_owned(),
        size,
        kind: MemberKind::Other,
        machine: None,
        soname: None,
        needed: Vec::new(),
        runpath: Vec::new(),
        glibc: None,
        glibcxx: None,
        cxxabi: None,
        numpy_abi: scan.signs.numpy(),
        cxx11_abi: scan.signs.cxx11(),
        registered_fatbins: 0,
        fatbins,
        bare_cubins: scan.bare_cubins.into_iter().map(|(code, count)| (image_name(&code), count)).collect(),
        images: BTreeMap::new(),
    };
    match scan.format {
        Format::Elf(elf) => {
            member.kind = MemberKind::Elf;
            member.machine = Some(machine_name(elf.machine));
            member.soname = elf.soname;
            member.needed = elf.needed;
            member.runpath = elf.runpath;
            member.glibc = elf.glibc;
            member.glibcxx = elf.glibcxx;
            member.cxxabi = elf.cxxabi;
            member.registered_fatbins = elf.registered_fatbins;
        }
        Format::Archive => member.kind = MemberKind::Archive,
        Format::Fatbin => member.kind = MemberKind::Fatbin,
        Format::Cubin(code) => {
            member.kind = MemberKind::Cubin;
            member.fatbins.insert(0, FatbinRow { section: None, images: vec![code], count: 1 });
        }
        Format::Ptx(code) => {
            member.kind = MemberKind::Ptx;
            member.fatbins.insert(0, FatbinRow { section: None, images: vec![code], count: 1 });
        }
        Format::Other if member.fatbins.is_empty() && member.bare_cubins.is_empty() => return,
        Format::Other => {}
    }
    for row in &member.fatbins {
        // PTX of two ISA versions for one target is one name, and one fatbinary.
        let names: BTreeSet<String> = row.images.iter().map(image_name).collect();
        for name in names {
            let count = member.images.entry(name).or_default();
            *count = count.saturating_add(row.count);
        }
    }
    facts.members.push(member);
}

/// The name under which images are counted: PTX without its ISA version.
fn image_name(code: &GpuCode) -> String {
    let text = code.to_string();
    text.split_once(' ').map_or(text.clone(), |(name, _)| name.to_owned())
}

fn machine_name(machine: u16) -> String {
    match machine {
        183 => "aarch64".to_owned(),
        62 => "x86_64".to_owned(),
        other => format!("em-{other}"),
    }
}

/// Sums up over the members, in an order that does not depend on the threads.
fn finish_facts(facts: &mut Facts) {
    facts.members.sort_by(|a, b| a.path.cmp(&b.path));
    facts.compilers.sort_by(|a, b| a.path.cmp(&b.path));
    facts.needed_dlopen.sort();
    facts.needed_dlopen.dedup();
    for member in &facts.members {
        for (name, count) in &member.images {
            let total = facts.images.entry(name.clone()).or_default();
            *total = total.saturating_add(*count);
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
