//! `jetwheel completions`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Answer, Cli, Context};

/// Arguments of `jetwheel completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel completions bash > /etc/bash_completion.d/jetwheel
  jetwheel completions fish > ~/.config/fish/completions/jetwheel.fish")]
pub struct Arguments {
    /// Which shell's
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "jetwheel", &mut script);
    context.console.print(String::from_utf8(script)?)?;
    Ok(Answer::Yes)
}
