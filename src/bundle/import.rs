//! Taking a bundle in: signature, then every hash, then every wheel's content, and the switch last.

use std::collections::HashSet;
use std::path::Path;

use fs_err as fs;
use serde::Serialize;

use super::parts::{self, PartReader};
use super::stage::{self, Stage, Start, staged};
use super::{Error, Manifest, Packed, PublicKey};
use crate::digest::Sha256;
use crate::store::{NewSnapshot, Origin, PolicyFile, SnapshotId, Store};
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
    pub policy: &'m mut dyn FnMut(&Manifest) -> std::io::Result<()>,
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
    let start = verified_start(bundle, trust)?;
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
    let mut stage = Stage { folder: Some(&folder), held: &is_held, progress: means.progress };
    stage::wheels(bundle, &manifest, &mut stage)?;

    let mut imported = Imported {
        site: manifest.site.clone(),
        origin: manifest.snapshot.clone(),
        snapshot: None,
        devices: manifest.devices.clone(),
        signature: if trust.key.is_some() { "verified" } else { "unchecked" },
        taken: 0,
        bytes: 0,
        known: 0,
        facts_differ: Vec::new(),
        policy: manifest.policy.iter().map(|text| text.name.clone()).collect(),
        locks: manifest.locks.iter().map(|text| text.name.clone()).collect(),
    };
    let mut fresh = Vec::new();
    for wheel in &manifest.wheels {
        if !new(&wheel) {
            imported.known = imported.known.saturating_add(1);
            continue;
        }
        (means.progress)(&wheel.file);
        if !inspect(wheel, &folder)? {
            imported.facts_differ.push(wheel.file.clone());
        }
        fresh.push(wheel);
    }
    // All is right: from here on only a disk can fail.
    for wheel in fresh {
        take(store, wheel, &folder)?;
        imported.taken = imported.taken.saturating_add(1);
        imported.bytes = imported.bytes.saturating_add(wheel.size);
    }
    (means.policy)(&manifest).map_err(Error::io(store.dir()))?;
    imported.snapshot = switch(store, &manifest)?;
    store.note_import(&manifest.site, &manifest.snapshot)?;
    fs::remove_dir_all(&folder).map_err(Error::io(&folder))?;
    store.prune_snapshots()?;
    Ok(imported)
}

/// Reads the manifest of a bundle whose signature is the key's. Where it is not, what differs is looked for.
fn verified_start(bundle: &Path, trust: &Trust) -> Result<Start, Error> {
    let Some(key) = &trust.key else { return stage::start(bundle) };
    let path = parts::signature(bundle);
    if path.exists() {
        let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
        match key.verify(&text, &path, PartReader::open(bundle)?) {
            Ok(()) => return stage::start(bundle),
            Err(Error::Tampered { .. }) => return Err(diagnosis(bundle, key)),
            Err(error) => return Err(error),
        }
    }
    // Only the archive was carried over: the manifest's own signature stands for all whose digests it states.
    let start = stage::start(bundle)?;
    let Some(signature) = &start.signature else { return Err(Error::Unsigned { expected: path }) };
    match key.verify(signature, Path::new("manifest.json.minisig"), std::io::Cursor::new(&start.text)) {
        Ok(()) => Ok(start),
        Err(Error::Tampered { .. }) => {
            Err(Error::Tampered { item: Some("manifest.json differs".to_owned()) })
        }
        Err(error) => Err(error),
    }
}

/// Why the signature over the whole bundle is wrong: the first thing in it that is not as it was signed.
fn diagnosis(bundle: &Path, key: &PublicKey) -> Error {
    let look = || {
        let start = stage::start(bundle)?;
        if let Some(signature) = &start.signature {
            let name = Path::new("manifest.json.minisig");
            key.verify(signature, name, std::io::Cursor::new(&start.text)).map_err(|error| match error {
                Error::Tampered { .. } => Error::Tampered { item: Some("manifest.json differs".to_owned()) },
                other => other,
            })?;
        }
        let mut stage = Stage { folder: None, held: &|_| true, progress: &mut |_| {} };
        stage::wheels(bundle, &start.manifest, &mut stage)
    };
    match look() {
        Ok(()) => Error::Tampered { item: None },
        Err(error @ (Error::Cut { .. } | Error::PartMissing { .. } | Error::Tampered { .. })) => error,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            Error::Tampered { item: Some(format!("{error}{}", cause.unwrap_or_default())) }
        }
    }
}

fn is_held(store: &Store, sha256: &Sha256, file: &str) -> Result<bool, Error> {
    Ok(store.row_named(sha256, file)?.is_some_and(|row| row.held))
}

/// Reads what a wheel contains and keeps it beside the wheel; yields whether the sender read the same.
fn inspect(wheel: &Packed, folder: &Path) -> Result<bool, Error> {
    let path = staged(folder, &wheel.sha256);
    let options = InspectOptions { sha256: Some(wheel.sha256), ..InspectOptions::default() };
    let damaged = |found: String| Error::Damaged { file: wheel.file.clone(), found };
    let inspection =
        inspect_wheel_as(&wheel.file, &path, &options).map_err(|error| damaged(error.to_string()))?;
    if let Some(damage) = inspection.facts.damage.first() {
        return Err(damaged(damage.text.clone()));
    }
    let facts = path.with_extension("json");
    let text = serde_json::to_vec(&inspection.facts).map_err(|error| Error::io(&facts)(error.into()))?;
    fs::write(&facts, text).map_err(Error::io(&facts))?;
    let member = path.with_extension("metadata");
    fs::write(&member, &inspection.metadata).map_err(Error::io(&member))?;
    Ok(inspection.facts.agree_with(&wheel.facts))
}

/// Moves a wheel into the store.
fn take(store: &Store, wheel: &Packed, folder: &Path) -> Result<(), Error> {
    let path = staged(folder, &wheel.sha256);
    let (facts, member) = (path.with_extension("json"), path.with_extension("metadata"));
    let text = fs::read(&facts).map_err(Error::io(&facts))?;
    let read: Facts = serde_json::from_slice(&text).map_err(|error| Error::io(&facts)(error.into()))?;
    let metadata = fs::read(&member).map_err(Error::io(&member))?;
    let mut spooled = store.spool()?;
    let place = spooled.path().to_owned();
    if path.exists() {
        fs::rename(&path, &place).map_err(Error::io(&path))?;
        let moved = fs::OpenOptions::new().read(true).write(true).open(&place).map_err(Error::io(&place))?;
        *spooled.as_file_mut() = moved.into_file();
    } else {
        // One digest under a second name: its bytes are in the store since the first.
        let blob = store.blob(&wheel.sha256);
        let mut source = fs::File::open(&blob).map_err(Error::io(&blob))?;
        std::io::copy(&mut source, &mut spooled).map_err(Error::io(&place))?;
    }
    store.put(spooled, &read, &metadata, &wheel.provenance)?;
    Ok(())
}

/// Freezes the list of the bundle, and points `candidate` to it.
fn switch(store: &Store, manifest: &Manifest) -> Result<Option<SnapshotId>, Error> {
    let mut files = manifest.files.clone();
    files.sort();
    for file in &files {
        if !is_held(store, &file.sha256, &file.file)? {
            let delta = manifest.base.is_some();
            return Err(Error::Missing { file: file.file.clone(), sha256: file.sha256, delta });
        }
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
