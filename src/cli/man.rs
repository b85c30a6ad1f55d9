//! `jetwheel man`.

use std::path::PathBuf;

use clap::CommandFactory as _;

use super::{Answer, Cli, Context};

/// Arguments of `jetwheel man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel man --output /usr/local/share/man/man1
  jetwheel man --output . && man ./jetwheel-sync.1")]
pub struct Arguments {
    /// Folder for the pages, `jetwheel.1` and one for each command; it is made where it is missing
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let folder = context.path(&arguments.output);
    fs_err::create_dir_all(&folder)?;
    clap_mangen::generate_to(Cli::command(), &folder)?;
    context.console.say(format_args!("wrote the manual pages to {}", folder.display()))?;
    Ok(Answer::Yes)
}
