//! Reading a snapshot's files, one at a time.

use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    FilesByProject, HEAD, NO_CHECKSUM, PolicyFile, Snapshot, SnapshotFile, SnapshotHead, SnapshotId,
};
use crate::digest::{HashingReader, Sha256};
use crate::store::{Error, Store};

/// The longest snapshot file that is read, in bytes: some 10 million files.
const LONGEST: u64 = 2 << 30;

impl Store {
    /// A whole snapshot.
    pub fn snapshot(&self, id: &SnapshotId) -> Result<Snapshot, Error> {
        let mut files = Vec::new();
        let (head, policy) = self.each_in_snapshot(id, |file| files.push(file))?;
        Ok(Snapshot { head, files, policy })
    }

    /// The files of a snapshot, by project.
    pub fn snapshot_files(&self, id: &SnapshotId) -> Result<(SnapshotHead, FilesByProject), Error> {
        let mut files = FilesByProject::new();
        let (head, _) = self.each_in_snapshot(id, |file| {
            files.entry(file.project).or_default().insert((file.file, file.sha256));
        })?;
        Ok((head, files))
    }

    /// Visits the files of a snapshot, in order, in flat memory. What was visited counts only if this yields no error: the
    /// checksum stands over the whole file.
    pub fn each_in_snapshot(
        &self,
        id: &SnapshotId,
        mut visit: impl FnMut(SnapshotFile),
    ) -> Result<(SnapshotHead, Vec<PolicyFile>), Error> {
        let Some(file) = self.notes.open_snapshot(id)? else {
            return Err(Error::NoSnapshot { asked: id.to_string() });
        };
        let path = self.notes.snapshot_name(id);
        let mut file = file.take(LONGEST);
        let damaged = |found: String| Error::Damaged { path: path.clone(), found };
        let mut start = vec![0; HEAD.len().saturating_add(NO_CHECKSUM.len()).saturating_add(2)];
        file.read_exact(&mut start).map_err(|_| damaged("is cut short".to_owned()))?;
        let stated = std::str::from_utf8(&start)
            .ok()
            .and_then(|start| start.strip_prefix(HEAD)?.strip_suffix("\",")?.parse::<Sha256>().ok())
            .ok_or_else(|| damaged("is no snapshot of format 1".to_owned()))?;
        let mut body = HashingReader::new(io::BufReader::with_capacity(64 << 10, file));
        // The brace that stands before the checksum belongs to the object.
        let json = b"{".chain(&mut body);
        let mut parts = serde_json::Deserializer::from_reader(io::BufReader::new(json));
        let visitor = Whole { visit: &mut visit };
        let parsed = parts.deserialize_map(visitor);
        let parsed = parsed.and_then(|parsed| parts.end().map(|()| parsed));
        let (head, policy) = parsed.map_err(|error| damaged(error.to_string()))?;
        let (found, _) = body.finish();
        if found != stated {
            return Err(damaged(format!("its checksum is {found}, and it states {stated}")));
        }
        if head.id != *id {
            return Err(damaged(format!("speaks of the snapshot {}", head.id)));
        }
        Ok((head, policy))
    }
}

/// Takes the object apart: the files one at a time, the rest as values.
struct Whole<'v> {
    visit: &'v mut dyn FnMut(SnapshotFile),
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = (SnapshotHead, Vec<PolicyFile>);

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a snapshot")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut head = serde_json::Map::new();
        let mut policy = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "files" => map.next_value_seed(Files { visit: self.visit })?,
                "policy" => policy = map.next_value()?,
                "id" | "name" | "created" | "reason" | "origin" | "count" | "bytes" | "set" => {
                    head.insert(key, map.next_value()?);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let head = SnapshotHead::deserialize(serde_json::Value::Object(head));
        Ok((head.map_err(serde::de::Error::custom)?, policy))
    }
}

struct Files<'v> {
    visit: &'v mut dyn FnMut(SnapshotFile),
}

impl<'de> serde::de::DeserializeSeed<'de> for Files<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Files<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(file) = seq.next_element()? {
            (self.visit)(file);
        }
        Ok(())
    }
}
