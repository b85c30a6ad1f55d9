//! The single repairs of `verify --repair`. Each yields what was done, or else what is left to be done.

use fs_err as fs;

use super::blobs::Part;
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
        let blob = self.places.blobs.name(sha256, Part::Wheel);
        let aside = self.places.blobs.set_aside(sha256, Part::Wheel)?;
        self.change(sha256, &[], &|_, sidecar| {
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
        let (found, _) = spooled
            .reopen()
            .and_then(|file| hash(file, &mut vec![0; PIECE], |_| {}))
            .map_err(Error::io(spooled.path()))?;
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
        self.places.blobs.put(sha256, Part::Metadata, &member)?;
        self.places.blobs.settle(sha256)?;
        Ok(Ok("made anew from the blob".to_owned()))
    }

    /// Writes a sidecar anew from its blob and what else is known of the file. Without a whole blob, the file is
    /// forgotten: a sync sees it as new.
    pub(super) fn mend_sidecar(&self, finding: &Finding) -> Result<Outcome, Error> {
        let sha256 = &finding.sha256;
        let blobs = &self.places.blobs;
        let bytes = blobs.read(sha256, Part::Sidecar).ok().flatten();
        let salvaged = bytes.and_then(|bytes| Sidecar::salvage(&bytes, sha256));
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
        let aside = blobs.set_aside(sha256, Part::Sidecar)?;
        if sidecar.files.is_empty() {
            let moved = aside.map(|aside| format!("moved to {}; ", aside.display())).unwrap_or_default();
            return Ok(Err(format!("{moved}{why}; the next sync or add takes the file in as new")));
        }
        blobs.put(sha256, Part::Metadata, &member)?;
        blobs.settle(sha256)?;
        blobs.put(sha256, Part::Sidecar, &sidecar.render())?;
        blobs.settle(sha256)?;
        Ok(Ok("made anew from the blob".to_owned()))
    }

    /// Inspects a blob whose bytes are those of its digest.
    fn inspect_blob(
        &self,
        file: &str,
        sha256: &Sha256,
    ) -> Result<Result<crate::wheel::Inspection, String>, Error> {
        let Some(blob) = self.places.blobs.local_wheel(sha256)? else {
            return Ok(Err("its blob is not there".to_owned()));
        };
        let path = blob.path();
        let opened = fs::File::open(path).map_err(Error::io(path))?;
        let (found, _) = hash(opened, &mut vec![0; PIECE], |_| {}).map_err(Error::io(path))?;
        if found != *sha256 {
            return Ok(Err("its blob is damaged".to_owned()));
        }
        let options = InspectOptions { sha256: Some(*sha256), ..InspectOptions::default() };
        Ok(inspect_wheel_as(file, path, &options).map_err(|error| error.to_string()))
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
