//! What upstreams and disks did wrong, in a log of its own: one JSON object a line, appended and fsynced.

use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::{Error, Recovery, Store, locked};
use crate::wheel::ProjectName;

/// The longest log, in bytes; then it becomes `incidents.jsonl.1`, in place of an older one.
const LONGEST_LOG: u64 = 8 << 20;

/// Something that should not have happened, which somebody has to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// When it was noticed, RFC 3339 in UTC.
    pub time: String,
    /// Upstream concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Project concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// File concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What sort of thing it is.
    pub kind: IncidentKind,
    /// What was found, and what was expected.
    pub text: String,
}

/// The sorts of incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncidentKind {
    /// An upstream has other bytes under a name that it had before.
    ChangedFile,
    /// The bytes that an upstream sent are not those that its index states.
    HashMismatch,
    /// An upstream's `.metadata` is not the METADATA member of the wheel.
    MetadataMismatch,
    /// A blob of the store was damaged or lost.
    DamagedBlob,
    /// The catalogue gave doubt and was made anew.
    CatalogueRebuilt,
    /// Anything that a later version knows.
    #[serde(other)]
    Other,
}

impl Incident {
    /// An incident that is noticed now.
    pub fn now(kind: IncidentKind, text: String) -> Self {
        let time = jiff::Timestamp::now().to_string();
        Self { time, upstream: None, project: None, file: None, kind, text }
    }

    pub(super) fn of_catalogue(recovery: &Recovery) -> Self {
        let text =
            format!("made anew from the sidecar files of {} files, since {}", recovery.files, recovery.why);
        Self::now(IncidentKind::CatalogueRebuilt, text)
    }
}

impl Store {
    /// Notes an incident: durable when this returns. One that differs from a noted one in its time alone is not
    /// noted again, for every sync pass sees it anew.
    pub fn put_incident(&self, incident: &Incident) -> Result<(), Error> {
        let _turn = locked(&self.incidents);
        let same = |noted: &Incident| Incident { time: incident.time.clone(), ..noted.clone() } == *incident;
        if incident.kind != IncidentKind::CatalogueRebuilt && self.read_incidents()?.iter().any(same) {
            return Ok(());
        }
        let path = self.layout.incidents();
        let mut line = serde_json::to_vec(incident).map_err(|error| Error::io(&path)(error.into()))?;
        line.push(b'\n');
        if fs::metadata(&path).is_ok_and(|found| found.len() + line.len() as u64 > LONGEST_LOG) {
            fs::rename(&path, path.with_extension("jsonl.1")).map_err(Error::io(&path))?;
        }
        let mut log = fs::OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&path)
            .map_err(Error::io(&path))?;
        // A power cut may have left half a line.
        let mut last = [b'\n'];
        if log.seek(SeekFrom::End(-1)).is_ok() {
            log.read_exact(&mut last).map_err(Error::io(&path))?;
        }
        if last != [b'\n'] {
            line.insert(0, b'\n');
        }
        log.write_all(&line).and_then(|()| log.sync_all()).map_err(Error::io(&path))?;
        super::layout::sync_folder(&self.layout.dir)
    }

    /// The incidents of the newest log, oldest first. Lines that are none, such as half of one, are passed over.
    pub fn incidents(&self) -> Result<Vec<Incident>, Error> {
        let _turn = locked(&self.incidents);
        self.read_incidents()
    }

    fn read_incidents(&self) -> Result<Vec<Incident>, Error> {
        let path = self.layout.incidents();
        let log = match fs::File::open(&path) {
            Ok(log) => log,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&path)(error)),
        };
        let mut incidents = Vec::new();
        for line in BufReader::new(log.take(LONGEST_LOG)).split(b'\n') {
            let line = line.map_err(Error::io(&path))?;
            incidents.extend(serde_json::from_slice::<Incident>(&line).ok());
        }
        Ok(incidents)
    }
}
