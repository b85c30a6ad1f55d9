//! Opens the catalogue, and makes it anew from the sidecar files at any doubt.
//!
//! What finds what:
//!
//! - a flipped bit, a cut or missing file of sled's: sled's own error or panic, the schema record, a record's
//!   checksum, or count and fingerprint of all records, which are all read at every open;
//! - an older but consistent state of sled's file: `CLEAN`, which states the fingerprint at the last orderly end.
//!   Where it agrees, no folder is listed and no sidecar read;
//! - after any other end (`CLEAN` is removed at the first write): the sidecar files are listed, and the time, length
//!   and inode of each are compared with what its record was made from. One sidecar may be ahead, that of the change
//!   that was cut short, since writers take turns; its record is made up for. More than one is doubt.
//!
//! On doubt the folder is moved to `catalogue.damaged`, and all records are made from the sidecar files.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::path::Path;

use fs_err as fs;

use super::blobs::{Blobs, Part};
use super::catalogue::record::{
    Counts, Indexed, Light, Stamp, Sum, counts_key, digest_key, file_key, pin_key, seal, seal_json, url_key,
};
use super::catalogue::{Catalogue, Change, Fault, Records, Sled, Visit};
use super::error::says_full;
use super::layout::{Layout, read_bounded, sync_folder, write_durably};
use super::sidecar::Sidecar;
use super::{Error, Places, Recovery};
use crate::digest::Sha256;
use crate::wheel::ProjectName;

/// How many sidecar files are in memory at once while the catalogue is made anew.
const SIDECARS_AT_ONCE: usize = 256;

/// Opens the catalogue, made anew where there is any doubt.
pub(super) fn open(places: &Places) -> Result<(Catalogue, Option<Recovery>), Error> {
    let layout = &places.layout;
    let folder = layout.catalogue();
    let clean = read_clean(layout);
    let mut known: HashMap<Sha256, Stamp> = HashMap::new();
    let opened = Sled::open(&folder, |key, payload| {
        if clean.is_none()
            && let Some((&b'd', digest)) = key.split_first()
            && let Ok(digest) = digest.try_into()
            && let Ok(indexed) = serde_json::from_slice::<Indexed>(payload)
        {
            known.insert(Sha256(digest), indexed.stamp);
        }
    });
    let sled = match opened {
        Ok(sled) => sled,
        Err(fault) => match doubt(fault) {
            Ok(why) => return anew(places, why),
            Err(fault) => return Err(refusal(layout, fault)),
        },
    };
    let sum = sled.sum();
    let why = match clean {
        Some(clean) if clean == sum => return Ok((Catalogue::Sled(sled), None)),
        Some(_) if sum.records == 0 => "it is missing".to_owned(),
        Some(clean) => {
            format!("it was closed with {} records, and opens with {}", clean.records, sum.records)
        }
        None => match catch_up(places, &sled, known)? {
            None => return Ok((Catalogue::Sled(sled), None)),
            Some(why) => why,
        },
    };
    drop(sled);
    anew(places, why)
}

/// Opens the catalogue again after a fault, in a copy of its folder: the old one is locked by the leaked sled.
pub(super) fn reopen(places: &Places) -> Result<(Catalogue, Option<Recovery>), Error> {
    let layout = &places.layout;
    let (folder, aside) = (layout.catalogue(), layout.dir.join("catalogue.locked"));
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(Error::io(&aside))?;
    }
    if folder.exists() {
        fs::rename(&folder, &aside).map_err(Error::io(&folder))?;
        copy_folder(&aside, &folder)?;
        fs::remove_dir_all(&aside).map_err(Error::io(&aside))?;
        sync_folder(&layout.dir)?;
    }
    open(places)
}

/// Copies sled's folder. A copy that is cut short is a damaged catalogue, which the next open notices.
fn copy_folder(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::io(to))?;
    for entry in fs::read_dir(from).map_err(Error::io(from))? {
        let entry = entry.map_err(Error::io(from))?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            copy_folder(&old, &new)?;
        } else {
            fs::copy(&old, &new).map_err(Error::io(&new))?;
            fs::File::open(&new).and_then(|file| file.sync_all()).map_err(Error::io(&new))?;
        }
    }
    sync_folder(to)
}

