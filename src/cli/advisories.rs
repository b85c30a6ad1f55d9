//! `jetwheel advisories`: the known-bad combinations in force.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Answer, Context, Format, devices};
use crate::policy::{Action, Advisory, Pattern};

/// Arguments of `jetwheel advisories`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel advisories
  jetwheel advisories --device thor-jp7.0
  jetwheel --policies site/ advisories --format json")]
pub struct Arguments {
    /// Show those alone that concern this device
    #[arg(long, value_name = "ID")]
    device: Option<String>,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    advisories: Vec<&'a Advisory>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let policy = context.policy()?;
    let device = arguments.device.as_deref().map(|id| devices::find(&policy, id)).transpose()?;
    let concerns = |advisory: &&Advisory| device.is_none_or(|device| advisory.concerns(device));
    let advisories: Vec<&Advisory> = policy.advisories().iter().filter(concerns).collect();
    if context.format == Format::Json {
        context.console.print_json(&Listed { advisories })?;
        return Ok(Answer::Yes);
    }
    let columns = context.console.width.clamp(40, 100) - 4;
    let mut shown = String::new();
    for advisory in advisories {
        let action = match advisory.action {
            Action::Warn => "warn",
            Action::Refuse => "refuse",
        };
        let patterns =
            |patterns: &[Pattern]| patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect();
        let mut on: Vec<String> = patterns(&advisory.compute_capability);
        on.extend::<Vec<String>>(patterns(&advisory.devices));
        let on = if on.is_empty() { "every device".to_owned() } else { on.join(", ") };
        writeln!(shown, "{}  {action}", advisory.id)?;
        let lines = [format!("{} {} on {on}", advisory.project, advisory.versions), advisory.text.clone()];
        for text in lines.iter().chain(&advisory.sources) {
            for line in devices::wrapped(text, columns) {
                writeln!(shown, "    {line}")?;
            }
        }
    }
    if shown.is_empty() {
        shown.push_str("no advisory concerns this device\n");
    }
    context.console.print(shown)?;
    Ok(Answer::Yes)
}
