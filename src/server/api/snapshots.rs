//! Snapshots and channels, as commands and the API tell of them and change them. All blocks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::wrong::Wrong;
use crate::digest::Sha256;
use crate::policy::{DeviceProfile, Policy, Reason, Verdict, judge};
use crate::server::view::LIVE;
use crate::store::{
    self, CHANNELS, Channel, Difference, NewSnapshot, PolicyFile, SnapshotFile, SnapshotHead, SnapshotId,
    Store,
};
use crate::wheel::ProjectName;

/// A snapshot as it is listed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listed {
    #[serde(flatten)]
    pub(crate) head: SnapshotHead,
    pub(crate) channels: Vec<String>,
}

/// All snapshots, oldest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct List {
    pub(crate) snapshots: Vec<Listed>,
    pub(crate) channels: BTreeMap<String, Channel>,
}

/// A channel that was moved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) channel: String,
    pub(crate) snapshot: SnapshotId,
    pub(crate) before: Option<SnapshotId>,
}

/// What is in one snapshot and not in the other.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Diff {
    pub(crate) from: String,
    pub(crate) to: String,
    #[serde(flatten)]
    pub(crate) files: Difference,
    pub(crate) verdicts: Vec<ChangedVerdict>,
}

/// A file whose verdict another policy changed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChangedVerdict {
    pub(crate) device: String,
    project: ProjectName,
    pub(crate) file: String,
    sha256: Sha256,
    pub(crate) from: Verdict,
    pub(crate) to: Verdict,
    pub(crate) reasons: Vec<Reason>,
}

/// The snapshot that a selector names.
pub(crate) fn find(store: &Store, selector: &str) -> Result<SnapshotId, Wrong> {
    if let Some(id) = store.find_snapshot(selector) {
        return Ok(id);
    }
    if CHANNELS.contains(&selector) {
        return Err(Wrong::Unknown(format!(
            "the channel {selector} names no snapshot yet: jetwheel snapshot promote ID --channel {selector}"
        )));
    }
    Err(store::Error::NoSnapshot { asked: selector.chars().take(80).collect() }.into())
}

/// All snapshots and channels.
pub(crate) fn list(store: &Store) -> List {
    let channels = store.channels().into_iter().map(|(name, channel)| (name.to_owned(), channel)).collect();
    List { snapshots: listed(store), channels }
}

fn listed(store: &Store) -> Vec<Listed> {
    let channels = store.channels();
    let of = |id: &SnapshotId| {
        let named = channels.iter().filter(|(_, channel)| channel.current == *id);
        named.map(|(name, _)| (*name).to_owned()).collect()
    };
    store.snapshots().into_iter().map(|head| Listed { channels: of(&head.id), head }).collect()
}

/// Freezes what is held now, whether that says something new or not; `candidate` follows.
pub(crate) fn create(store: &Store, new: &NewSnapshot) -> Result<Option<Listed>, Wrong> {
    let Some(id) = store.take_snapshot(new)? else { return Ok(None) };
    store.promote("candidate", &id)?;
    store.prune_snapshots()?;
    Ok(listed(store).into_iter().find(|listed| listed.head.id == id))
}

/// Removes a snapshot; no wheel goes with it.
pub(crate) fn remove(store: &Store, selector: &str) -> Result<SnapshotId, Wrong> {
    // One whose file is damaged may not be found by anything but its file.
    let damaged = selector.parse().ok().filter(|id| store.has_snapshot(id).is_ok_and(|there| there));
    let id = damaged.map_or_else(|| find(store, selector), Ok)?;
    store.remove_snapshot(&id)?;
    Ok(id)
}

/// Moves a channel: to a snapshot, or else back to the one before.
pub(crate) fn move_channel(store: &Store, channel: &str, to: Option<SnapshotId>) -> Result<Moved, Wrong> {
    if !CHANNELS.contains(&channel) {
        let channel: String = channel.chars().take(80).collect();
        return Err(Wrong::Unknown(format!("no channel {channel:?}: there are {}", CHANNELS.join(" and "))));
    }
    let before = store.find_snapshot(channel);
    let snapshot = match to {
        Some(id) => store.promote(channel, &id).map(|()| id)?,
        None => store.rollback(channel)?,
    };
    Ok(Moved { channel: channel.to_owned(), snapshot, before })
}

/// One side of a comparison.
struct Side {
    name: String,
    files: BTreeSet<SnapshotFile>,
    policy: Policy,
}

fn side(selector: &str, store: &Store, now: &Policy) -> Result<Side, Wrong> {
    if LIVE.contains(&selector) {
        let files = store.held_files()?.into_iter().collect();
        return Ok(Side { name: "live".to_owned(), files, policy: now.clone() });
    }
    let snapshot = store.snapshot(&find(store, selector)?)?;
    let texts: Vec<(String, String)> =
        snapshot.policy.into_iter().map(|PolicyFile { name, text }| (name, text)).collect();
    let policy = Policy::with_site(&texts).map_err(|error| Wrong::Stands(error.to_string()))?;
    Ok(Side { name: snapshot.head.id.to_string(), files: snapshot.files.into_iter().collect(), policy })
}

/// Compares two snapshots; `now` is the policy in force.
pub(crate) fn diff(
    store: &Store,
    (from, to): (&str, &str),
    devices: &[String],
    now: &Policy,
) -> Result<Diff, Wrong> {
    let (from, to) = (side(from, store, now)?, side(to, store, now)?);
    let files = Difference::between(&from.files, &to.files);
    let mut diff = Diff { from: from.name.clone(), to: to.name.clone(), files, verdicts: Vec::new() };
    for id in devices {
        let before = from.policy.device(id).or_else(|| to.policy.device(id));
        let after = device(&to.policy, id)?;
        let before = before.unwrap_or(after);
        diff.verdicts.extend(changed_verdicts(store, (&from, before), (&to, after))?);
    }
    Ok(diff)
}

/// The profile of that id; if there is none, an error that names the nearest.
pub(crate) fn device<'p>(policy: &'p Policy, id: &str) -> Result<&'p DeviceProfile, Wrong> {
    policy.device(id).ok_or_else(|| {
        let id: String = id.chars().take(80).collect();
        let nearest = policy.nearest(&id).join(", ");
        Wrong::Unknown(format!("there is no device {id:?}; the nearest known ones are {nearest}"))
    })
}

/// The files in both sides whose verdicts for a device differ, each judged by the policy of its side.
fn changed_verdicts(
    store: &Store,
    (from, before): (&Side, &DeviceProfile),
    (to, after): (&Side, &DeviceProfile),
) -> Result<Vec<ChangedVerdict>, Wrong> {
    let mut changed = Vec::new();
    for file in from.files.intersection(&to.files) {
        let Some(row) = store.row_named(&file.sha256, &file.file)? else { continue };
        let old = judge(&row.facts, before, &from.policy).verdict;
        let new = judge(&row.facts, after, &to.policy);
        if old != new.verdict {
            changed.push(ChangedVerdict {
                device: after.id.clone(),
                project: file.project.clone(),
                file: file.file.clone(),
                sha256: file.sha256,
                from: old,
                to: new.verdict,
                reasons: new.reasons,
            });
        }
    }
    Ok(changed)
}