/// Compares the records with the sidecar files after an end without order; says what gives doubt.
fn catch_up(
    places: &Places,
    sled: &Sled,
    mut known: HashMap<Sha256, Stamp>,
) -> Result<Option<String>, Error> {
    let rows = known.len();
    let mut ahead = Vec::new();
    let mut sidecars = 0_u64;
    list(&places.blobs, |sha256, stamp| {
        sidecars += 1;
        if known.remove(&sha256) != Some(stamp) {
            ahead.push((sha256, stamp));
        }
    })?;
    if rows == 0 && sidecars > 1 {
        return Ok(Some("it is missing".to_owned()));
    }
    if !known.is_empty() {
        return Ok(Some(format!("{} of its files have no sidecar", known.len())));
    }
    match ahead.as_slice() {
        [] => Ok(None),
        [(sha256, stamp)] => {
            if let Ok(Some(sidecar)) = find_sidecar(&places.blobs, sha256) {
                let mut counts = BTreeMap::new();
                let outcome = changes(sled, sha256, &sidecar, *stamp, &mut counts).and_then(|mut changes| {
                    if places.sidecars_in_catalogue() {
                        changes.push(sidecar_change(sha256, &sidecar.render()));
                    }
                    sled.apply(with_counts(changes, counts))
                });
                match outcome.map_err(doubt) {
                    Ok(()) => {}
                    Err(Ok(why)) => return Ok(Some(why)),
                    Err(Err(fault)) => return Err(refusal(&places.layout, fault)),
                }
            }
            Ok(None)
        }
        more => Ok(Some(format!("it lacks the newest state of {} of {sidecars} files", more.len()))),
    }
}

/// Moves the catalogue aside and makes it anew from the sidecar files.
pub(super) fn anew(places: &Places, why: String) -> Result<(Catalogue, Option<Recovery>), Error> {
    let layout = &places.layout;
    layout.check_space(0)?;
    let folder = layout.catalogue();
    let aside = layout.dir.join("catalogue.damaged");
    tracing::warn!(catalogue = %folder.display(), "the catalogue is made anew from the sidecar files: {why}");
    if folder.exists() {
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(Error::io(&aside))?;
        }
        fs::rename(&folder, &aside).map_err(Error::io(&folder))?;
    }
    set_dirty(layout)?;
    let (catalogue, recovery) = fill(places, why)?;
    tracing::warn!(files = recovery.files, "the catalogue is whole again");
    Ok((catalogue, Some(recovery)))
}

/// Makes a catalogue where none is.
pub(super) fn fill(places: &Places, why: String) -> Result<(Catalogue, Recovery), Error> {
    let Places { layout, blobs } = places;
    let refused = |fault| refusal(layout, fault);
    let sled = Sled::open(&layout.catalogue(), |_, _| {}).map_err(refused)?;
    let mut apply = |changes| sled.apply(changes).map_err(refused);
    let recovery = collect(blobs, places.sidecars_in_catalogue(), why, &mut apply)?;
    sync_folder(&layout.catalogue())?;
    sync_folder(&layout.dir)?;
    Ok((Catalogue::Sled(sled), recovery))
}

/// Makes all records from the sidecar files, for a catalogue that has none.
pub(super) fn collect(
    blobs: &Blobs,
    with_sidecars: bool,
    why: String,
    apply: &mut dyn FnMut(Vec<Change>) -> Result<(), Error>,
) -> Result<Recovery, Error> {
    let mut all = Vec::new();
    list(blobs, |sha256, stamp| all.push((sha256, stamp)))?;
    let mut recovery = Recovery { why, files: 0, unreadable: Vec::new() };
    let mut counts = BTreeMap::new();
    for some in all.chunks(SIDECARS_AT_ONCE) {
        let mut batch = Vec::new();
        for ((sha256, stamp), sidecar) in some.iter().zip(read_sidecars(blobs, some)) {
            match sidecar {
                // Taken away by hand since it was listed.
                Ok(None) => {}
                Ok(Some(sidecar)) => {
                    recovery.files += sidecar.files.len() as u64;
                    let made = changes(&NoRecords, sha256, &sidecar, *stamp, &mut counts);
                    // Nothing is asked of a catalogue here.
                    batch.extend(made.unwrap_or_default());
                    if with_sidecars {
                        batch.push(sidecar_change(sha256, &sidecar.render()));
                    }
                }
                Err(Error::Damaged { path, found }) => {
                    tracing::error!(sidecar = %path.display(), "left out of the catalogue: {found}");
                    recovery.unreadable.push(*sha256);
                }
                Err(error) => return Err(error),
            }
        }
        apply(batch)?;
    }
    apply(with_counts(Vec::new(), counts))?;
    Ok(recovery)
}

/// A catalogue without records.
struct NoRecords;

impl Records for NoRecords {
    fn record(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }

