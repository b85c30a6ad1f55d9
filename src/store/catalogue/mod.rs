//! The catalogue: what is known, by project, digest, URL and upstream, as sealed records under keys in order.
//!
//! A closed set of backends, which all keep the same records ([`record`]). It holds nothing that the sidecars do not hold.

use serde::de::DeserializeOwned;

pub(super) mod postgres;
pub(super) mod record;
mod sled;

pub(super) use self::postgres::Postgres;
pub(super) use self::sled::Sled;
use record::Sum;

/// Why the catalogue did not answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// It does not hold what was written to it: make it anew.
    Damaged(String),
    /// The disk is full, or failed: sled takes no more writes until it is opened anew.
    Io(std::io::Error),
    /// It cannot be reached, or asks to be asked again: the same may work a little later.
    Away(String),
    /// Anything else that the backend says.
    Refused(String),
}

impl Fault {
    /// That of a catalogue which the last attempt left closed.
    pub(super) fn closed() -> Self {
        Self::Refused("it could not be opened anew".to_owned())
    }
}

/// A key with its new value; none removes the record.
pub(super) type Change = (Vec<u8>, Option<Vec<u8>>);

/// What is done with each record of a scan: its key, and its value without the checksum.
pub(super) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), Fault> + 'a;

/// What can be asked for records.
pub(super) trait Records {
    /// One record, without its checksum.
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault>;

    /// Those of these records that are there, without their checksums, in no order.
    fn records(&self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<(), Fault> {
        for key in keys {
            if let Some(payload) = self.record(key)? {
                visit(key, &payload)?;
            }
        }
        Ok(())
    }

    /// All records whose key begins with a prefix, without their checksums, in key order, as of one moment.
    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Fault>;

    /// One record, parsed.
    fn parsed<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, Fault>
    where
        Self: Sized,
    {
        let Some(payload) = self.record(key)? else { return Ok(None) };
        serde_json::from_slice(&payload).map(Some).map_err(|_| bad_record(key))
    }
}

/// The open catalogue.
#[derive(Debug)]
pub(super) enum Catalogue {
    /// In the data folder, for one process.
    Sled(Sled),
    /// In a database, for many.
    Postgres(Postgres),
}

impl Records for Catalogue {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Self::Sled(sled) => sled.record(key),
            Self::Postgres(postgres) => postgres.record(key),
        }
    }

    fn records(&self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<(), Fault> {
        match self {
            Self::Sled(sled) => sled.records(keys, visit),
            Self::Postgres(postgres) => postgres.records(keys, visit),
        }
    }

    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Fault> {
        match self {
            Self::Sled(sled) => sled.scan(prefix, visit),
            Self::Postgres(postgres) => postgres.scan(prefix, visit),
        }
    }
}

impl Catalogue {
    /// The database, where it is one.
    pub(super) const fn postgres(&self) -> Option<&Postgres> {
        match self {
            Self::Sled(_) => None,
            Self::Postgres(postgres) => Some(postgres),
        }
    }

    /// The embedded one, where it is that.
    pub(super) const fn sled(&self) -> Option<&Sled> {
        match self {
            Self::Sled(sled) => Some(sled),
            Self::Postgres(_) => None,
        }
    }

    /// Count and fingerprint of all records, where the backend keeps them.
    pub(super) fn sum(&self) -> Option<Sum> {
        self.sled().map(Sled::sum)
    }
}

fn bad_record(key: &[u8]) -> Fault {
    Fault::Damaged(format!("the checksum of record {} is wrong", key.escape_ascii()))
}
