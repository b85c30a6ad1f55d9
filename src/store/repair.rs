//! The single repairs of `verify --repair`. Each yields what was done, or else what is left to be done.

use std::io;

use fs_err as fs;

use super::layout::{sync_folder, write_durably};
use super::recover;
use super::sidecar::{Entry, News, Sidecar};
use super::verify::{Fetch, Finding, hash};
use super::{Error, Incident, IncidentKind, Provenance, Store};
use crate::digest::Sha256;
use crate::wheel::{InspectOptions, inspect_wheel_as};

/// What was done, or what is left to be done.
pub(super) type Outcome = Result<String, String>;

/// Size in bytes of the pieces in which a fetched file is hashed.
const PIECE: usize = 256 << 10;

impl Store {
    /// Moves a damaged blob to `quarantine`, notes that its bytes are not held, and fetches them again.
    ///
    /// From then on the file is known but not held, so that a server answers that it is not there.
    pub(super) fn mend_blob(&self, finding: &Finding, fetch: Option<&Fetch<'_>>) -> Result<Outcome, Error> {
        let sha256 = &finding.sha256;
        let blob = self.layout.blob(sha256);
        let aside = self.quarantine(&blob)?;
        self.change(sha256, |_, sidecar| {
            let mut sidecar = sidecar.ok_or(Error::Unknown(*sha256))?;
            sidecar.held = false;
            Ok(sidecar)
        })?;
        let incident = Incident {
            project: finding.project.clone(),
            file: finding.file.clone(),
            ..Incident::now(IncidentKind::DamagedBlob, format!("the blob {sha256} {}", finding.text))
        };
        self.put_incident(&incident)?;
        let moved = aside.map(|aside| format!("moved to {}; ", aside.display())).unwrap_or_default();
        let Some(row) = self.row(sha256)? else { return Ok(Err(format!("{moved}its facts are lost"))) };
        let by_hand = if row.provenance.upstream == "local" {
            "jetwheel add takes the file in again"
        } else {
            "the next sync fetches it again"
        };
        let (Some(fetch), Some(_)) = (fetch, row.provenance.url.as_ref()) else {
            return Ok(Err(format!("{moved}{by_hand}")));
        };
        let mut spooled = self.spool()?;
        let mut file = fs::File::from_parts(
            spooled.as_file().try_clone().map_err(Error::io(spooled.path()))?,
            spooled.path(),
        );
        if let Err(why) = fetch(&row, &mut file) {
            return Ok(Err(format!("{moved}it could not be fetched: {why}; {by_hand}")));
        }
        let (found, _) =
            hash(spooled.path(), &mut vec![0; PIECE], |_| {}).map_err(Error::io(spooled.path()))?;
        if found != *sha256 {
            return Ok(Err(format!("{moved}the upstream has other bytes now, with the sha256 {found}")));
        }
        let inspected = inspect_wheel_as(
            &row.facts.file,
            spooled.path(),
            &InspectOptions { sha256: Some(*sha256), ..InspectOptions::default() },
        );
        match inspected {
            Ok(inspection) => {
                spooled.as_file_mut().sync_all().map_err(Error::io(&blob))?;
                self.put(spooled, &inspection.facts, &inspection.metadata, &row.provenance)?;
                Ok(Ok(format!("{moved}fetched again")))
            }
            Err(error) => Ok(Err(format!("{moved}what was fetched cannot be inspected: {error}"))),
        }
    }

    /// Writes the METADATA member anew from its blob.
    pub(super) fn mend_metadata(&self, finding: &Finding) -> Result<Outcome, Error> {
        let sha256 = &finding.sha256;
        let Some(row) = self.row(sha256)?.filter(|row| row.held) else {
            return Ok(Err("it is made anew when the blob is there again".to_owned()));
        };
        let member = match self.inspect_blob(&row.facts.file, sha256)? {
            Ok(inspection) => inspection.metadata,
            Err(why) => return Ok(Err(why)),
        };
        if row.facts.metadata_sha256.is_some_and(|stated| stated != Sha256::of(&member)) {
            return Ok(Err("the facts speak of another METADATA than the blob has".to_owned()));
        }
        write_durably(&self.layout.spool(), &self.layout.metadata(sha256), &member)?;
        Ok(Ok("made anew from the blob".to_owned()))
    }

