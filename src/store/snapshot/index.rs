//! What is known of all snapshots without reading their files.

use std::collections::BTreeMap;
use std::io::Read as _;

use fs_err as fs;

use super::{CHANNELS, Channel, FILES, HEAD, LONGEST_NAME, RESERVED, SnapshotHead, SnapshotId};
use crate::store::Error;
use crate::store::layout::Layout;

/// How much of a snapshot file is read for its head, in bytes; the longest head has some 600.
const HEAD_LENGTH: u64 = 4096;

/// The heads of all snapshots, and the channels.
#[derive(Debug, Default)]
pub(in crate::store) struct Index {
    pub(super) heads: BTreeMap<SnapshotId, SnapshotHead>,
    pub(super) channels: BTreeMap<&'static str, Channel>,
}

impl Index {
    /// Reads the heads and the channels. A snapshot whose head is damaged is left out: `verify` names it.
    pub(in crate::store) fn read(layout: &Layout) -> Result<Self, Error> {
        let mut index = Self::default();
        for id in ids(layout)? {
            match head(layout, &id) {
                Some(head) if head.id == id => drop(index.heads.insert(id, head)),
                _ => tracing::error!(snapshot = %id, "its file is damaged: jetwheel verify says more"),
            }
        }
        for name in CHANNELS {
            if let Some(channel) = Channel::read(layout, name)? {
                index.channels.insert(name, channel);
            }
        }
        Ok(index)
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

/// The ids of all snapshot files, damaged ones too, in order.
pub(in crate::store) fn ids(layout: &Layout) -> Result<Vec<SnapshotId>, Error> {
    let folder = layout.snapshots();
    let mut ids = Vec::new();
    for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
        let path = entry.map_err(Error::io(&folder))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            ids.extend(path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()));
        }
    }
    ids.sort();
    Ok(ids)
}

fn head(layout: &Layout, id: &SnapshotId) -> Option<SnapshotHead> {
    let mut bytes = Vec::new();
    fs::File::open(layout.snapshot(id)).ok()?.take(HEAD_LENGTH).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (_, body) = text.strip_prefix(HEAD)?.split_once("\",")?;
    let (head, _) = body.split_once(FILES)?;
    serde_json::from_str(&format!("{{{head}}}")).ok()
}
