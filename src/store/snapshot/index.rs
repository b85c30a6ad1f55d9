//! What is known of all snapshots without reading their files.

use std::collections::BTreeMap;

use super::{CHANNELS, Channel, FILES, HEAD, LONGEST_NAME, RESERVED, SnapshotHead, SnapshotId};
use crate::store::Error;
use crate::store::notes::{Document, Turn};
use crate::store::postgres::NotesRows;

/// How much of a snapshot file is read for its head, in bytes; the longest head has some 600.
const HEAD_LENGTH: u64 = 4096;

/// The heads of all snapshots, and the channels.
#[derive(Debug, Default)]
pub(in crate::store) struct Index {
    pub(super) heads: BTreeMap<SnapshotId, SnapshotHead>,
    pub(super) channels: BTreeMap<&'static str, Channel>,
    /// The number of the newest change of notes in it, where processes count them.
    pub(in crate::store) as_of: i64,
}

impl Index {
    /// Reads the heads and the channels. A snapshot whose head is damaged is left out: `verify` names it.
    pub(in crate::store) fn read(turn: &Turn<'_>) -> Result<Self, Error> {
        let mut index = Self::default();
        for (id, start) in turn.snapshot_starts(HEAD_LENGTH)? {
            index.insert(id, &start);
        }
        for name in CHANNELS {
            if let Some(channel) = Channel::read(turn, name)? {
                index.channels.insert(name, channel);
            }
        }
        Ok(index)
    }

    /// The same from rows of a database.
    pub(in crate::store) fn of_rows(rows: NotesRows) -> Self {
        let mut index = Self { as_of: rows.as_of, ..Self::default() };
        for (id, start) in rows.starts {
            if let Ok(id) = id.parse() {
                index.insert(id, &start);
            }
        }
        for name in CHANNELS {
            let key = Document::Channel(name).row();
            let text = rows.documents.iter().find(|(name, _)| *name == key);
            if let Some(channel) = text.and_then(|(_, text)| Channel::parse(text, name)) {
                index.channels.insert(name, channel);
            }
        }
        index
    }

    fn insert(&mut self, id: SnapshotId, start: &[u8]) {
        match head(start) {
            Some(head) if head.id == id => drop(self.heads.insert(id, head)),
            _ => tracing::error!(snapshot = %id, "its file is damaged: jetwheel verify says more"),
        }
    }

    pub(super) fn find(&self, selector: &str) -> Option<SnapshotId> {
        if let Some(channel) = self.channels.get(selector) {
            return Some(channel.current.clone());
        }
        if let Ok(id) = selector.parse::<SnapshotId>() {
            return self.heads.contains_key(&id).then_some(id);
        }
        let mut named = self.heads.values().filter(|head| head.name.as_deref() == Some(selector));
        named.next().map(|head| head.id.clone())
    }

    /// The channel that names a snapshot.
    pub(super) fn channel_of(&self, id: &SnapshotId) -> Option<&'static str> {
        self.channels.iter().find(|(_, channel)| channel.current == *id).map(|(name, _)| *name)
    }

    /// Checks that a name can be given.
    pub(super) fn check_name(&self, name: &str) -> Result<(), Error> {
        let refuse = |found| Err(Error::SnapshotName { name: name.chars().take(80).collect(), found });
        let letters = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(letters) || name.starts_with('.')
        {
            return refuse(
                "a name has 1 to 64 letters, digits, dots, dashes and underscores, and no dot first",
            );
        }
        if CHANNELS.contains(&name) || RESERVED.contains(&name) || name.parse::<SnapshotId>().is_ok() {
            return refuse("that word means something else");
        }
        if self.heads.values().any(|head| head.name.as_deref() == Some(name)) {
            return refuse("another snapshot has that name");
        }
        Ok(())
    }
}

/// Reads the head in the first bytes of a snapshot.
fn head(start: &[u8]) -> Option<SnapshotHead> {
    let text = String::from_utf8_lossy(start);
    let (_, body) = text.strip_prefix(HEAD)?.split_once("\",")?;
    let (head, _) = body.split_once(FILES)?;
    serde_json::from_str(&format!("{{{head}}}")).ok()
}
