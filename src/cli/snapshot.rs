//! `jetwheel snapshot`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Subcommand;
use serde::Serialize;

use super::{Answer, Context, Format, Usage, devices, evidence};
use crate::digest::Sha256;
use crate::policy::{DeviceProfile, Policy, Reason, Verdict, judge};
use crate::server::view::{LIVE, Scope};
use crate::store::{
    self, Channel, Difference, NewSnapshot, PolicyFile, Snapshot, SnapshotFile, SnapshotHead, SnapshotId,
    Store,
};
use crate::wheel::ProjectName;

/// Arguments of `jetwheel snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every add, sync and import that changes something makes a snapshot: a frozen list of the wheels held. The channel
`candidate` follows the newest of them; `stable` is moved by promote and rollback alone. A snapshot is chosen by its id,
by its name, or by a channel that names it; `live` is what the store holds now. Devices reach one at
/DEVICE@SNAPSHOT/simple/; which one a URL without @ stands for is the configuration's `channel`.

Examples:
  jetwheel snapshot list
  jetwheel snapshot create --name before-torch-2.9
  jetwheel snapshot diff stable candidate --device orin-jp6.2
  jetwheel snapshot promote                                   # stable := candidate
  jetwheel snapshot promote 20261130T075300Z-1 --channel candidate
  jetwheel snapshot promote --require-reports 2 --device orin-jp6.2
  jetwheel snapshot rollback                                  # stable := what it was before")]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Freeze what the store holds now
    Create {
        /// A name for it; a snapshot with a name is kept until it is removed
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List all snapshots, oldest first, and where the channels point
    List,
    /// Show one snapshot with its files
    Show {
        /// Id, name or channel
        #[arg(value_name = "ID")]
        snapshot: String,
    },
    /// Say what is in one snapshot and not in the other
    Diff {
        /// Id, name or channel; or `live`
        #[arg(value_name = "A")]
        from: String,
        /// Id, name or channel; or `live`
        #[arg(value_name = "B")]
        to: String,
        /// Say as well which verdicts changed by policy for this device; may be repeated
        #[arg(long = "device", short = 'd', value_name = "ID")]
        devices: Vec<String>,
    },
    /// Point a channel to a snapshot
    Promote {
        /// Id, name or channel
        #[arg(value_name = "ID", default_value = "candidate")]
        snapshot: String,
        /// Which channel
        #[arg(long, value_name = "CHANNEL", default_value = "stable")]
        channel: String,
        /// Only if so many devices of each profile sent a report that its torch and torchvision run well on their GPU
        #[arg(long, value_name = "N")]
        require_reports: Option<std::num::NonZeroU16>,
        /// For which profiles reports are required; by default all that ever sent one; may be repeated
        #[arg(long = "device", short = 'd', value_name = "ID", requires = "require_reports")]
        devices: Vec<String>,
    },
    /// Point a channel back to the snapshot that it named before
    Rollback {
        /// Which channel
        #[arg(value_name = "CHANNEL", default_value = "stable")]
        channel: String,
    },
    /// Remove a snapshot; no wheel goes with it
    Remove {
        /// Id or name
        #[arg(value_name = "ID")]
        snapshot: String,
    },
}

/// A snapshot as `list` and `create` show it.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    head: SnapshotHead,
    channels: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct List {
    snapshots: Vec<Listed>,
    channels: BTreeMap<&'static str, Channel>,
}

#[derive(Debug, Serialize)]
struct Moved {
    channel: String,
    snapshot: SnapshotId,
    before: Option<SnapshotId>,
}

#[derive(Debug, Default, Serialize)]
struct Diff {
    from: String,
    to: String,
    #[serde(flatten)]
    files: Difference,
    verdicts: Vec<ChangedVerdict>,
}