    fn scan(&self, _prefix: &[u8], _visit: &mut Visit<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// The key of a digest's sidecar in catalogues that hold it as well.
pub(super) fn sidecar_key(sha256: &Sha256) -> Vec<u8> {
    [&b"c"[..], &sha256.0].concat()
}

/// The change that keeps a sidecar in the catalogue.
pub(super) fn sidecar_change(sha256: &Sha256, rendered: &[u8]) -> Change {
    let key = sidecar_key(sha256);
    let value = seal(&key, rendered);
    (key, Some(value))
}

/// Reads sidecar files on all processors, in the order given.
fn read_sidecars(blobs: &Blobs, some: &[(Sha256, Stamp)]) -> Vec<Result<Option<Sidecar>, Error>> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let share = some.len().div_ceil(workers).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = some
            .chunks(share)
            .map(|part| {
                scope.spawn(move || {
                    part.iter().map(|(sha256, _)| find_sidecar(blobs, sha256)).collect::<Vec<_>>()
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("reading and parsing a file does not panic"))
            .collect()
    })
}

/// Lists the sidecar files of all blobs, each with its state.
pub(super) fn list(blobs: &Blobs, mut visit: impl FnMut(Sha256, Stamp)) -> Result<(), Error> {
    blobs.list(Part::Sidecar, &mut |sha256, found| {
        visit(sha256, found.stamp);
        Ok(())
    })
}

/// Reads the sidecar file of a digest; none where there is no such file.
pub(super) fn find_sidecar(blobs: &Blobs, sha256: &Sha256) -> Result<Option<Sidecar>, Error> {
    let Some(bytes) = blobs.read(sha256, Part::Sidecar)? else { return Ok(None) };
    Sidecar::parse(&bytes, sha256)
        .map(Some)
        .map_err(|error| Error::Damaged { path: blobs.name(sha256, Part::Sidecar), found: error.to_string() })
}

/// The changes that make the catalogue say what a sidecar says. `counts` collects those of the projects concerned.
pub(super) fn changes(
    catalogue: &impl Records,
    sha256: &Sha256,
    sidecar: &Sidecar,
    stamp: Stamp,
    counts: &mut BTreeMap<ProjectName, Counts>,
) -> Result<Vec<Change>, Fault> {
    let mut changes = Vec::new();
    let mut files = Vec::new();
    for entry in &sidecar.files {
        let facts = &entry.facts;
        let Some(project) = &facts.project else { continue };
        let key = file_key(project, &facts.file, sha256);
        let before: Option<Light> = catalogue.parsed(&key)?;
        let count = match counts.entry(project.clone()) {
            std::collections::btree_map::Entry::Occupied(count) => count.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(catalogue.parsed(&counts_key(project))?.unwrap_or_default())
            }
        };
        count.files += u64::from(before.is_none());
        if before.is_some_and(|before| before.held) {
            count.held = count.held.saturating_sub(1);
        }
        count.held += u64::from(sidecar.held);
        let light = Light {
            size: facts.size,
            version: facts.version.clone(),
            requires_python: facts.requires_python.clone(),
            metadata_sha256: facts.metadata_sha256,
            provenance: entry.provenance.clone(),
            held: sidecar.held,
        };
        let value = seal_json(&key, &light);
        changes.push((key, Some(value)));
        for sighting in &entry.sightings {
            if let Some(url) = sighting.url.as_ref().filter(|_| sighting.first_at_url) {
                let key = url_key(url);
                let value = seal(&key, &sha256.0);
                changes.push((key, Some(value)));
            }
            if sighting.pinned {
                let key = pin_key(&sighting.upstream, &facts.file);
                let value = seal(&key, &sha256.0);
                changes.push((key, Some(value)));
            }
        }
        files.push((project.clone(), facts.file.clone()));
    }
    let key = digest_key(sha256);
    let value = seal_json(&key, &Indexed { stamp, files });
    changes.push((key, Some(value)));
    Ok(changes)
}

/// Adds the changes of the projects' counts.
pub(super) fn with_counts(mut changes: Vec<Change>, counts: BTreeMap<ProjectName, Counts>) -> Vec<Change> {
    changes.extend(counts.into_iter().map(|(project, counts)| {
        let key = counts_key(&project);
        let value = seal_json(&key, &counts);
        (key, Some(value))
    }));
    changes
}

/// Why a fault means that the catalogue has to be made anew, if it does.
pub(super) fn doubt(fault: Fault) -> Result<String, Fault> {
    use std::io::ErrorKind;
    match fault {
        Fault::Damaged(why) => Ok(why),
        Fault::Io(error)
            if matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput
            ) =>
        {
            Ok(format!("sled could not read it: {error}"))
        }
        other => Err(other),
    }
}

/// A fault in words for whoever called the store.
pub(super) fn refusal(layout: &Layout, fault: Fault) -> Error {
    let path = layout.catalogue();
    match fault {
        Fault::Io(error) if says_full(&error) => match layout.check_space(0) {
            Err(full) => full,
            Ok(()) => Error::Io { path, source: error },
        },
        Fault::Io(source) => Error::Io { path, source },
        Fault::Damaged(found) | Fault::Refused(found) | Fault::Away(found) => {
            Error::Catalogue { path, found }
        }
    }
}

fn read_clean(layout: &Layout) -> Option<Sum> {
    serde_json::from_slice(&read_bounded(&layout.clean()).ok()?).ok()
}

/// Notes what the catalogue holds at an orderly end.
pub(super) fn set_clean(layout: &Layout, sum: &Sum) -> Result<(), Error> {
    let note = serde_json::to_vec(sum).expect("numbers are always JSON");
    write_durably(&layout.spool(), &layout.clean(), &note)
}

/// Takes the note of an orderly end away, before anything is written.
pub(super) fn set_dirty(layout: &Layout) -> Result<(), Error> {
    let path = layout.clean();
    match fs::remove_file(&path) {
        Ok(()) => sync_folder(&layout.dir),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io(&path)(error)),
    }
}
