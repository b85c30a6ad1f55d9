//! `jetwheel inventory`.

use super::{Answer, Context};
use crate::bundle::Receipt;

/// Arguments of `jetwheel inventory`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints, as JSON, which wheels this site holds. `jetwheel export --since` leaves them out of a bundle for this site.

Examples:
  jetwheel inventory > receipt.json")]
pub struct Arguments {}

pub(super) fn run(_arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let store = context.store()?;
    let receipt = Receipt {
        format: 1,
        site: store.site()?,
        snapshot: store.snapshots().pop().map(|head| head.id),
        files: store.held_files()?.into_iter().map(|file| file.sha256).collect(),
    };
    // A receipt is for a program, whatever the format.
    context.console.print_json(&receipt)?;
    Ok(Answer::Yes)
}
