//! `jetwheel rebuild`.

use super::{Answer, Context, Format};
use crate::wording::counted;

/// Arguments of `jetwheel rebuild`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The blobs and their sidecar files are the truth; the catalogue is made from them. A damaged catalogue is made anew \
without being asked; this command is for a store whose files were copied or restored by hand.

Examples:
  jetwheel rebuild
  jetwheel --data /srv/jetwheel rebuild --format json")]
pub struct Arguments {}

pub(super) fn run(_arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let store = context.store()?;
    let recovery = store.rebuild()?;
    context.audit(
        "rebuild",
        serde_json::json!({ "files": recovery.files, "unreadable": recovery.unreadable }),
    )?;
    if context.format == Format::Json {
        context
            .console
            .print_json(&serde_json::json!({ "files": recovery.files, "unreadable": recovery.unreadable }))?;
    } else {
        context.console.print(format_args!("{} in the catalogue\n", counted(recovery.files, "file")))?;
        for sha256 in &recovery.unreadable {
            context.console.print(format_args!("left out, for its sidecar file is damaged: {sha256}\n"))?;
        }
        if !recovery.unreadable.is_empty() {
            context.console.say("jetwheel verify --repair mends sidecar files whose blobs are whole")?;
        }
    }
    Ok(if recovery.unreadable.is_empty() { Answer::Yes } else { Answer::No })
}
