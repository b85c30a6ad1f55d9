//! Sweeping: snapshots that the retention rule lets go, and blobs that nothing names.
//!
//! A blob stays where its sidecar says that it is held, where any kept snapshot lists it, and for a while after it was
//! written, whatever names it. Sidecar files always stay: what was learned of a refused file is not learned twice. The
//! digests that snapshots list are in memory, 32 bytes each; nothing else grows with the store.

use std::collections::{BTreeMap, HashSet};
use std::sync::{PoisonError, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use serde::Serialize;

use super::blobs::{Found, Part};
use super::postgres::{Lock, Session};
use super::{Error, SnapshotId, Store, arrived};
use crate::digest::Sha256;

/// How many digests a report names.
const MOST_NAMED: usize = 1000;

/// How much of a sidecar file tells whether the blob is held, in bytes: the checksum stands before it.
const SIDECAR_START: u64 = 160;

/// What was, or would be, swept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Sweep {
    /// Whether nothing was removed on purpose.
    pub dry_run: bool,
    /// Snapshots that the retention rule lets go.
    pub snapshots: Vec<SnapshotId>,
    /// How many blobs nothing names.
    pub blobs: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// Their digests, the first 1000.
    pub files: Vec<Sha256>,
    /// How many blobs nothing names, but are younger than the delay.
    pub younger: u64,
    /// Leftovers of imports that were broken off.
    pub imports: u64,
}

/// Nobody takes in the bytes of a digest as long as this is kept.
enum TakesIn<'store> {
    /// Nobody takes in anything in this process, which is the only one.
    Here(#[expect(dead_code, reason = "it is kept for its lock")] RwLockWriteGuard<'store, ()>),
    /// No process takes in that digest.
    Everywhere(#[expect(dead_code, reason = "it is kept for its lock")] Session),
}

impl Store {
    /// Sweeps what nothing names and is older than `delay`.
    ///
    /// Safe beside all else that this process does with the store: a blob is looked at once more, while nobody takes
    /// anything in, before it goes. Where a snapshot cannot be read nothing is removed, for nobody knows what it lists.
    pub fn gc(&self, delay: Duration, dry_run: bool) -> Result<Sweep, Error> {
        let mut sweep = Sweep { dry_run, ..Sweep::default() };
        let expired = self.expired_snapshots(self.keep_snapshots());
        let mut named = HashSet::new();
        for id in self.notes.snapshot_ids()? {
            if !expired.contains(&id) {
                self.each_in_snapshot(&id, |file| {
                    named.insert(file.sha256);
                })?;
            }
        }
        sweep.snapshots = if dry_run { expired } else { self.prune_snapshots()? };
        let now = SystemTime::now();
        let mut removed = BTreeMap::new();
        for part in [Part::Wheel, Part::Metadata] {
            self.places.blobs.list(part, &mut |sha256, found| {
                if !named.contains(&sha256)
                    && self.sweep_one(&sha256, (part, found), (now, delay), &mut sweep)?
                {
                    let [shard, ..] = sha256.0;
                    removed.insert(shard, sha256);
                }
                Ok(())
            })?;
        }
        for sha256 in removed.values() {
            self.places.blobs.settle(sha256)?;
        }
        self.sweep_imports((now, delay), &mut sweep)?;
        if !dry_run {
            arrived::sweep(&self.places.layout, delay)?;
        }
        Ok(sweep)
    }

    /// Removes a part of a digest that no snapshot names, if nothing else does; yields whether it did.
    fn sweep_one(
        &self,
        sha256: &Sha256,
        (part, found): (Part, Found),
        age: (SystemTime, Duration),
        sweep: &mut Sweep,
    ) -> Result<bool, Error> {
        if self.may_be_held(sha256) {
            return Ok(false);
        }
        let is_blob = part == Part::Wheel;
        if !is_older(found.modified, age) {
            sweep.younger = sweep.younger.saturating_add(u64::from(is_blob));
            return Ok(false);
        }
        if !sweep.dry_run {
            // Whoever takes the same bytes in now has either written its sidecar, or comes after the removal.
            let Some(_nobody_takes_in) = self.nobody_takes_in(sha256)? else { return Ok(false) };
            if self.may_be_held(sha256) {
                return Ok(false);
            }
            self.places.blobs.remove(sha256, part)?;
        }
        if is_blob {
            sweep.blobs = sweep.blobs.saturating_add(1);
            sweep.bytes = sweep.bytes.saturating_add(found.stamp.len);
            if sweep.files.len() < MOST_NAMED {
                sweep.files.push(*sha256);
            }
        }
        Ok(!sweep.dry_run)
    }

    /// Whether the sidecar says that the blob is held; a sidecar that cannot be read might.
    fn may_be_held(&self, sha256: &Sha256) -> bool {
        match self.places.blobs.read_start(sha256, Part::Sidecar, SIDECAR_START) {
            Ok(None) => false,
            Ok(Some(start)) => !String::from_utf8_lossy(&start).contains("\",\"held\":false,"),
            Err(_) => true,
        }
    }

    /// Keeps the bytes of a digest from being taken in; none while somebody does.
    fn nobody_takes_in(&self, sha256: &Sha256) -> Result<Option<TakesIn<'_>>, Error> {
        let Some(database) = &self.database else {
            return Ok(Some(TakesIn::Here(self.intake.write().unwrap_or_else(PoisonError::into_inner))));
        };
        let session = database.begin().map_err(|fault| database.error(fault))?;
        let free = session.try_lock(Lock::Intake(sha256)).map_err(|fault| database.error(fault))?;
        Ok(free.then_some(TakesIn::Everywhere(session)))
    }

    /// Folders of imports that were broken off long ago.
    fn sweep_imports(&self, age: (SystemTime, Duration), sweep: &mut Sweep) -> Result<(), Error> {
        let folder = self.places.layout.incoming();
        let Ok(entries) = fs::read_dir(&folder) else { return Ok(()) };
        for entry in entries {
            let path = entry.map_err(Error::io(&folder))?.path();
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if found.is_dir() && is_older(found.modified().ok(), age) {
                sweep.imports = sweep.imports.saturating_add(1);
                if !sweep.dry_run {
                    fs::remove_dir_all(&path).map_err(Error::io(&path))?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a file was last written before that delay. One from the future was not.
fn is_older(modified: Option<SystemTime>, (now, delay): (SystemTime, Duration)) -> bool {
    let age = modified.and_then(|modified| now.duration_since(modified).ok());
    age.is_some_and(|age| age >= delay)
}
