//! Taking in: blob, METADATA member, sidecar, row, each durable before the next is begun.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLockReadGuard};

use super::blobs::{Found, Part};
use super::catalogue::record::{
    Light, SUM, Stamp, name_prefix, parse_file_key, parse_payload, pin_key, project_prefix, strange, url_key,
};
use super::catalogue::{Catalogue, Fault, Postgres, Records};
use super::layout::Layout;
use super::postgres::{Lock, Session};
use super::sidecar::{Entry, LONGEST, News, Sidecar};
use super::{Error, Provenance, Put, Store, locked, recover};
use crate::digest::Sha256;
use crate::wheel::{Facts, ProjectName};

/// The longest file name that is taken, in bytes: that of Linux file systems, which pip writes it to.
const LONGEST_NAME: usize = 255;

/// The longest name of an upstream, and the longest URL, that is taken, in bytes.
const LONGEST_ORIGIN: usize = 8192;

/// Makes the sidecar that shall be from the one that is, and from records.
pub(super) type Edit<'a> = dyn Fn(&dyn Records, Option<Sidecar>) -> Result<Sidecar, Error> + 'a;

/// What writers have to know; they take turns by its lock.
#[derive(Debug)]
pub(super) struct Writer {
    /// Whether the note of an orderly end was taken away.
    dirty: bool,
    /// Whether sled refused a write: it then takes none until it is opened anew.
    refused: bool,
}

impl Writer {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { dirty: !layout.clean().exists(), refused: false }
    }

    /// Whether the catalogue agrees with the sidecars now, and that has to be noted.
    pub(super) fn ends_clean(&self) -> bool {
        self.dirty && !self.refused
    }
}

impl Store {
    /// Takes in a wheel with its bytes: durable when this returns.
    ///
    /// `metadata` is the METADATA member, byte for byte. The spooled file's digest is `facts.sha256`; the caller has computed it.
    /// Upgrades a row that had facts alone. The provenance of first sight stays, except for yanks.
    pub fn put(
        &self,
        spooled: tempfile::NamedTempFile,
        facts: &Facts,
        metadata: &[u8],
        provenance: &Provenance,
    ) -> Result<Put, Error> {
        self.put_named(spooled, facts, metadata, provenance, false)
    }

    /// As [`Store::put`]; where `unique`, a held file of the same name with other bytes keeps it out, whoever else takes one in at
    /// the same time.
    pub(super) fn put_named(
        &self,
        spooled: tempfile::NamedTempFile,
        facts: &Facts,
        metadata: &[u8],
        provenance: &Provenance,
        unique: bool,
    ) -> Result<Put, Error> {
        check(facts, provenance)?;
        let mismatch = |found| Error::Mismatch { file: facts.file.clone(), found };
        let len = spooled.as_file().metadata().map_err(Error::io(spooled.path()))?.len();
        if len != facts.size {
            return Err(mismatch(format!("the spooled file has {len} bytes, expected {}", facts.size)));
        }
        if let Some(stated) = facts.metadata_sha256
            && stated != Sha256::of(metadata)
        {
            return Err(mismatch(format!("the METADATA at hand has not the digest {stated}")));
        }
        self.places.layout.check_space(0)?;
        let _no_sweep = self.no_sweep(&facts.sha256)?;
        self.put_blob(spooled, facts, metadata)?;
        self.see(facts, provenance, true, unique)
    }

    /// Takes in the facts of a wheel whose bytes are not kept.
    ///
    /// Where its bytes are kept already, they and their facts stay.
    pub fn put_facts(&self, facts: &Facts, provenance: &Provenance) -> Result<Put, Error> {
        check(facts, provenance)?;
        self.places.layout.check_space(0)?;
        self.places.blobs.prepare(&facts.sha256)?;
        self.see(facts, provenance, false, false)
    }

    /// Updates what the upstream says of a known file: yanked, gone since.
    ///
    /// Only the upstream of the first sight has a say; nothing happens where `provenance` names another.
    pub fn put_provenance(&self, sha256: &Sha256, provenance: &Provenance) -> Result<(), Error> {
        self.change(sha256, &[], &|_, sidecar| {
            let mut sidecar = sidecar.ok_or(Error::Unknown(*sha256))?;
            sidecar.files.iter_mut().for_each(|entry| entry.update(provenance));
            Ok(sidecar)
        })?;
        Ok(())
    }

