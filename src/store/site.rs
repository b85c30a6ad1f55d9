//! Who this store is to other sites, and what it took in from them: `site.json`.

use std::collections::BTreeMap;
use std::io::Read as _;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::notes::Document;
use super::{Error, SnapshotId, Store};

/// Where a site's id comes from.
const RANDOM: &str = "/dev/urandom";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Site {
    id: String,
    /// The newest snapshot that was imported, by site.
    #[serde(default)]
    imported: BTreeMap<String, SnapshotId>,
}

/// So many bytes of chance.
pub(super) fn chance<const LENGTH: usize>() -> Result<[u8; LENGTH], Error> {
    let mut chance = [0; LENGTH];
    let read = fs::File::open(RANDOM).and_then(|mut random| random.read_exact(&mut chance));
    read.map_err(Error::io(RANDOM.as_ref()))?;
    Ok(chance)
}

impl Store {
    /// The id of this store, by which others tell its bundles from those of other sites. It is made at the first call.
    pub fn site(&self) -> Result<String, Error> {
        self.with_site(|site| site.id.clone())
    }

    /// The newest snapshot of another site that was imported.
    pub fn imported(&self, site: &str) -> Result<Option<SnapshotId>, Error> {
        self.with_site(|own| own.imported.get(site).cloned())
    }

    /// Notes that a snapshot of another site was imported: durable when this returns.
    pub fn note_import(&self, site: &str, snapshot: &SnapshotId) -> Result<(), Error> {
        self.with_site(|own| drop(own.imported.insert(site.to_owned(), snapshot.clone())))
    }

    /// Reads the document, and writes it where it was not there or is changed.
    fn with_site<T>(&self, edit: impl FnOnce(&mut Site) -> T) -> Result<T, Error> {
        let turn = self.notes.turn()?;
        let before = match turn.read(Document::Site)? {
            Some(bytes) => Some(serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
                path: self.notes.name(Document::Site),
                found: error.to_string(),
            })?),
            None => None,
        };
        let mut site = match &before {
            Some(site) => Site::clone(site),
            None => {
                Site { id: format!("{:032x}", u128::from_be_bytes(chance()?)), imported: BTreeMap::new() }
            }
        };
        let answer = edit(&mut site);
        if before != Some(site.clone()) {
            let mut text = serde_json::to_vec_pretty(&site).expect("strings are always JSON");
            text.push(b'\n');
            turn.write(Document::Site, &text)?;
            turn.finish()?;
        }
        Ok(answer)
    }
}