#[derive(Debug, Serialize)]
struct ChangedVerdict {
    device: String,
    project: ProjectName,
    file: String,
    sha256: Sha256,
    from: Verdict,
    to: Verdict,
    reasons: Vec<Reason>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let store = context.store()?;
    match &arguments.verb {
        Verb::Create { name } => create(name.clone(), &store, context),
        Verb::List => list(&store, context),
        Verb::Show { snapshot } => show(&store.snapshot(&find(&store, snapshot)?)?, context),
        Verb::Diff { from, to, devices } => diff((from, to), devices, &store, context),
        Verb::Promote { snapshot, channel, require_reports, devices } => {
            let id = find(&store, snapshot)?;
            if let Some(required) = require_reports {
                let policy = context.policy()?;
                let required = usize::from(required.get());
                let lacking = evidence::lacking(&store, &policy, &store.snapshot(&id)?, devices, required)?;
                if !lacking.is_empty() {
                    return refuse(&id, channel, &lacking, context);
                }
            }
            move_channel(channel, &store, context, |store| store.promote(channel, &id).map(|()| id))
        }
        Verb::Rollback { channel } => move_channel(channel, &store, context, |store| store.rollback(channel)),
        Verb::Remove { snapshot } => {
            // One whose file is damaged may not be found by anything but its file.
            let damaged = snapshot.parse().ok().filter(|id| store.has_snapshot(id).is_ok_and(|there| there));
            let id = damaged.map_or_else(|| find(&store, snapshot), Ok)?;
            store.remove_snapshot(&id).map_err(usage)?;
            context.audit("snapshot remove", serde_json::json!({ "snapshot": id }))?;
            if context.format == Format::Json {
                context.console.print_json(&serde_json::json!({ "removed": id }))?;
            } else {
                context.console.print(format_args!("removed {id}\n"))?;
            }
            Ok(Answer::Yes)
        }
    }
}

/// Freezes what is held after a change, where that says something new. `candidate` follows.
pub(super) fn after_change(context: &mut Context, reason: &str) -> anyhow::Result<Option<SnapshotId>> {
    let store = context.store()?;
    let made = freeze(&store, &new(reason, context)?)?;
    if let Some(id) = &made {
        context.audit(reason, serde_json::json!({ "snapshot": id }))?;
        context.console.say(format_args!("snapshot {id}"))?;
    }
    Ok(made)
}

/// Freezes what is held, where that says something new, and points `candidate` to it.
pub(super) fn freeze(store: &Store, new: &NewSnapshot) -> Result<Option<SnapshotId>, store::Error> {
    let made = store.take_snapshot(new)?;
    if let Some(id) = made.clone().or_else(|| store.left_behind("candidate")) {
        store.promote("candidate", &id)?;
        store.prune_snapshots()?;
    }
    Ok(made)
}

/// A snapshot by the site's policy.
pub(super) fn new(reason: &str, context: &Context) -> anyhow::Result<NewSnapshot> {
    new_by(reason, context.policies())
}

/// A snapshot by the policy of a folder.
pub(super) fn new_by(reason: &str, policies: Option<&Path>) -> anyhow::Result<NewSnapshot> {
    let without_gone = match policies {
        Some(dir) => super::load_policy(dir)?.hides_gone(),
        None => Policy::builtin().hides_gone(),
    };
    let policy = policy_files_of(policies)?;
    Ok(NewSnapshot { reason: reason.to_owned(), policy, without_gone, ..NewSnapshot::default() })
}

/// The files of the site's policy.
pub(super) fn policy_files(context: &Context) -> anyhow::Result<Vec<PolicyFile>> {
    policy_files_of(context.policies())
}

/// The files of a policy folder.
pub(super) fn policy_files_of(policies: Option<&Path>) -> anyhow::Result<Vec<PolicyFile>> {
    let files = match policies {
        Some(dir) => super::read_policy(dir)?,
        None => Vec::new(),
    };
    Ok(files.into_iter().map(|(name, text)| PolicyFile { name, text }).collect())
}

/// The snapshot that a selector names.
pub(super) fn find(store: &Store, selector: &str) -> anyhow::Result<SnapshotId> {
    if let Some(id) = store.find_snapshot(selector) {
        return Ok(id);
    }
    if store::CHANNELS.contains(&selector) {
        let text = format!(
            "the channel {selector} names no snapshot yet: jetwheel snapshot promote ID --channel {selector}"
        );
        return Err(Usage(text).into());
    }
    Err(usage(store::Error::NoSnapshot { asked: selector.to_owned() }))
}

/// Splits `DEVICE` or `DEVICE@SNAPSHOT`, the snapshot by its id, its name, or a channel.
pub(super) fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('@') {
        Some((device, selector)) => (device, Some(selector)),
        None => (text, None),
    }
}

