//! Frozen lists of files, and the channels that name one of them.
//!
//! A snapshot is one file, `snapshots/<id>.json`, written once and never changed:
//!
//! ```text
//! {"format":1,"checksum":"<64 hex>","id":"20261130T075300Z-1",…,"count":2,"bytes":9,"set":"<64 hex>","files":[
//! {"project":"demo","file":"demo-1.0-py3-none-any.whl","sha256":"<64 hex>","size":4},
//! …],"policy":[{"name":"rules.toml","text":"…"}]}
//! ```
//!
//! `checksum` is the SHA-256 of all that follows its own closing quote and comma. `set` is that of the files and the
//! policy alone: two snapshots with one `set` say the same. What a snapshot lists is fixed; verdicts are not in it, for
//! they are computed whenever a page is asked for. The site's policy files of its time are there for comparisons alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::sync::MutexGuard;

use serde::{Deserialize, Serialize};

use super::catalogue::record::{Light, SUM, parse_file_key, parse_payload, project_prefix, strange};
use super::catalogue::{Fault, Records as _};
use super::notes::Turn;
use super::{Error, Provenance, Store, locked};
use crate::digest::{Hasher, Sha256};
use crate::wheel::ProjectName;

mod channel;
mod difference;
mod id;
mod index;
mod read;

pub use channel::{CHANNELS, Channel};
pub use difference::{ChangedFile, Difference};
pub use id::{NotASnapshotId, SnapshotId};
pub(super) use index::Index;

/// What a snapshot file begins with; the number is the format's version.
const HEAD: &str = r#"{"format":1,"checksum":""#;

/// Stands for the checksum until the rest is written.
const NO_CHECKSUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What stands between the head and the files.
const FILES: &str = ",\"files\":[";

/// The longest name of a snapshot, in bytes: it becomes a part of URLs.
const LONGEST_NAME: usize = 64;

/// Words that select something else than a snapshot's name.
const RESERVED: [&str; 2] = ["newest", "live"];

/// What is known of a snapshot without its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotHead {
    /// Its id.
    pub id: SnapshotId,
    /// The name that it was given.
    #[serde(default)]
    pub name: Option<String>,
    /// When it was made, RFC 3339 in UTC, as the machine's clock said.
    pub created: String,
    /// What it was made for: `add`, `sync`, `import`, `create`.
    pub reason: String,
    /// Site and snapshot that it is a copy of, where it came in a bundle.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// How many files it lists.
    pub count: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// Digest of its files and its policy.
    pub set: Sha256,
}

/// The snapshot of another site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The site's id.
    pub site: String,
    /// The snapshot's id there.
    pub snapshot: SnapshotId,
}

/// One file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SnapshotFile {
    /// Its project.
    pub project: ProjectName,
    /// File name.
    pub file: String,
    /// Digest of its bytes.
    pub sha256: Sha256,
    /// Size in bytes.
    pub size: u64,
}

/// A file of the site's policy, as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFile {
    /// Its name, relative to the policy folder.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A whole snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// All but its files.
    #[serde(flatten)]
    pub head: SnapshotHead,
    /// The files, by project and name.
    pub files: Vec<SnapshotFile>,
    /// The site's policy of its time.
    #[serde(skip)]
    pub policy: Vec<PolicyFile>,
}

/// What a new snapshot shall say of itself.
#[derive(Debug, Clone, Default)]
pub struct NewSnapshot {
    /// What it is made for.
    pub reason: String,
    /// A name, which no other snapshot has.
    pub name: Option<String>,
    /// What it is a copy of.
    pub origin: Option<Origin>,
    /// The site's policy files.
    pub policy: Vec<PolicyFile>,
    /// Whether it is made even where the newest one says the same.
    pub always: bool,
    /// Whether files that their upstream lists no more are left out, besides those that others replaced.
    pub without_gone: bool,
}

/// What a list of files amounts to.
struct Totals {
    count: u64,
    bytes: u64,
    hasher: Hasher,
}

impl Totals {
    fn new(policy: &[PolicyFile]) -> Self {
        let mut hasher = Hasher::default();
        for PolicyFile { name, text } in policy {
            hasher.update(format!("{name}\0{}\0{text}", text.len()).as_bytes());
        }
        Self { count: 0, bytes: 0, hasher }
    }

    fn add(&mut self, file: &SnapshotFile) {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(file.size);
        self.hasher.update(format!("\0{}\0{}\0{}", file.project, file.file, file.sha256).as_bytes());
    }
}

