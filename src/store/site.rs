//! Who this store is to other sites, and what it took in from them: `site.json`.

use std::collections::BTreeMap;
use std::io::Read as _;

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::layout::write_durably;
use super::{Error, SnapshotId, Store, locked, recover};

/// Where a site's id comes from.
const RANDOM: &str = "/dev/urandom";

/// How many bytes of chance an id has.
const ID_LENGTH: usize = 16;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
        let _turn = locked(&self.incidents);
        Ok(self.read_site()?.id)
    }

    /// The newest snapshot of another site that was imported.
    pub fn imported(&self, site: &str) -> Result<Option<SnapshotId>, Error> {
        let _turn = locked(&self.incidents);
        Ok(self.read_site()?.imported.get(site).cloned())
    }

    /// Notes that a snapshot of another site was imported: durable when this returns.
    pub fn note_import(&self, site: &str, snapshot: &SnapshotId) -> Result<(), Error> {
        let _turn = locked(&self.incidents);
        let mut own = self.read_site()?;
        own.imported.insert(site.to_owned(), snapshot.clone());
        self.write_site(&own)
    }

    fn read_site(&self) -> Result<Site, Error> {
        let path = self.layout.site();
        match recover::read_bounded(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| Error::Damaged { path, found: error.to_string() }),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let id = format!("{:032x}", u128::from_be_bytes(chance::<ID_LENGTH>()?));
                let site = Site { id, imported: BTreeMap::new() };
                self.write_site(&site)?;
                Ok(site)
            }
            Err(error) => Err(error),
        }
    }

    fn write_site(&self, site: &Site) -> Result<(), Error> {
        let path = self.layout.site();
        let mut text = serde_json::to_vec_pretty(site).expect("strings are always JSON");
        text.push(b'\n');
        write_durably(&self.layout.spool(), &path, &text)
    }
}
