//! `jetwheel migrate`.

use std::path::PathBuf;

use super::{Answer, Config, Context, Format, Usage};
use crate::store::Store;
use crate::wheel::Size;
use crate::wording::counted;

/// Arguments of `jetwheel migrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Copies the store of this data folder and configuration to that of another configuration: from an embedded one to a \
database and a bucket, back, or to another folder. Run again after it was cut short, it goes on where it ended. Wheels are \
hashed on their way. Nobody should write to either store meanwhile.

Examples:
  jetwheel --data /srv/jetwheel migrate --to scaled.toml
  jetwheel --config scaled.toml migrate --to embedded.toml --to-data /srv/jetwheel")]
pub struct Arguments {
    /// Configuration file of the other store
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Data folder of the other store, where it is not this one
    #[arg(long, value_name = "DIR")]
    to_data: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let config = Config::read(&context.path(&arguments.to))?;
    let backends = config.backends();
    let data = arguments.to_data.as_ref().map_or_else(|| context.data.clone(), |dir| context.path(dir));
    let one_is_embedded = context.config.catalogue.is_none() || config.catalogue.is_none();
    if data == context.data && one_is_embedded {
        return Err(Usage(
            "an embedded store has its data folder alone: name another one with --to-data".to_owned(),
        )
        .into());
    }
    let store = context.store()?;
    let other = Store::open_with(&data, &backends)?;
    let mut count = 0_u64;
    let done = store.transfer(&other, &mut |sha256| {
        count = count.saturating_add(1);
        tracing::info!(count, %sha256, "copies");
    })?;
    let report = other.verify(&|_, _| {})?;
    if context.format == Format::Json {
        context.console.print_json(&serde_json::json!({"copied": done, "verified": report}))?;
    } else {
        context.console.print(format_args!(
            "{} ({}, {}) and {} copied, {} known\n{} verified, {}\n",
            counted(done.sidecars, "file"),
            counted(done.wheels, "wheel"),
            Size(done.bytes),
            counted(done.snapshots, "snapshot"),
            done.known,
            counted(report.blobs, "wheel"),
            counted(report.findings.len(), "finding")
        ))?;
    }
    let whole = report.findings.is_empty() && report.damaged_snapshots.is_empty() && done.damaged.is_empty();
    Ok(if whole { Answer::Yes } else { Answer::No })
}