impl Store {
    /// Freezes what is held now: durable, and to be seen, when this returns. None where the newest snapshot says the same,
    /// or where there is nothing to freeze yet.
    ///
    /// Writers wait meanwhile, so that it is a state that the store had.
    pub fn take_snapshot(&self, new: &NewSnapshot) -> Result<Option<SnapshotId>, Error> {
        if self.database.is_some() {
            return self.put_snapshot(new, &self.held_files()?);
        }
        let turn = locked(&self.writer);
        let mut totals = Totals::new(&new.policy);
        self.each_held(new.without_gone, |file| {
            totals.add(&file);
            Ok(())
        })?;
        let made = self.write_snapshot(new, totals, |put| self.each_held(new.without_gone, put))?;
        drop(turn);
        Ok(made)
    }

    /// Freezes a list that is given, sorted by project and file name. The caller has checked that all of it is held.
    pub fn put_snapshot(
        &self,
        new: &NewSnapshot,
        files: &[SnapshotFile],
    ) -> Result<Option<SnapshotId>, Error> {
        let mut totals = Totals::new(&new.policy);
        for file in files {
            totals.add(file);
        }
        self.write_snapshot(new, totals, |put| {
            files.iter().cloned().try_for_each(put).map_err(unwritten(self))
        })
    }

    /// Writes a snapshot file. `each` hands over its files, those that the totals were made from.
    fn write_snapshot(
        &self,
        new: &NewSnapshot,
        totals: Totals,
        each: impl FnOnce(&mut dyn FnMut(SnapshotFile) -> io::Result<()>) -> Result<(), Error>,
    ) -> Result<Option<SnapshotId>, Error> {
        let (mut index, turn) = self.snapshots_turn()?;
        let set = totals.hasher.finish();
        let same = |newest: &SnapshotHead| newest.set == set && newest.origin == new.origin;
        let newest = index.heads.values().next_back();
        if !new.always && (newest.is_some_and(same) || (newest.is_none() && totals.count == 0)) {
            return Ok(None);
        }
        if let Some(name) = &new.name {
            index.check_name(name)?;
        }
        self.places.layout.check_space(totals.count.saturating_mul(300))?;
        let now = jiff::Timestamp::now();
        let head = SnapshotHead {
            id: SnapshotId::after(index.heads.keys().next_back(), now),
            name: new.name.clone(),
            created: now.to_string(),
            reason: new.reason.clone(),
            origin: new.origin.clone(),
            count: totals.count,
            bytes: totals.bytes,
            set,
        };
        let path = self.notes.snapshot_name(&head.id);
        let folder = self.places.layout.spool();
        let spooled =
            tempfile::Builder::new().prefix("new-").tempfile_in(&folder).map_err(Error::io(&folder))?;
        let mut out = Hashing { out: io::BufWriter::new(spooled), hasher: Hasher::default() };
        let failed = Error::io(&path);
        let written = out.out.write_all(format!("{HEAD}{NO_CHECKSUM}\",").as_bytes()).and_then(|()| {
            let json = serde_json::to_string(&head)?;
            let body = json.strip_prefix('{').and_then(|json| json.strip_suffix('}')).unwrap_or(&json);
            out.write_all(body.as_bytes())?;
            out.write_all(FILES.as_bytes())
        });
        written.map_err(failed)?;
        let mut between = "\n";
        each(&mut |file| {
            out.write_all(between.as_bytes())?;
            between = ",\n";
            serde_json::to_writer(&mut out, &file)?;
            Ok(())
        })?;
        let ended = out.write_all(b"],\"policy\":").and_then(|()| {
            serde_json::to_writer(&mut out, &new.policy)?;
            out.write_all(b"}\n")?;
            let checksum = out.hasher.finish().to_string();
            let mut spooled = out.out.into_inner().map_err(io::IntoInnerError::into_error)?;
            spooled.seek(SeekFrom::Start(HEAD.len() as u64))?;
            spooled.write_all(checksum.as_bytes())?;
            Ok(spooled)
        });
        turn.put_snapshot(&head.id, ended.map_err(Error::io(&path))?)?;
        index.as_of = turn.finish()?;
        let id = head.id.clone();
        index.heads.insert(id.clone(), head);
        Ok(Some(id))
    }

