//! When each upstream was last reached: how old is what the mirror serves of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::layout::write_durably;
use super::{Error, Store, locked};

/// What is known of one upstream's last passes; times are RFC 3339 in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reached {
    /// The end of the last pass in which it answered all that it was asked.
    pub last_reached: Option<String>,
    /// The first pass after that in which it did not.
    pub failing_since: Option<String>,
}

impl Store {
    /// Notes at the end of a pass which upstreams answered all that they were asked: durable when this returns.
    pub fn put_reached<'a>(&self, passes: impl IntoIterator<Item = (&'a str, bool)>) -> Result<(), Error> {
        let _turn = locked(&self.incidents);
        let mut known = self.read_reached()?;
        let now = jiff::Timestamp::now().to_string();
        for (name, reached) in passes {
            let row = known.entry(name.to_owned()).or_default();
            if reached {
                *row = Reached { last_reached: Some(now.clone()), failing_since: None };
            } else {
                row.failing_since.get_or_insert_with(|| now.clone());
            }
        }
        let path = self.layout.dir.join("upstreams.json");
        let text = serde_json::to_vec_pretty(&known).map_err(|error| Error::io(&path)(error.into()))?;
        write_durably(&self.layout.dir, &path, &text)
    }

    /// What is known of the upstreams, by name.
    pub fn reached(&self) -> Result<BTreeMap<String, Reached>, Error> {
        let _turn = locked(&self.incidents);
        self.read_reached()
    }

    fn read_reached(&self) -> Result<BTreeMap<String, Reached>, Error> {
        let path = self.layout.dir.join("upstreams.json");
        match fs_err::read(&path) {
            // It tells of ages alone: a damaged one is as none, and the next pass writes it anew.
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(Error::io(&path)(error)),
        }
    }
}
