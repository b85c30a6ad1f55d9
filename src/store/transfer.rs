//! Copying a whole store to another one, whatever either is kept in.
//!
//! What the other one has is passed over, so that a copy that was cut short goes on where it ended. Wheels are hashed on their
//! way; METADATA members and sidecars are copied byte for byte, and the records of the other store made from them.

use std::io::{self, Write as _};

use serde::Serialize;

use super::blobs::Part;
use super::notes::{Document, Log};
use super::snapshot::CHANNELS;
use super::{Error, Store, recover};
use crate::digest::{HashingReader, Sha256};

/// What is copied besides wheels, snapshots and channels.
const DOCUMENTS: [Document; 3] = [Document::Site, Document::Upstreams, Document::Tokens];
const LOGS: [Log; 3] = [Log::Incidents, Log::Reports, Log::Audit];

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Transferred {
    /// Digests whose sidecar was copied.
    pub sidecars: u64,
    /// Wheels that were copied.
    pub wheels: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// Digests that were there.
    pub known: u64,
    /// Snapshots that were copied.
    pub snapshots: u64,
    /// Wheels whose bytes are lost or damaged here: their facts were copied all the same.
    pub damaged: Vec<Sha256>,
}

impl Store {
    /// Copies all that is here to another store. Nobody else should write to either meanwhile.
    pub fn transfer(&self, to: &Self, progress: &mut dyn FnMut(&Sha256)) -> Result<Transferred, Error> {
        let mut done = Transferred::default();
        let (from, into) = (&self.places.blobs, &to.places.blobs);
        let mut digests = Vec::new();
        recover::list(from, |sha256, _| digests.push(sha256))?;
        for sha256 in digests {
            progress(&sha256);
            let Some(sidecar) = recover::find_sidecar(from, &sha256)? else { continue };
            let rendered = sidecar.render();
            let size = sidecar.files.first().map_or(0, |entry| entry.facts.size);
            let there = into.find(&sha256, Part::Wheel)?.is_some_and(|found| found.stamp.len == size);
            if into.read(&sha256, Part::Sidecar)?.as_ref() == Some(&rendered) && (there || !sidecar.held) {
                done.known = done.known.saturating_add(1);
                continue;
            }
            into.prepare(&sha256)?;
            if sidecar.held && !there {
                match self.copy_wheel(to, &sha256)? {
                    Some(bytes) => {
                        done.wheels = done.wheels.saturating_add(1);
                        done.bytes = done.bytes.saturating_add(bytes);
                    }
                    None => done.damaged.push(sha256),
                }
            }
            if let Some(member) = from.read(&sha256, Part::Metadata)? {
                into.put(&sha256, Part::Metadata, &member)?;
            }
            into.settle(&sha256)?;
            into.put(&sha256, Part::Sidecar, &rendered)?;
            into.settle(&sha256)?;
            done.sidecars = done.sidecars.saturating_add(1);
        }
        to.rebuild()?;
        self.transfer_snapshots(to, &mut done)?;
        self.transfer_documents(to)?;
        Ok(done)
    }

    /// Copies a wheel, if it is what its digest says.
    fn copy_wheel(&self, to: &Self, sha256: &Sha256) -> Result<Option<u64>, Error> {
        let Some(wheel) = self.places.blobs.open(sha256)? else { return Ok(None) };
        let mut spooled = to.spool()?;
        let mut reader = HashingReader::new(wheel);
        io::copy(&mut reader, &mut spooled).map_err(Error::io(&self.blob(sha256)))?;
        spooled.flush().map_err(Error::io(spooled.path()))?;
        let (found, bytes) = reader.finish();
        if found != *sha256 {
            return Ok(None);
        }
        to.places.blobs.put_wheel(sha256, spooled)?;
        Ok(Some(bytes))
    }

    fn transfer_snapshots(&self, to: &Self, done: &mut Transferred) -> Result<(), Error> {
        let (mut index, turn) = to.snapshots_turn()?;
        let there = to.notes.snapshot_ids()?;
        for id in self.notes.snapshot_ids()?.into_iter().filter(|id| !there.contains(id)) {
            // Damaged ones stay where they are.
            if self.each_in_snapshot(&id, |_| {}).is_err() {
                tracing::error!(snapshot = %id, "is damaged, and not copied");
                continue;
            }
            let Some(mut whole) = self.notes.open_snapshot(&id)? else { continue };
            let mut spooled = to.spool()?;
            io::copy(&mut whole, &mut spooled).map_err(Error::io(&self.notes.snapshot_name(&id)))?;
            turn.put_snapshot(&id, spooled)?;
            done.snapshots = done.snapshots.saturating_add(1);
        }
        for name in CHANNELS {
            if let Some(text) = self.notes.read(Document::Channel(name))? {
                turn.write(Document::Channel(name), &text)?;
            }
        }
        let as_of = turn.finish()?;
        *index = super::snapshot::Index::read(&to.notes.snapshots_turn()?)?;
        index.as_of = as_of;
        Ok(())
    }

    /// Documents are copied in place of those there; logs where there is none.
    fn transfer_documents(&self, to: &Self) -> Result<(), Error> {
        let turn = to.notes.turn()?;
        for document in DOCUMENTS {
            if let Some(text) = self.notes.read(document)? {
                turn.write(document, &text)?;
            }
        }
        for log in LOGS {
            if turn.lines::<serde_json::Value>(log)?.is_empty() {
                for line in self.notes.lines::<serde_json::Value>(log)? {
                    turn.append(log, &line)?;
                }
            }
        }
        turn.finish().map(drop)
    }
}