    /// Visits the held files that no others replaced, or those of them that their upstreams still list, by project and name.
    fn each_held(
        &self,
        without_gone: bool,
        mut visit: impl FnMut(SnapshotFile) -> io::Result<()>,
    ) -> Result<(), Error> {
        // Damage found here is mended by the read.
        self.read(|catalogue| catalogue.record(SUM))?;
        let place = self.catalogue()?;
        let Some(catalogue) = place.as_ref() else {
            return Err(self.refusal(Fault::closed()));
        };
        let mut unwritten = None;
        let scanned = catalogue.scan(b"f", &mut |key, payload| {
            let project = key.get(1..).and_then(|rest| rest.split(|byte| *byte == 0).next());
            let project =
                project.and_then(|name| std::str::from_utf8(name).ok()).and_then(|name| name.parse().ok());
            let project: ProjectName = project.ok_or_else(|| strange(key))?;
            let named = parse_file_key(key, &project_prefix(&project));
            let (file, sha256) = named.ok_or_else(|| strange(key))?;
            let light: Light = parse_payload(key, payload)?;
            let Provenance { gone_since, replaced_since, .. } = &light.provenance;
            let left_out = replaced_since.is_some() || (without_gone && gone_since.is_some());
            if light.held && !left_out && unwritten.is_none() {
                unwritten = visit(SnapshotFile { project, file, sha256, size: light.size }).err();
            }
            Ok(())
        });
        scanned.map_err(|fault| self.refusal(fault))?;
        unwritten.map_or(Ok(()), |error| Err(Error::io(&self.places.layout.snapshots())(error)))
    }

    /// All held files that no others replaced, by project and name: what a snapshot of now would list.
    pub fn held_files(&self) -> Result<Vec<SnapshotFile>, Error> {
        let mut files = Vec::new();
        self.each_held(false, |file| {
            files.push(file);
            Ok(())
        })?;
        Ok(files)
    }

    /// All snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotHead> {
        locked(&self.snapshots).heads.values().cloned().collect()
    }

    /// The snapshot of an id or a name, or the one that a channel names.
    pub fn find_snapshot(&self, selector: &str) -> Option<SnapshotId> {
        locked(&self.snapshots).find(selector)
    }

    /// Removes a snapshot file; its blobs are `gc`'s part. Refused where a channel names it.
    pub fn remove_snapshot(&self, id: &SnapshotId) -> Result<(), Error> {
        let (mut index, turn) = self.snapshots_turn()?;
        if let Some(channel) = index.channel_of(id) {
            return Err(Error::SnapshotInUse { snapshot: id.to_string(), channel });
        }
        turn.remove_snapshot(id)?;
        index.as_of = turn.finish()?;
        index.heads.remove(id);
        Ok(())
    }

    /// The index, and the right to change it.
    pub(super) fn snapshots_turn(&self) -> Result<(MutexGuard<'_, Index>, Turn<'_>), Error> {
        let turn = self.notes.snapshots_turn()?;
        let newer = if turn.is_shared() { Some(Index::read(&turn)?) } else { None };
        let mut index = locked(&self.snapshots);
        if let Some(newer) = newer {
            *index = Index { as_of: index.as_of, ..newer };
        }
        Ok((index, turn))
    }

    /// The snapshots that the retention rule lets go: all but the newest `keep`, those with a name, and those to which a
    /// channel points or would be rolled back.
    pub fn expired_snapshots(&self, keep: usize) -> Vec<SnapshotId> {
        let index = locked(&self.snapshots);
        let pinned: BTreeSet<&SnapshotId> = index
            .channels
            .values()
            .flat_map(|channel| std::iter::once(&channel.current).chain(channel.history.last()))
            .collect();
        let old = index.heads.values().rev().skip(keep.max(1));
        old.filter(|head| head.name.is_none() && !pinned.contains(&head.id))
            .map(|head| head.id.clone())
            .collect()
    }

    /// Follows the retention rule; yields what it removed.
    pub fn prune_snapshots(&self) -> Result<Vec<SnapshotId>, Error> {
        let expired = self.expired_snapshots(self.keep_snapshots());
        for id in &expired {
            self.remove_snapshot(id)?;
        }
        Ok(expired)
    }

    /// How many snapshots the retention rule keeps.
    pub fn keep_snapshots(&self) -> usize {
        self.keep_snapshots.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Sets how many snapshots the retention rule keeps.
    pub fn set_keep_snapshots(&self, keep: usize) {
        self.keep_snapshots.store(keep.max(1), std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether there is a snapshot of that id, even one that is damaged.
    pub fn has_snapshot(&self, id: &SnapshotId) -> Result<bool, Error> {
        Ok(self.notes.snapshot_ids()?.contains(id))
    }
}

fn unwritten(store: &Store) -> impl FnOnce(io::Error) -> Error + use<> {
    Error::io(&store.places.layout.snapshots())
}

/// Hashes all that is written through it.
struct Hashing<W> {
    out: W,
    hasher: Hasher,
}

impl<W: io::Write> io::Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hasher.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What the server needs of a snapshot: the digests of each project's files, by file name.
pub type FilesByProject = BTreeMap<ProjectName, BTreeSet<(String, Sha256)>>;
