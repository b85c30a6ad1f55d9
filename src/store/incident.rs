//! What upstreams and disks did wrong, in a log of its own: one JSON object a line, appended and fsynced.

use serde::{Deserialize, Serialize};

use super::notes::Log;
use super::{Error, Recovery, Store};
use crate::wheel::ProjectName;
use crate::wording::counted;

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
            format!("made anew from {}, since {}", counted(recovery.files, "sidecar file"), recovery.why);
        Self::now(IncidentKind::CatalogueRebuilt, text)
    }
}

impl Store {
    /// Notes an incident: durable when this returns. One that differs from a noted one in its time alone is not
    /// noted again, for every sync pass sees it anew.
    pub fn put_incident(&self, incident: &Incident) -> Result<(), Error> {
        let turn = self.notes.turn()?;
        let same = |noted: &Incident| Incident { time: incident.time.clone(), ..noted.clone() } == *incident;
        if incident.kind != IncidentKind::CatalogueRebuilt && turn.lines(Log::Incidents)?.iter().any(same) {
            return Ok(());
        }
        turn.append(Log::Incidents, incident)?;
        turn.finish().map(drop)
    }

    /// The incidents of the newest log, oldest first. Lines that are none, such as half of one, are passed over.
    pub fn incidents(&self) -> Result<Vec<Incident>, Error> {
        self.notes.lines(Log::Incidents)
    }
}
