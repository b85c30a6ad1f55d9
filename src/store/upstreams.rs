//! When each upstream was last reached: how old is what the mirror serves of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::notes::Document;
use super::{Error, Store};

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
        let turn = self.notes.turn()?;
        let mut known = parse(turn.read(Document::Upstreams)?);
        let now = jiff::Timestamp::now().to_string();
        for (name, reached) in passes {
            let row = known.entry(name.to_owned()).or_default();
            if reached {
                *row = Reached { last_reached: Some(now.clone()), failing_since: None };
            } else {
                row.failing_since.get_or_insert_with(|| now.clone());
            }
        }
        turn.write(Document::Upstreams, &render(&known))?;
        turn.finish().map(drop)
    }

    /// What is known of the upstreams, by name.
    pub fn reached(&self) -> Result<BTreeMap<String, Reached>, Error> {
        Ok(parse(self.notes.read(Document::Upstreams)?))
    }
}

fn render(known: &BTreeMap<String, Reached>) -> Vec<u8> {
    serde_json::to_vec_pretty(known).expect("strings are always JSON")
}

/// It tells of ages alone: a damaged one is as none, and the next pass writes it anew.
fn parse(text: Option<Vec<u8>>) -> BTreeMap<String, Reached> {
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
