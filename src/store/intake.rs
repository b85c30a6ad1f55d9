//! One way in for wheels that come from people, not from an upstream: `add` and uploads.

use tempfile::NamedTempFile;

use super::{Error, LOCAL, Provenance, Put, Store, locked};
use crate::digest::Sha256;
use crate::wheel::{Facts, InspectOptions, WheelFilename, inspect_wheel_as};

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
        if unique && let Some(other) = self.taken_name(&name, file, &sha256)? {
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
            Err(error) => return Ok(Offered::Unreadable(chain(&error))),
        };
        if let Some(damage) = inspection.facts.damage.first() {
            let more = match inspection.facts.damage.len() {
                1 => String::new(),
                count => format!(" (and {} more)", count.saturating_sub(1)),
            };
            let member = damage.member.as_ref().map(|member| format!("{member}: ")).unwrap_or_default();
            return Ok(Offered::Refused(format!("{member}{}{more}", damage.text)));
        }
        // From here to the end nobody else takes a name.
        let _turn = unique.then(|| locked(&self.naming));
        if unique && let Some(other) = self.taken_name(&name, file, &sha256)? {
            return Ok(Offered::Exists(other));
        }
        match self.put(spooled, &inspection.facts, &inspection.metadata, &provenance) {
            Ok(put) => Ok(Offered::Taken(put, Box::new(inspection.facts))),
            Err(error @ (Error::Name { .. } | Error::Mismatch { .. })) => {
                Ok(Offered::Refused(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// The held file that has that name with other bytes.
    fn taken_name(&self, name: &WheelFilename, file: &str, sha256: &Sha256) -> Result<Option<Sha256>, Error> {
        let listed = self.listing(&name.project)?;
        let same = |listed: &&super::Listed| listed.file == file && listed.held;
        let others: Vec<Sha256> = listed.iter().filter(same).map(|listed| listed.sha256).collect();
        // Where both are here already, as two upstreams can bring it about, nothing changes.
        if others.contains(sha256) { Ok(None) } else { Ok(others.first().copied()) }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
