//! The `.dist-info` folder of a wheel, held against the file name and the members.

use std::collections::{BTreeSet, HashMap};

use super::archive::{Archive, Source, plain_path};
use super::inspect::MOST_DAMAGE;
use super::member::{self, Buffers, Stated};
use super::metadata::{METADATA_CAP, Metadata, wheel_tags};
use super::record::{self, Digest, LONGEST_LINE, RECORD_CAP};
use super::{Damage, DamageCode, ProjectName, WheelFilename};

/// What the `.dist-info` folder says.
#[derive(Default)]
pub(super) struct DistInfo {
    pub(super) metadata: Option<Metadata>,
    /// The METADATA member, byte for byte.
    pub(super) metadata_bytes: Vec<u8>,
    /// What RECORD says of each entry.
    pub(super) stated: Vec<Stated>,
}

impl DistInfo {
    /// Reads it, and says what is wrong with it.
    pub(super) fn read(
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
