//! `jetwheel gc`.

use std::time::Duration;

use super::console::{counted, in_units};
use super::{Answer, Context, Format};

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
        in_units(sweep.bytes),
        counted(sweep.younger, "blob")
    ))?;
    Ok(Answer::Yes)
}

/// Reads a span of time; a day has 24 hours.
pub(super) fn parse_delay(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no span of time, expected such as 24h or 7d");
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let seconds =
        span.total((jiff::Unit::Second, jiff::SpanRelativeTo::days_are_24_hours())).map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays() {
        assert_eq!(parse_delay("24h"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_delay("7d"), Ok(Duration::from_hours(7 * 24)));
        assert_eq!(parse_delay("0s"), Ok(Duration::ZERO));
        assert!(parse_delay("soon").is_err() && parse_delay("-1h").is_err());
    }
}