/// The files among which a device chooses: those of the snapshot that it was given with, or else what a server would give it
/// where its URL names none.
pub(super) fn scope(selector: Option<&str>, context: &mut Context) -> anyhow::Result<Scope> {
    let store = context.store()?;
    match selector.or(context.config.channel.as_deref()) {
        Some(selector) if !LIVE.contains(&selector) => Ok(Scope::snapshot(&store, &find(&store, selector)?)?),
        _ => Ok(Scope::Live),
    }
}

/// What the user can put right by another command line is wrong usage.
fn usage(error: store::Error) -> anyhow::Error {
    match error {
        store::Error::NoSnapshot { .. }
        | store::Error::SnapshotName { .. }
        | store::Error::SnapshotInUse { .. } => Usage(error.to_string()).into(),
        other => other.into(),
    }
}

fn create(name: Option<String>, store: &Store, context: &mut Context) -> anyhow::Result<Answer> {
    let new = NewSnapshot { name, always: true, ..new("create", context)? };
    let Some(id) = store.take_snapshot(&new).map_err(usage)? else {
        return Err(anyhow::anyhow!("no snapshot was made"));
    };
    store.promote("candidate", &id)?;
    store.prune_snapshots()?;
    context.audit("snapshot create", serde_json::json!({ "snapshot": id }))?;
    let made = listed(store).into_iter().find(|listed| listed.head.id == id);
    if context.format == Format::Json {
        context.console.print_json(&made)?;
    } else {
        let files = made.map_or(0, |made| made.head.count);
        context.console.print(format_args!("{id}  {files} files\n"))?;
    }
    Ok(Answer::Yes)
}

fn listed(store: &Store) -> Vec<Listed> {
    let channels = store.channels();
    let of = |id: &SnapshotId| {
        channels.iter().filter(|(_, channel)| channel.current == *id).map(|(name, _)| *name).collect()
    };
    store.snapshots().into_iter().map(|head| Listed { channels: of(&head.id), head }).collect()
}

fn list(store: &Store, context: &mut Context) -> anyhow::Result<Answer> {
    let snapshots = listed(store);
    if context.format == Format::Json {
        let channels = store.channels().into_iter().collect();
        context.console.print_json(&List { snapshots, channels })?;
        return Ok(Answer::Yes);
    }
    let console = &mut context.console;
    console.print(format_args!(
        "{:<18}  {:>7}  {:>15}  {:<8}  NAME, CHANNELS\n",
        "ID", "FILES", "BYTES", "FOR"
    ))?;
    for Listed { head, channels } in snapshots {
        let name = head.name.into_iter().chain(channels.iter().map(|channel| format!("@{channel}")));
        let names = name.collect::<Vec<_>>().join(" ");
        let line = format!("{}  {:>7}  {:>15}  {:<8}  {names}", head.id, head.count, head.bytes, head.reason);
        console.print(format_args!("{}\n", line.trim_end()))?;
    }
    Ok(Answer::Yes)
}

fn show(snapshot: &Snapshot, context: &mut Context) -> anyhow::Result<Answer> {
    if context.format == Format::Json {
        context.console.print_json(snapshot)?;
        return Ok(Answer::Yes);
    }
    let head = &snapshot.head;
    let console = &mut context.console;
    console.print(format_args!("{}  {} files, {} bytes\n", head.id, head.count, head.bytes))?;
    console.print(format_args!("made {} by {}\n", head.created, head.reason))?;
    if let Some(name) = &head.name {
        console.print(format_args!("named {name}\n"))?;
    }
    if let Some(origin) = &head.origin {
        console.print(format_args!("a copy of {} of site {}\n", origin.snapshot, origin.site))?;
    }
    for file in &snapshot.files {
        console.print(format_args!("{}  {}\n", file.sha256, file.file))?;
    }
    Ok(Answer::Yes)
}

/// Says what reports lack for a snapshot to be promoted.
fn refuse(
    snapshot: &SnapshotId,
    channel: &str,
    lacking: &[evidence::Lack],
    context: &mut Context,
) -> anyhow::Result<Answer> {
    if context.format == Format::Json {
        let answer = serde_json::json!({ "channel": channel, "snapshot": snapshot, "lacking": lacking });
        context.console.print_json(&answer)?;
        return Ok(Answer::No);
    }
    context.console.say(format_args!("{channel} stays as it is: {snapshot} has too few reports"))?;
    for lack in lacking {
        context.console.print(format_args!("{}\n", lack.text()))?;
    }
    context.console.say("a device sends its report by: curl -fsS MIRROR/DEVICE/check.py | python3 -")?;
    Ok(Answer::No)
}

