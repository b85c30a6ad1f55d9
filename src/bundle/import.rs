//! Taking a bundle in: signature, then every hash, then every wheel's content, and the switch last.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use fs_err as fs;
use serde::Serialize;

use super::stage::{self, Stage, staged};
use super::vouch::{OverAll, diagnosis, verified_start};
use super::{Error, Manifest, Packed, PublicKey};
use crate::digest::Sha256;
use crate::store::{LOCAL, NewSnapshot, Origin, PolicyFile, Provenance, SnapshotId, Store};
use crate::wheel::{Facts, InspectOptions, inspect_wheel_as};

/// What is believed of bundles.
#[derive(Debug, Default)]
pub struct Trust {
    /// The key that must have signed it; none where nothing is asked of a signature.
    pub key: Option<PublicKey>,
    /// Whether a bundle that is older than one taken before is taken.
    pub allow_older: bool,
}

/// What an import works with.
pub struct Means<'m> {
    /// Where the wheels go.
    pub store: &'m Store,
    /// Called with the bundle's policy before the switch.
    pub policy: &'m mut dyn FnMut(&Manifest) -> io::Result<()>,
    /// Told which wheel is being read.
    pub progress: &'m mut dyn FnMut(&str),
}

impl std::fmt::Debug for Means<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Means")
    }
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Id of the site that made the bundle.
    pub site: String,
    /// The snapshot there.
    pub origin: SnapshotId,
    /// The snapshot here that lists the same files.
    pub snapshot: Option<SnapshotId>,
    /// The devices that it is for.
    pub devices: Vec<String>,
    /// `verified`, or `unchecked` where no key was given.
    pub signature: &'static str,
    /// How many wheels were taken in.
    pub taken: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many wheels of the bundle were here before.
    pub known: u64,
    /// Wheels in which this program reads something else than the sender did; what it reads counts.
    pub facts_differ: Vec<String>,
    /// Names of the bundle's policy files.
    pub policy: Vec<String>,
    /// Names of the bundle's lock files.
    pub locks: Vec<String>,
}

/// Takes a bundle in.
///
/// Until all is verified everything lies in a folder of its own, and no page changes. What was unpacked before an
/// interruption is not unpacked again.
pub fn import(bundle: &Path, trust: &Trust, means: &mut Means<'_>) -> Result<Imported, Error> {
    let store = means.store;
    let (start, over_all) = verified_start(bundle, trust.key.as_ref())?;
    let manifest = start.manifest;
    drop(start.text);
    if let Some(newest) = store.imported(&manifest.site)?
        && manifest.snapshot < newest
        && !trust.allow_older
    {
        return Err(Error::Older { site: manifest.site, found: manifest.snapshot, newest });
    }
    let packed: HashSet<Sha256> = manifest.wheels.iter().map(|wheel| wheel.sha256).collect();
    let mut held = HashSet::new();
    for file in &manifest.files {
        if is_held(store, &file.sha256, &file.file)? {
            held.insert((file.sha256, file.file.clone()));
        } else if !packed.contains(&file.sha256) {
            let delta = manifest.base.is_some();
            return Err(Error::Missing { file: file.file.clone(), sha256: file.sha256, delta });
        }
    }
    let folder = store.dir().join("incoming").join(format!("{}-{}", manifest.site, manifest.snapshot));
    fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
    let new = |wheel: &&Packed| !held.contains(&(wheel.sha256, wheel.file.clone()));
    let room = manifest.wheels.iter().filter(new).filter(|wheel| !staged(&folder, &wheel.sha256).exists());
    store.check_room(room.map(|wheel| wheel.size).sum())?;
    let is_held = |wheel: &Packed| !new(&wheel);
    let facts_differ = read_all(bundle, &manifest, &folder, &is_held, over_all.as_ref(), means.progress)?;

    let mut imported = Imported {
        site: manifest.site.clone(),
        origin: manifest.snapshot.clone(),
        snapshot: None,
        devices: manifest.devices.clone(),
        signature: if trust.key.is_some() { "verified" } else { "unchecked" },
        taken: 0,
        bytes: 0,
        known: 0,
        facts_differ,
        policy: manifest.policy.iter().map(|text| text.name.clone()).collect(),
        locks: manifest.locks.iter().map(|text| text.name.clone()).collect(),
    };
    // All is right: from here on only a disk can fail.
    for (place, wheel) in manifest.wheels.iter().enumerate() {
        if new(&wheel) {
            take(store, wheel, place, &folder)?;
            imported.taken = imported.taken.saturating_add(1);
            imported.bytes = imported.bytes.saturating_add(wheel.size);
        } else {
            imported.known = imported.known.saturating_add(1);
        }
    }
    (means.policy)(&manifest).map_err(Error::io(store.dir()))?;
    imported.snapshot = switch(store, &manifest)?;
    store.note_import(&manifest.site, &manifest.snapshot)?;
    fs::remove_dir_all(&folder).map_err(Error::io(&folder))?;
    store.prune_snapshots()?;
    Ok(imported)
}