    /// Writes a sidecar anew from its blob and what else is known of the file. Without a whole blob, the file is
    /// forgotten: a sync sees it as new.
    pub(super) fn mend_sidecar(&self, finding: &Finding) -> Result<Outcome, Error> {
        let sha256 = &finding.sha256;
        let path = self.layout.sidecar(sha256);
        let salvaged = recover::read_bounded(&path).ok().and_then(|bytes| Sidecar::salvage(&bytes, sha256));
        let mut names: Vec<(String, Provenance)> = Vec::new();
        for (project, file) in self.names(sha256)? {
            if let Some(light) = self.light(&project, &file, sha256)? {
                names.push((file, light.provenance));
            }
        }
        if names.is_empty()
            && let Some(salvaged) = &salvaged
        {
            let entries = salvaged.files.iter();
            names.extend(entries.map(|entry| (entry.facts.file.clone(), entry.provenance.clone())));
        }
        let mut sidecar = Sidecar { held: true, files: Vec::new() };
        let mut member = Vec::new();
        let mut why = "its file name is not known".to_owned();
        for (file, provenance) in names {
            match self.inspect_blob(&file, sha256)? {
                Ok(inspection) => {
                    let news = News {
                        pinned: self.pinned(&provenance.upstream, &file)?.is_none_or(|pin| pin == *sha256),
                        first_at_url: true,
                    };
                    sidecar.see(&inspection.facts, &provenance, true, news);
                    member = inspection.metadata;
                }
                Err(reason) => why = reason,
            }
        }
        if let Some(salvaged) = salvaged {
            keep_sightings(&mut sidecar.files, salvaged.files);
        }
        let aside = self.quarantine(&path)?;
        if sidecar.files.is_empty() {
            let moved = aside.map(|aside| format!("moved to {}; ", aside.display())).unwrap_or_default();
            return Ok(Err(format!("{moved}{why}; the next sync or add takes the file in as new")));
        }
        write_durably(&self.layout.spool(), &self.layout.metadata(sha256), &member)?;
        write_durably(&self.layout.spool(), &path, &sidecar.render())?;
        Ok(Ok("made anew from the blob".to_owned()))
    }

    /// Inspects a blob whose bytes are those of its digest.
    fn inspect_blob(
        &self,
        file: &str,
        sha256: &Sha256,
    ) -> Result<Result<crate::wheel::Inspection, String>, Error> {
        let blob = self.layout.blob(sha256);
        match hash(&blob, &mut vec![0; PIECE], |_| {}) {
            Ok((found, _)) if found == *sha256 => {}
            Ok(_) => return Ok(Err("its blob is damaged".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Err("its blob is not there".to_owned()));
            }
            Err(error) => return Err(Error::io(&blob)(error)),
        }
        let options = InspectOptions { sha256: Some(*sha256), ..InspectOptions::default() };
        Ok(inspect_wheel_as(file, &blob, &options).map_err(|error| error.to_string()))
    }

    /// Moves a file out of the way, where somebody can still look at it. Yields where it lies now.
    fn quarantine(&self, path: &std::path::Path) -> Result<Option<std::path::PathBuf>, Error> {
        let folder = self.layout.quarantine();
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let aside = folder.join(path.file_name().unwrap_or_default());
        match fs::rename(path, &aside) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path)(error)),
        }
        sync_folder(&folder)?;
        sync_folder(path.parent().unwrap_or(path))?;
        Ok(Some(aside))
    }
}

/// Takes over where files were seen, as a damaged sidecar still says: at worst a file is fetched once more.
fn keep_sightings(files: &mut [Entry], salvaged: Vec<Entry>) {
    for old in salvaged {
        if let Some(entry) = files.iter_mut().find(|entry| entry.facts.file == old.facts.file) {
            for sighting in old.sightings {
                let known = |seen: &super::sidecar::Sighting| {
                    seen.upstream == sighting.upstream && seen.url == sighting.url
                };
                if !entry.sightings.iter().any(known) {
                    entry.sightings.push(sighting);
                }
            }
        }
    }
}