fn move_channel(
    channel: &str,
    store: &Store,
    context: &mut Context,
    change: impl FnOnce(&Store) -> Result<SnapshotId, store::Error>,
) -> anyhow::Result<Answer> {
    if !store::CHANNELS.contains(&channel) {
        let text = format!("no channel {channel:?}: there are {}", store::CHANNELS.join(" and "));
        return Err(Usage(text).into());
    }
    let before = store.find_snapshot(channel);
    let snapshot = match change(store) {
        Ok(snapshot) => snapshot,
        Err(error @ store::Error::NothingBefore { .. }) => {
            context.console.say(format_args!("error: {error}"))?;
            return Ok(Answer::No);
        }
        Err(error) => return Err(usage(error)),
    };
    let moved = Moved { channel: channel.to_owned(), snapshot, before };
    context.audit("snapshot channel", serde_json::to_value(&moved)?)?;
    if context.format == Format::Json {
        context.console.print_json(&moved)?;
    } else {
        let was = moved.before.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
        context.console.print(format_args!("{channel} is {} (was {was})\n", moved.snapshot))?;
    }
    Ok(Answer::Yes)
}

/// One side of a comparison.
struct Side {
    name: String,
    files: BTreeSet<SnapshotFile>,
    policy: Policy,
}

fn side(selector: &str, store: &Store, context: &Context) -> anyhow::Result<Side> {
    if LIVE.contains(&selector) {
        let files = store.held_files()?.into_iter().collect();
        return Ok(Side { name: "live".to_owned(), files, policy: context.policy()? });
    }
    let snapshot = store.snapshot(&find(store, selector)?)?;
    let texts: Vec<(String, String)> =
        snapshot.policy.into_iter().map(|PolicyFile { name, text }| (name, text)).collect();
    let policy = Policy::with_site(&texts)?;
    Ok(Side { name: snapshot.head.id.to_string(), files: snapshot.files.into_iter().collect(), policy })
}

fn diff(
    (from, to): (&str, &str),
    devices: &[String],
    store: &Store,
    context: &mut Context,
) -> anyhow::Result<Answer> {
    let (from, to) = (side(from, store, context)?, side(to, store, context)?);
    let files = Difference::between(&from.files, &to.files);
    let mut diff = Diff { from: from.name.clone(), to: to.name.clone(), files, verdicts: Vec::new() };
    for id in devices {
        let before = from.policy.device(id).or_else(|| to.policy.device(id));
        let after = devices::find(&to.policy, id)?;
        let before = before.unwrap_or(after);
        diff.verdicts.extend(changed_verdicts(store, (&from, before), (&to, after))?);
    }
    if context.format == Format::Json {
        context.console.print_json(&diff)?;
    } else {
        print_diff(&diff, context)?;
    }
    Ok(Answer::Yes)
}

/// The files in both sides whose verdicts for a device differ, each judged by the policy of its side.
fn changed_verdicts(
    store: &Store,
    (from, before): (&Side, &DeviceProfile),
    (to, after): (&Side, &DeviceProfile),
) -> anyhow::Result<Vec<ChangedVerdict>> {
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

fn print_diff(diff: &Diff, context: &mut Context) -> anyhow::Result<()> {
    let console = &mut context.console;
    console.print(format_args!("{} -> {}\n", diff.from, diff.to))?;
    for file in &diff.files.added {
        console.print(format_args!("added    {}\n", file.file))?;
    }
    for file in &diff.files.gone {
        console.print(format_args!("gone     {}\n", file.file))?;
    }
    for file in &diff.files.changed {
        console
            .print(format_args!("changed  {}\n         {}\n      -> {}\n", file.file, file.from, file.to))?;
    }
    for change in &diff.verdicts {
        let ChangedVerdict { device, file, from, to, reasons, .. } = change;
        console.print(format_args!("policy   {file}\n         {device}: {from} -> {to}\n"))?;
        for reason in reasons {
            console.print(format_args!("         {}\n", reason.text))?;
        }
    }
    console.print(format_args!(
        "{} added, {} gone, {} changed, {} verdicts changed by policy\n",
        diff.files.added.len(),
        diff.files.gone.len(),
        diff.files.changed.len(),
        diff.verdicts.len()
    ))?;
    Ok(())
}