/// Reads the whole bundle once: unpacks its wheels, hashes them and inspects them anew, while the signature over all bytes is
/// verified. Yields the wheels in which something else was read than the sender did.
///
/// Three things go on at a time, so that two cores are busy: the archive is read front to back; each wheel whose digest is
/// right is inspected while the next one is unpacked; and the disk is made to write what was unpacked.
fn read_all(
    bundle: &Path,
    manifest: &Manifest,
    folder: &Path,
    is_held: &dyn Fn(&Packed) -> bool,
    over_all: Option<&OverAll<'_>>,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<String>, Error> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let verifying = over_all.map(|over_all| scope.spawn(|| over_all.verify(bundle, &stop)));
        let (unpacked, to_inspect) = mpsc::channel();
        let inspecting = scope.spawn(|| inspect_each(manifest, folder, to_inspect));
        let (written, to_sync) = mpsc::channel();
        let syncing = scope.spawn(|| sync_each(to_sync));

        let mut found = |place: usize| {
            let Some(wheel) = manifest.wheels.get(place).filter(|wheel| !is_held(wheel)) else {
                return Ok(());
            };
            let _ended = written.send(staged(folder, &wheel.sha256));
            // Whoever inspects ends at the first damaged wheel, and says so below.
            unpacked
                .send(place)
                .map_err(|_| Error::Damaged { file: wheel.file.clone(), found: String::new() })
        };
        let mut stage = Stage { folder: Some(folder), held: is_held, progress, found: &mut found };
        let unpacking = stage::wheels(bundle, manifest, &mut stage);
        drop((unpacked, written));
        let inspected = joined(inspecting);
        joined(syncing);
        let outcome = match (unpacking, inspected) {
            (_, Err(error)) | (Err(error), _) => Err(error),
            (Ok(()), Ok(differ)) => Ok(differ),
        };
        let ours = outcome.as_ref().is_err_and(|error| matches!(error, Error::Io { .. } | Error::Store(_)));
        stop.store(ours, Ordering::Relaxed);
        let verified = verifying.map(joined);
        match (verified, over_all) {
            // What is wrong with the bytes is told as what was changed in them.
            (Some(Err(Error::Tampered { .. })), Some(over_all)) if !ours => {
                Err(diagnosis(bundle, over_all.key))
            }
            (Some(Err(error)), _) if !ours => Err(error),
            _ => outcome,
        }
    })
}

/// What a thread yields; its panic goes on here.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Inspects the wheels of these places in the manifest; yields those in which something else was read than the sender did.
fn inspect_each(
    manifest: &Manifest,
    folder: &Path,
    places: mpsc::Receiver<usize>,
) -> Result<Vec<String>, Error> {
    let mut differ = Vec::new();
    for place in places {
        let Some(wheel) = manifest.wheels.get(place) else { continue };
        if !inspect(wheel, place, folder)? {
            differ.push(wheel.file.clone());
        }
    }
    Ok(differ)
}

/// Has the disk write files as they come. The store does so once more before it promises anything, and then waits less.
fn sync_each(paths: mpsc::Receiver<PathBuf>) {
    for path in paths {
        let _said_later = fs::File::open(&path).and_then(|file| file.sync_data());
    }
}

fn is_held(store: &Store, sha256: &Sha256, file: &str) -> Result<bool, Error> {
    Ok(store.row_named(sha256, file)?.is_some_and(|row| row.held))
}

