//! `jetwheel gc`.

use std::time::Duration;

use super::input::parse_delay;
use super::{Answer, Context, Format};
use crate::wheel::Size;
use crate::wording::counted;

/// Arguments of `jetwheel gc`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Removes snapshots that the retention rule lets go (the configuration's keep_snapshots, 50 by default; never one that has a \
name or that a channel names), then blobs that neither the catalogue nor any kept snapshot names, if they are older than the \
delay. What the catalogue holds always stays. Safe beside a sync and a serving mirror.

Examples:
  jetwheel gc --dry-run
  jetwheel gc
  jetwheel gc --older-than 7d --format json")]
pub struct Arguments {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Leave alone what was written since: 24h, 7d, 0s
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_delay)]
    older_than: Duration,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let store = context.store()?;
    let sweep = store.gc(arguments.older_than, arguments.dry_run)?;
    if !sweep.dry_run && (sweep.blobs > 0 || !sweep.snapshots.is_empty()) {
        let what =
            serde_json::json!({ "snapshots": sweep.snapshots, "blobs": sweep.blobs, "bytes": sweep.bytes });
        context.audit("gc", what)?;
    }
    if context.format == Format::Json {
        context.console.print_json(&sweep)?;
        return Ok(Answer::Yes);
    }
    let done = if sweep.dry_run { "would be removed" } else { "removed" };
    for id in &sweep.snapshots {
        context.console.print(format_args!("snapshot {id} {done}\n"))?;
    }
    for sha256 in &sweep.files {
        context.console.print(format_args!("blob {sha256} {done}\n"))?;
    }
    context.console.print(format_args!(
        "{}, {} ({}) {done}; younger than the delay: {}\n",
        counted(sweep.snapshots.len(), "snapshot"),
        counted(sweep.blobs, "blob"),
        Size(sweep.bytes),
        counted(sweep.younger, "blob")
    ))?;
    Ok(Answer::Yes)
}
