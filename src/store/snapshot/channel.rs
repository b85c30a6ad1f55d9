//! Channels: names that point to a snapshot, and are moved in one step.

use serde::{Deserialize, Serialize};

use super::SnapshotId;
use crate::store::notes::{Document, Turn};
use crate::store::{Error, Store, locked};

/// The channels that there are.
pub const CHANNELS: [&str; 2] = ["candidate", "stable"];

/// How many snapshots a channel remembers to have named.
const LONGEST_HISTORY: usize = 50;

/// Where a channel points: the JSON of `channels/<name>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// The snapshot that it names.
    pub current: SnapshotId,
    /// Those that it named before, oldest first; `rollback` goes to the last.
    pub history: Vec<SnapshotId>,
    /// When it was moved, RFC 3339 in UTC, as the machine's clock said.
    pub moved: String,
}

impl Channel {
    /// Reads a channel's file; none where the channel was never moved. One that is damaged names nothing.
    pub(super) fn read(turn: &Turn<'_>, name: &'static str) -> Result<Option<Self>, Error> {
        Ok(turn.read(Document::Channel(name))?.and_then(|text| Self::parse(&text, name)))
    }

    /// Reads what it says of itself.
    pub(super) fn parse(text: &[u8], name: &str) -> Option<Self> {
        serde_json::from_slice(text)
            .map_err(|error| tracing::error!(channel = name, %error, "its file is damaged: promote it anew"))
            .ok()
    }
}

impl Store {
    /// Where the channels point.
    pub fn channels(&self) -> Vec<(&'static str, Channel)> {
        locked(&self.snapshots).channels.iter().map(|(name, channel)| (*name, channel.clone())).collect()
    }

    /// Points a channel to a snapshot: durable, and in force for the next request, when this returns.
    pub fn promote(&self, channel: &str, id: &SnapshotId) -> Result<(), Error> {
        let (mut index, turn) = self.snapshots_turn()?;
        if !index.heads.contains_key(id) {
            return Err(Error::NoSnapshot { asked: id.to_string() });
        }
        let name = known(channel)?;
        let mut history = Vec::new();
        if let Some(before) = index.channels.get(name) {
            if before.current == *id {
                return Ok(());
            }
            history.clone_from(&before.history);
            history.push(before.current.clone());
            history.drain(..history.len().saturating_sub(LONGEST_HISTORY));
        }
        let moved = jiff::Timestamp::now().to_string();
        let channel = Channel { current: id.clone(), history, moved };
        index.as_of = write_channel(turn, name, &channel)?;
        index.channels.insert(name, channel);
        Ok(())
    }

    /// Points a channel to the snapshot that it named before; yields which one.
    pub fn rollback(&self, channel: &str) -> Result<SnapshotId, Error> {
        let (mut index, turn) = self.snapshots_turn()?;
        let name = known(channel)?;
        let mut history = index.channels.get(name).map(|channel| channel.history.clone()).unwrap_or_default();
        let current = loop {
            match history.pop() {
                Some(id) if index.heads.contains_key(&id) => break id,
                Some(_expired) => {}
                None => return Err(Error::NothingBefore { channel: name }),
            }
        };
        let moved = jiff::Timestamp::now().to_string();
        let channel = Channel { current: current.clone(), history, moved };
        index.as_of = write_channel(turn, name, &channel)?;
        index.channels.insert(name, channel);
        Ok(current)
    }

    /// The newest snapshot, where it was made of a change and the channel was not moved since: a crash fell between the two.
    pub fn left_behind(&self, channel: &str) -> Option<SnapshotId> {
        let index = locked(&self.snapshots);
        let newest = index.heads.values().next_back().filter(|head| head.reason != "create")?;
        let moved = index.channels.get(channel).map(|channel| channel.moved.as_str());
        let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
        let later = moved.is_none_or(|moved| time(moved) < time(&newest.created));
        later.then(|| newest.id.clone())
    }
}

fn write_channel(turn: Turn<'_>, name: &'static str, channel: &Channel) -> Result<i64, Error> {
    let mut text = serde_json::to_vec_pretty(channel).expect("strings and lists are always JSON");
    text.push(b'\n');
    turn.write(Document::Channel(name), &text)?;
    turn.finish()
}

fn known(channel: &str) -> Result<&'static str, Error> {
    let known = CHANNELS.into_iter().find(|known| *known == channel);
    known.ok_or_else(|| Error::NoSnapshot { asked: channel.chars().take(80).collect() })
}
