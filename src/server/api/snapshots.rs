//! Snapshots and channels, as commands and the API tell of them and change them. All blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::wrong::Wrong;
use crate::digest::Sha256;
use crate::policy::{DeviceProfile, Policy, Reason, Verdict};
use crate::server::in_force::InForce;
use crate::server::verdicts::{Terms, Verdicts};
use crate::server::view::{LIVE, Scope};
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

/// A file whose verdict another policy changed, or other files beside it.
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
    in_force: InForce,
    scope: Scope,
}

fn side(selector: &str, store: &Store, now: &Policy) -> Result<Side, Wrong> {
    if LIVE.contains(&selector) {
        let files = store.held_files()?.into_iter().collect();
        let in_force = InForce::first(now.clone());
        return Ok(Side { name: "live".to_owned(), files, in_force, scope: Scope::Live });
    }
    let id = find(store, selector)?;
    let (snapshot, scope) = (store.snapshot(&id)?, Scope::snapshot(store, &id)?);
    let texts: Vec<(String, String)> =
        snapshot.policy.into_iter().map(|PolicyFile { name, text }| (name, text)).collect();
    let policy = Policy::with_site(&texts).map_err(|error| Wrong::Stands(error.to_string()))?;
    let in_force = InForce::first(policy);
    Ok(Side { name: id.to_string(), files: snapshot.files.into_iter().collect(), in_force, scope })
}

/// Compares two snapshots; `now` is the policy in force.
pub(crate) fn diff(
    store: &Arc<Store>,
    (from, to): (&str, &str),
    devices: &[String],
    now: &Policy,
) -> Result<Diff, Wrong> {
    let (from, to) = (side(from, store, now)?, side(to, store, now)?);
    let files = Difference::between(&from.files, &to.files);
    let mut diff = Diff { from: from.name.clone(), to: to.name.clone(), files, verdicts: Vec::new() };
    for id in devices {
        let before = from.in_force.policy.device(id);
        let after = device(&to.in_force.policy, id)?;
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

/// The files in both sides whose verdicts for a device differ, each judged as its side's index does: by the policy of that side,
/// and beside the files of that side.
fn changed_verdicts(
    store: &Arc<Store>,
    (from, before): (&Side, &DeviceProfile),
    (to, after): (&Side, &DeviceProfile),
) -> Result<Vec<ChangedVerdict>, Wrong> {
    // Each policy has verdicts of its own.
    let (old, new) = (Verdicts::new(Arc::clone(store)), Verdicts::new(Arc::clone(store)));
    let before = Terms { device: before, in_force: &from.in_force, scope: &from.scope };
    let after = Terms { device: after, in_force: &to.in_force, scope: &to.scope };
    let both: Vec<&SnapshotFile> = from.files.intersection(&to.files).collect();
    let mut changed = Vec::new();
    for files in both.chunk_by(|one, other| one.project == other.project) {
        let Some(project) = files.first().map(|file| &file.project) else { continue };
        let (was, is) = (old.judged(project, before)?, new.judged(project, after)?);
        let mut reasons = None;
        for file in files {
            let key = (file.sha256, file.file.clone());
            let (Some(was), Some(is)) = (was.get(&key), is.get(&key)) else { continue };
            if was == is {
                continue;
            }
            if reasons.is_none() {
                reasons = new.explain(project, after, None)?;
            }
            let explained = reasons.iter().flat_map(|explanation| &explanation.files);
            let sha256 = file.sha256.to_string();
            let explained = explained.into_iter().find(|one| one.file == file.file && one.sha256 == sha256);
            changed.push(ChangedVerdict {
                device: after.device.id.clone(),
                project: file.project.clone(),
                file: file.file.clone(),
                sha256: file.sha256,
                from: *was,
                to: *is,
                reasons: explained.map(|one| one.reasons.clone()).unwrap_or_default(),
            });
        }
    }
    Ok(changed)
}