    /// Has the held file of that digest count under its name on an upstream, in place of the one of first sight, which stays in
    /// the snapshots that list it. Yields the digest of that one; none where it is this one, or where the new one is not held.
    ///
    /// A crash in between leaves the old one given up and both held: doing it again ends it.
    pub fn replace(
        &self,
        upstream: &str,
        file: &str,
        sha256: &Sha256,
        now: &str,
    ) -> Result<Option<Sha256>, Error> {
        let Some(old) = self.pinned(upstream, file)?.filter(|old| old != sha256) else { return Ok(None) };
        if self.row_named(sha256, file)?.is_none_or(|row| !row.held) {
            return Ok(None);
        }
        let keys = [pin_key(upstream, file)];
        let edit = |digest: Sha256, edit: fn(&mut Entry, &str, &str)| {
            self.change(&digest, &keys, &|_, sidecar| {
                let mut sidecar = sidecar.ok_or(Error::Unknown(digest))?;
                let named = sidecar.files.iter_mut().filter(|entry| entry.facts.file == file);
                named.for_each(|entry| edit(entry, upstream, now));
                Ok(sidecar)
            })
        };
        edit(old, Entry::give_way)?;
        edit(*sha256, Entry::take_over)?;
        Ok(Some(old))
    }

    /// Makes blob and METADATA member durable. Only one of equal files is written.
    fn put_blob(
        &self,
        spooled: tempfile::NamedTempFile,
        facts: &Facts,
        metadata: &[u8],
    ) -> Result<(), Error> {
        let sha256 = &facts.sha256;
        let blobs = &self.places.blobs;
        blobs.prepare(sha256)?;
        let held = self.sidecar(sha256).is_ok_and(|found| found.is_some_and(|sidecar| sidecar.held));
        let there = |found: Option<Found>| found.is_some_and(|found| found.stamp.len == facts.size);
        if !held || !blobs.find(sha256, Part::Wheel).is_ok_and(there) {
            blobs.put_wheel(sha256, spooled)?;
        }
        let same = |found: Option<Vec<u8>>| found.is_some_and(|found| found == metadata);
        if !held || !blobs.read(sha256, Part::Metadata).is_ok_and(same) {
            blobs.put(sha256, Part::Metadata, metadata)?;
        }
        blobs.settle(sha256)
    }

    /// Notes a sight of a file in its sidecar and its rows.
    fn see(&self, facts: &Facts, provenance: &Provenance, held: bool, unique: bool) -> Result<Put, Error> {
        let put = std::cell::Cell::new(Put::New);
        let pin = pin_key(&provenance.upstream, &facts.file);
        let url = provenance.url.as_deref().map(url_key);
        // The name is the key of no record: who takes in a file of that name has it for itself until its records are there.
        let name = facts.project.as_ref().map(|project| name_prefix(project, &facts.file));
        let keys: Vec<Vec<u8>> = std::iter::once(pin.clone()).chain(url.clone()).chain(name).collect();
        self.change(&facts.sha256, &keys, &|catalogue, sidecar| {
            let mut sidecar = sidecar.unwrap_or(Sidecar { held: false, files: Vec::new() });
            if sidecar.entry(&facts.file).is_some() && sidecar.held >= held {
                put.set(Put::Known);
            }
            let asked = |fault| self.refusal(fault);
            if unique
                && let Some(project) = &facts.project
                && let Some(other) =
                    taken_name(catalogue, project, &facts.file, &facts.sha256).map_err(asked)?
            {
                return Err(Error::Exists { file: facts.file.clone(), sha256: other });
            }
            let news = News {
                pinned: catalogue.record(&pin).map_err(asked)?.is_none(),
                first_at_url: match &url {
                    Some(url) => catalogue.record(url).map_err(asked)?.is_none(),
                    None => false,
                },
            };
            sidecar.see(facts, provenance, held, news);
            Ok(sidecar)
        })?;
        Ok(put.get())
    }

    /// Replaces a sidecar, and the rows that follow from it. Nothing is written where nothing changes.
    ///
    /// `keys` are those of the records that `edit` goes by; it may be asked more than once.
    pub(super) fn change(&self, sha256: &Sha256, keys: &[Vec<u8>], edit: &Edit<'_>) -> Result<(), Error> {
        if let Some(database) = &self.database {
            let postgres = Postgres { database: database.clone() };
            return self.change_shared(&postgres, sha256, keys, edit);
        }
        let mut writer = locked(&self.writer);
        if writer.refused {
            self.renew(recover::reopen)?;
            writer.refused = false;
        }
        let before = match recover::find_sidecar(&self.places.blobs, sha256) {
            Ok(before) => before,
            Err(Error::Damaged { path, found }) => {
                tracing::warn!(sidecar = %path.display(), "is replaced: {found}");
                None
            }
            Err(error) => return Err(error),
        };
        // Pins are asked for before anything is written; damage found here is mended by the read.
        self.read(|catalogue| catalogue.record(SUM))?;
        let place = self.catalogue()?;
        let Some(sled) = place.as_ref().and_then(Catalogue::sled) else {
            return Err(self.refusal(Fault::closed()));
        };
        let after = edit(sled, before.clone())?;
        if before.as_ref() == Some(&after) {
            return Ok(());
        }
        let rendered = rendered(&after)?;
        if !writer.dirty {
            recover::set_dirty(&self.places.layout)?;
            writer.dirty = true;
        }
        let blobs = &self.places.blobs;
        blobs.put(sha256, Part::Sidecar, &rendered)?;
        // From here on the sidecar may be ahead of its row.
        writer.refused = true;
        blobs.settle(sha256)?;
        let mut counts = BTreeMap::new();
        let stamp = self.stamp(sha256)?;
        recover::changes(sled, sha256, &after, stamp, &mut counts)
            .and_then(|mut changes| {
                if self.places.sidecars_in_catalogue() {
                    changes.push(recover::sidecar_change(sha256, &rendered));
                }
                sled.apply(recover::with_counts(changes, counts))
            })
            .map_err(|fault| recover::refusal(&self.places.layout, fault))?;
        writer.refused = false;
        let projects = after.files.iter().filter_map(|entry| entry.facts.project.as_ref());
        self.revisions.bump(projects.collect::<Vec<&ProjectName>>());
        Ok(())
    }
}