/// Reads what a wheel contains and keeps it beside the wheel; yields whether the sender read the same.
fn inspect(wheel: &Packed, place: usize, folder: &Path) -> Result<bool, Error> {
    let path = staged(folder, &wheel.sha256);
    let options = InspectOptions { sha256: Some(wheel.sha256), ..InspectOptions::default() };
    let damaged = |found: String| Error::Damaged { file: wheel.file.clone(), found };
    let inspection =
        inspect_wheel_as(&wheel.file, &path, &options).map_err(|error| damaged(error.to_string()))?;
    if let Some(damage) = inspection.facts.damage.first() {
        return Err(damaged(damage.text.clone()));
    }
    let (facts, member) = beside(folder, wheel, place);
    let item = Path::new(&wheel.file);
    let text = serde_json::to_vec(&inspection.facts).map_err(|error| Error::io(item)(error.into()))?;
    fs::write(&facts, text).map_err(Error::io(item))?;
    fs::write(&member, &inspection.metadata).map_err(Error::io(item))?;
    Ok(inspection.facts.agree_with(&wheel.facts))
}

/// Where the facts and the METADATA member of a wheel lie; of one digest there may be several names.
fn beside(folder: &Path, wheel: &Packed, place: usize) -> (PathBuf, PathBuf) {
    let name = |ending: &str| folder.join(format!("{}-{place}.{ending}", wheel.sha256));
    (name("json"), name("metadata"))
}

/// Moves a wheel into the store.
fn take(store: &Store, wheel: &Packed, place: usize, folder: &Path) -> Result<(), Error> {
    let path = staged(folder, &wheel.sha256);
    let (facts, member) = beside(folder, wheel, place);
    let item = Path::new(&wheel.file);
    let text = fs::read(&facts).map_err(Error::io(item))?;
    let read: Facts = serde_json::from_slice(&text).map_err(|error| Error::io(item)(error.into()))?;
    let metadata = fs::read(&member).map_err(Error::io(item))?;
    let mut spooled = store.spool()?;
    let place = spooled.path().to_owned();
    if path.exists() {
        fs::rename(&path, &place).map_err(Error::io(item))?;
        let moved = fs::OpenOptions::new().read(true).write(true).open(&place).map_err(Error::io(item))?;
        *spooled.as_file_mut() = moved.into_file();
    } else {
        // One digest under a second name: its bytes are in the store since the first.
        let mut source = store.open_blob(&wheel.sha256)?;
        io::copy(&mut source, &mut spooled).map_err(Error::io(item))?;
    }
    // Whether others replaced it here is a matter of what the list says.
    let provenance = Provenance { replaced_since: None, ..wheel.provenance.clone() };
    store.put(spooled, &read, &metadata, &provenance)?;
    Ok(())
}

/// Freezes the list of the bundle, and points `candidate` to it.
fn switch(store: &Store, manifest: &Manifest) -> Result<Option<SnapshotId>, Error> {
    let mut files = manifest.files.clone();
    files.sort();
    let mut upstreams = Vec::new();
    for file in &files {
        let Some(row) = store.row_named(&file.sha256, &file.file)?.filter(|row| row.held) else {
            let delta = manifest.base.is_some();
            return Err(Error::Missing { file: file.file.clone(), sha256: file.sha256, delta });
        };
        upstreams.push(row.provenance.upstream);
    }
    // Where the other site took other bytes under a known name, they count here as well.
    let now = jiff::Timestamp::now().to_string();
    for (file, upstream) in files.iter().zip(upstreams).filter(|(_, upstream)| upstream != LOCAL) {
        store.replace(&upstream, &file.file, &file.sha256, &now)?;
    }
    let origin = Origin { site: manifest.site.clone(), snapshot: manifest.snapshot.clone() };
    let policy = manifest.policy.iter();
    let new = NewSnapshot {
        reason: "import".to_owned(),
        origin: Some(origin.clone()),
        policy: policy.map(|text| PolicyFile { name: text.name.clone(), text: text.text.clone() }).collect(),
        ..NewSnapshot::default()
    };
    let made = store.put_snapshot(&new, &files)?;
    // The same bundle once more: its snapshot is there.
    let same = || store.snapshots().into_iter().rev().find(|head| head.origin.as_ref() == Some(&origin));
    let id = made.or_else(|| same().map(|head| head.id));
    if let Some(id) = &id {
        store.promote("candidate", id)?;
    }
    Ok(id)
}
