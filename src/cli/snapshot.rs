//! `jetwheel snapshot`.

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use super::remote::{Problem, segment, wrong};
use super::{Answer, Context, Format, policies};
use crate::server::api::snapshots::{self, ChangedVerdict, Diff, List, Listed, Moved};
use crate::server::api::{Wrong, evidence};
use crate::server::view::{LIVE, Scope};
use crate::store::{self, NewSnapshot, PolicyFile, Snapshot, SnapshotId, Store};
use crate::wheel::Size;
use crate::wording::counted;

/// Arguments of `jetwheel snapshot`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every add, sync and import that changes something makes a snapshot: a frozen list of the wheels held. The channel \
`candidate` follows the newest of them; `stable` is moved by promote and rollback alone. A snapshot is chosen by its id, \
by its name, or by a channel that names it; `live` is what the store holds now. Devices reach one at \
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
        /// Say as well which verdicts changed for this device, by policy or by what is beside a wheel; may be repeated
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

/// What `remove` answers.
#[derive(Debug, Deserialize)]
struct Removed {
    removed: SnapshotId,
}

/// What keeps a snapshot from being promoted.
#[derive(Debug, Serialize, Deserialize)]
struct TooFew {
    channel: String,
    snapshot: SnapshotId,
    lacking: Vec<evidence::Lack>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    match &arguments.verb {
        Verb::Create { name } => create(name.clone(), context),
        Verb::List => list(context),
        Verb::Show { snapshot } => {
            let shown: Snapshot = if let Some(remote) = context.remote() {
                remote.get(&format!("snapshots/{}", segment(snapshot)), &[])?
            } else {
                let store = context.store()?;
                store.snapshot(&find(&store, snapshot)?)?
            };
            show(&shown, context)
        }
        Verb::Diff { from, to, devices } => diff((from, to), devices, context),
        Verb::Promote { snapshot, channel, require_reports, devices } => {
            promote((snapshot, channel), *require_reports, devices, context)
        }
        Verb::Rollback { channel } => rollback(channel, context),
        Verb::Remove { snapshot } => remove(snapshot, context),
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
    let without_gone = context.policy()?.hides_gone();
    let policy = policy_files(context)?;
    Ok(NewSnapshot { reason: reason.to_owned(), policy, without_gone, ..NewSnapshot::default() })
}

/// The files of the site's policy.
pub(super) fn policy_files(context: &Context) -> anyhow::Result<Vec<PolicyFile>> {
    let files = match context.policies() {
        Some(dir) => policies::read(dir)?,
        None => Vec::new(),
    };
    Ok(files.into_iter().map(|(name, text)| PolicyFile { name, text }).collect())
}

/// The snapshot that a selector names.
pub(super) fn find(store: &Store, selector: &str) -> anyhow::Result<SnapshotId> {
    snapshots::find(store, selector).map_err(wrong)
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

fn create(name: Option<String>, context: &mut Context) -> anyhow::Result<Answer> {
    let made: Option<Listed> = if let Some(remote) = context.remote() {
        Some(remote.post("snapshots", &serde_json::json!({ "name": name }))?)
    } else {
        let store = context.store()?;
        let new = NewSnapshot { name, always: true, ..new("create", context)? };
        let made = snapshots::create(&store, &new).map_err(wrong)?;
        if let Some(made) = &made {
            context.audit("snapshot create", serde_json::json!({ "snapshot": made.head.id }))?;
        }
        made
    };
    let Some(made) = made else { return Err(anyhow::anyhow!("no snapshot was made")) };
    if context.format == Format::Json {
        context.console.print_json(&made)?;
    } else {
        context.console.print(format_args!("{}  {}\n", made.head.id, counted(made.head.count, "file")))?;
    }
    Ok(Answer::Yes)
}

fn list(context: &mut Context) -> anyhow::Result<Answer> {
    let list: List = match context.remote() {
        Some(remote) => remote.get("snapshots", &[])?,
        None => snapshots::list(&*context.store()?),
    };
    if context.format == Format::Json {
        context.console.print_json(&list)?;
        return Ok(Answer::Yes);
    }
    let console = &mut context.console;
    console
        .print(format_args!("{:<18}  {:>7}  {:>8}  {:<8}  NAME, CHANNELS\n", "ID", "FILES", "SIZE", "FOR"))?;
    for Listed { head, channels } in list.snapshots {
        let name = head.name.into_iter().chain(channels.iter().map(|channel| format!("@{channel}")));
        let names = name.collect::<Vec<_>>().join(" ");
        let line =
            format!("{}  {:>7}  {:>8}  {:<8}  {names}", head.id, head.count, Size(head.bytes), head.reason);
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
    let (files, size) = (counted(head.count, "file"), Size(head.bytes));
    console.print(format_args!("{}  {files}, {size}\n", head.id))?;
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
fn refuse(lacking: &TooFew, context: &mut Context) -> anyhow::Result<Answer> {
    if context.format == Format::Json {
        context.console.print_json(lacking)?;
        return Ok(Answer::No);
    }
    let TooFew { channel, snapshot, lacking } = lacking;
    context.console.say(format_args!("{channel} stays as it is: {snapshot} has too few reports"))?;
    for lack in lacking {
        context.console.print(format_args!("{}\n", lack.text()))?;
    }
    context.console.say("a device sends its report by: curl -fsS MIRROR/DEVICE/check.py | python3 -")?;
    Ok(Answer::No)
}

/// Tells how a channel was moved; nowhere to go back to is a no.
fn tell_move(moved: Result<Moved, Wrong>, context: &mut Context) -> anyhow::Result<Answer> {
    let moved = match moved {
        Ok(moved) => moved,
        Err(Wrong::Stands(why)) => {
            context.console.say(format_args!("error: {why}"))?;
            return Ok(Answer::No);
        }
        Err(other) => return Err(wrong(other)),
    };
    if !context.is_remote() {
        context.audit("snapshot channel", serde_json::to_value(&moved)?)?;
    }
    if context.format == Format::Json {
        context.console.print_json(&moved)?;
    } else {
        let was = moved.before.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
        context.console.print(format_args!("{} is {} (was {was})\n", moved.channel, moved.snapshot))?;
    }
    Ok(Answer::Yes)
}

fn promote(
    (snapshot, channel): (&str, &str),
    required: Option<std::num::NonZeroU16>,
    devices: &[String],
    context: &mut Context,
) -> anyhow::Result<Answer> {
    if let Some(remote) = context.remote() {
        let asked =
            serde_json::json!({"snapshot": snapshot, "require_reports": required, "devices": devices});
        return match remote.post(&format!("channels/{}", segment(channel)), &asked) {
            Err(Problem { kind: Some(kind), more, .. }) if kind == "too-few-reports" => {
                let lacking: TooFew = serde_json::from_value(more)?;
                refuse(&lacking, context)
            }
            moved => tell_move(Ok(moved?), context),
        };
    }
    let store = context.store()?;
    let id = find(&store, snapshot)?;
    if let Some(required) = required {
        let policy = context.policy()?;
        let frozen = store.snapshot(&id)?;
        let lacking = evidence::lacking(&store, &policy, &frozen, devices, usize::from(required.get()));
        let lacking = lacking.map_err(wrong)?;
        if !lacking.is_empty() {
            return refuse(&TooFew { channel: channel.to_owned(), snapshot: id, lacking }, context);
        }
    }
    tell_move(snapshots::move_channel(&store, channel, Some(id)), context)
}

fn rollback(channel: &str, context: &mut Context) -> anyhow::Result<Answer> {
    let moved = match context.remote() {
        Some(remote) => {
            match remote.post(&format!("channels/{}/rollback", segment(channel)), &serde_json::json!({})) {
                Err(Problem { status: 409, detail, .. }) => Err(Wrong::Stands(detail)),
                moved => Ok(moved?),
            }
        }
        None => snapshots::move_channel(&*context.store()?, channel, None),
    };
    tell_move(moved, context)
}

fn remove(snapshot: &str, context: &mut Context) -> anyhow::Result<Answer> {
    let id: SnapshotId = if let Some(remote) = context.remote() {
        let removed: Removed = remote.delete(&format!("snapshots/{}", segment(snapshot)))?;
        removed.removed
    } else {
        let id = snapshots::remove(&*context.store()?, snapshot).map_err(wrong)?;
        context.audit("snapshot remove", serde_json::json!({ "snapshot": id }))?;
        id
    };
    if context.format == Format::Json {
        context.console.print_json(&serde_json::json!({ "removed": id }))?;
    } else {
        context.console.print(format_args!("removed {id}\n"))?;
    }
    Ok(Answer::Yes)
}

fn diff((from, to): (&str, &str), devices: &[String], context: &mut Context) -> anyhow::Result<Answer> {
    let diff: Diff = if let Some(remote) = context.remote() {
        let devices: Vec<(&str, &str)> = devices.iter().map(|id| ("device", id.as_str())).collect();
        remote.get(&format!("snapshots/{}/diff/{}", segment(from), segment(to)), &devices)?
    } else {
        let policy = context.policy()?;
        snapshots::diff(&context.store()?, (from, to), devices, &policy).map_err(wrong)?
    };
    if context.format == Format::Json {
        context.console.print_json(&diff)?;
    } else {
        print_diff(&diff, context)?;
    }
    Ok(Answer::Yes)
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
        console.print(format_args!("verdict  {file}\n         {device}: {from} -> {to}\n"))?;
        for reason in reasons {
            console.print(format_args!("         {}\n", reason.text))?;
        }
    }
    console.print(format_args!(
        "{} added, {} gone, {} changed, {} changed\n",
        diff.files.added.len(),
        diff.files.gone.len(),
        diff.files.changed.len(),
        counted(diff.verdicts.len(), "verdict")
    ))?;
    Ok(())
}