/// The held file that has that name with other bytes.
///
/// Where both are here already, as two upstreams can bring it about, nothing is taken.
pub(super) fn taken_name(
    catalogue: &dyn Records,
    project: &ProjectName,
    file: &str,
    sha256: &Sha256,
) -> Result<Option<Sha256>, Fault> {
    let (mut other, mut own) = (None, false);
    catalogue.scan(&name_prefix(project, file), &mut |key, payload| {
        let named = parse_file_key(key, &project_prefix(project));
        let (_, found) = named.ok_or_else(|| strange(key))?;
        let light: Light = parse_payload(key, payload)?;
        if light.held && found == *sha256 {
            own = true;
        } else if light.held {
            other.get_or_insert(found);
        }
        Ok(())
    })?;
    Ok(other.filter(|_| !own))
}

/// The right to have the bytes of a digest come and go.
#[derive(Debug)]
pub(super) enum NoSweep<'store> {
    /// Nothing is swept in this process, which is the only one.
    Here(#[expect(dead_code, reason = "it is kept for its lock")] RwLockReadGuard<'store, ()>),
    /// The digest is not swept by any process.
    Everywhere(#[expect(dead_code, reason = "it is kept for its lock")] Session),
}

impl Store {
    /// Keeps the bytes of a digest from being swept while they are taken in.
    fn no_sweep(&self, sha256: &Sha256) -> Result<NoSweep<'_>, Error> {
        let Some(database) = &self.database else {
            return Ok(NoSweep::Here(self.intake.read().unwrap_or_else(PoisonError::into_inner)));
        };
        self.patiently(|| {
            let session = database.begin().map_err(|fault| database.error(fault))?;
            session.lock(&[Lock::Intake(sha256)]).map_err(|fault| database.error(fault))?;
            Ok(NoSweep::Everywhere(session))
        })
    }

    /// The state of a sidecar that is there.
    pub(super) fn stamp(&self, sha256: &Sha256) -> Result<Stamp, Error> {
        let found = self.places.blobs.find(sha256, Part::Sidecar)?;
        found.map(|found| found.stamp).ok_or(Error::Unknown(*sha256))
    }
}

/// The bytes of a sidecar file, if that is not longer than what is read.
pub(super) fn rendered(sidecar: &Sidecar) -> Result<Vec<u8>, Error> {
    let rendered = sidecar.render();
    if rendered.len() as u64 > LONGEST {
        let file = sidecar.files.last().map_or_else(String::new, |entry| entry.facts.file.clone());
        let found =
            format!("its facts make a sidecar file of {} bytes, expected at most {LONGEST}", rendered.len());
        return Err(Error::Mismatch { file, found });
    }
    Ok(rendered)
}

/// Checks what becomes part of a key, a path or a URL. The lists of facts are the inspector's part.
fn check(facts: &Facts, provenance: &Provenance) -> Result<(), Error> {
    let file = &facts.file;
    let refuse = |found| Err(Error::Name { file: file.chars().take(80).collect(), found });
    if file.is_empty() || file.len() > LONGEST_NAME {
        return refuse("a file name has 1 to 255 bytes");
    }
    if file.starts_with('.') || file.contains(['/', '\\']) || file.chars().any(char::is_control) {
        return refuse("a file name begins with no dot and has no slashes or control characters");
    }
    if facts.project.is_none() {
        return refuse("only wheels are kept, and this is none by its name");
    }
    let origin = [Some(&provenance.upstream), provenance.url.as_ref()];
    if origin.iter().flatten().any(|text| text.len() > LONGEST_ORIGIN || text.chars().any(char::is_control)) {
        return refuse("its upstream or URL is longer than 8192 bytes or has control characters");
    }
    Ok(())
}
