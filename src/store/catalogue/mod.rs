//! The catalogue: what is known, by project, digest, URL and upstream, as sealed records under keys in order.
//!
//! A closed set of backends, which all keep the same records ([`record`]). It holds nothing that the sidecars do not hold.

use serde::de::DeserializeOwned;

pub(super) mod record;
mod sled;

pub(super) use self::sled::Sled;
use record::Sum;

/// Why the catalogue did not answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// It does not hold what was written to it: make it anew.
    Damaged(String),
    /// The disk is full, or failed: sled takes no more writes until it is opened anew.
    Io(std::io::Error),
    /// Anything else that the backend says.
    Refused(String),
}

/// A key with its new value; none removes the record.
pub(super) type Change = (Vec<u8>, Option<Vec<u8>>);

/// The open catalogue.
#[derive(Debug)]
pub(super) enum Catalogue {
    /// In the data folder, for one process.
    Sled(Sled),
}

impl Catalogue {
    /// One record, without its checksum.
    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Self::Sled(sled) => sled.record(key),
        }
    }

    /// One record, parsed.
    pub(super) fn parsed<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, Fault> {
        let Some(payload) = self.record(key)? else { return Ok(None) };
        serde_json::from_slice(&payload).map(Some).map_err(|_| bad_record(key))
    }

    /// All records whose key begins with a prefix, without their checksums, in key order.
    pub(super) fn scan(
        &self,
        prefix: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self {
            Self::Sled(sled) => sled.scan(prefix, visit),
        }
    }

    /// Makes one logical change: durable when this returns, and never there in part.
    ///
    /// The values are sealed already.
    pub(super) fn apply(&self, changes: Vec<Change>) -> Result<(), Fault> {
        match self {
            Self::Sled(sled) => sled.apply(changes),
        }
    }

    /// Count and fingerprint of all records, where the backend keeps them.
    #[expect(clippy::unnecessary_wraps, reason = "other backends keep none")]
    pub(super) fn sum(&self) -> Option<Sum> {
        match self {
            Self::Sled(sled) => Some(sled.sum()),
        }
    }
}

fn bad_record(key: &[u8]) -> Fault {
    Fault::Damaged(format!("the checksum of record {} is wrong", key.escape_ascii()))
}
