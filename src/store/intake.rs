//! One way in for wheels that come from people, not from an upstream: `add` and uploads.

use tempfile::NamedTempFile;

use super::write::taken_name;
use super::{Error, LOCAL, Provenance, Put, Store};
use crate::digest::Sha256;
use crate::wheel::{Facts, InspectOptions, WheelFilename, inspect_wheel_as};
use crate::wording::with_causes;

/// What became of a wheel that was offered.
#[derive(Debug)]
pub enum Offered {
    /// It is held now, or was before.
    Taken(Put, Box<Facts>),
    /// It is no wheel, or a damaged one.
    Refused(String),
    /// It could not be read as a wheel at all, so that nobody knows whether it is a good one.
    Unreadable(String),
    /// Another wheel has that name already; only where names are to be unique.
    Exists(Sha256),
}

impl Store {
    /// Inspects a spooled wheel with that digest, and takes it in under a file name.
    ///
    /// Where `unique`, a held file of the same name with other bytes keeps it out. An error is one of the store, which concerns all wheels.
    pub fn offer(
        &self,
        spooled: NamedTempFile,
        file: &str,
        sha256: Sha256,
        unique: bool,
    ) -> Result<Offered, Error> {
        let name: WheelFilename = match file.parse() {
            Ok(name) => name,
            Err(error) => return Ok(Offered::Refused(error.kind.to_string())),
        };
        // Before the work of an inspection; whoever comes at the same time is told when it is taken in.
        if unique
            && let Some(other) = self.read(|catalogue| taken_name(catalogue, &name.project, file, &sha256))?
        {
            return Ok(Offered::Exists(other));
        }
        let provenance = Provenance {
            upstream: LOCAL.to_owned(),
            url: Some(file.to_owned()),
            first_seen: jiff::Timestamp::now().to_string(),
            ..Provenance::default()
        };
        if let Ok(Some(row)) = self.row_named(&sha256, file)
            && row.held
        {
            let member = self.metadata(&sha256)?.unwrap_or_default();
            if row.facts.metadata_sha256.is_none_or(|stated| stated == Sha256::of(&member)) {
                let put = self.put(spooled, &row.facts, &member, &provenance)?;
                return Ok(Offered::Taken(put, Box::new(Facts::clone(&row.facts))));
            }
        }
        let options = InspectOptions { sha256: Some(sha256), ..InspectOptions::default() };
        let inspection = match inspect_wheel_as(file, spooled.path(), &options) {
            Ok(inspection) => inspection,
            Err(error) => return Ok(Offered::Unreadable(with_causes(&error))),
        };
        if let Some(damage) = inspection.facts.damage.first() {
            let more = match inspection.facts.damage.len() {
                1 => String::new(),
                count => format!(" (and {} more)", count.saturating_sub(1)),
            };
            let member = damage.member.as_ref().map(|member| format!("{member}: ")).unwrap_or_default();
            return Ok(Offered::Refused(format!("{member}{}{more}", damage.text)));
        }
        match self.put_named(spooled, &inspection.facts, &inspection.metadata, &provenance, unique) {
            Ok(put) => Ok(Offered::Taken(put, Box::new(inspection.facts))),
            Err(Error::Exists { sha256, .. }) => Ok(Offered::Exists(sha256)),
            Err(error @ (Error::Name { .. } | Error::Mismatch { .. })) => {
                Ok(Offered::Refused(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}
