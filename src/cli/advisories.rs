//! `jetwheel advisories`: the known-bad combinations in force.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::{Answer, Context, Format, Usage, devices};
use crate::policy::{Action, Advisory, Pattern, Policy};
use crate::server::api::advisories::List;

/// Arguments of `jetwheel advisories`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel advisories
  jetwheel advisories --device thor-jp7.0
  jetwheel advisories --suggested
  jetwheel --policies site/ advisories --format json")]
pub struct Arguments {
    /// Show those alone that concern this device
    #[arg(long, value_name = "ID")]
    device: Option<String>,
    /// Print advisories that failing reports of devices suggest, each ready to be a file in the policy folder
    #[arg(long)]
    suggested: bool,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let device = arguments.device.as_deref();
    let advisories: Vec<Advisory> = if let Some(remote) = context.remote() {
        if arguments.suggested {
            let text = "--suggested reads the reports in the data folder: run it on the mirror's machine";
            return Err(Usage(text.to_owned()).into());
        }
        let query: Vec<(&str, &str)> = device.iter().map(|id| ("device", *id)).collect();
        remote.get::<List>("advisories", &query)?.advisories
    } else {
        let policy = context.policy()?;
        let device = device.map(|id| devices::find(&policy, id)).transpose()?;
        if arguments.suggested {
            let id = device.map(|device| device.id.clone());
            return suggest(id.as_deref(), &policy, context);
        }
        let concerns = |advisory: &&Advisory| device.is_none_or(|device| advisory.concerns(device));
        policy.advisories().iter().filter(concerns).cloned().collect()
    };
    if context.format == Format::Json {
        context.console.print_json(&List { advisories })?;
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

#[derive(Debug, Serialize)]
struct Suggestion {
    file: String,
    text: String,
    /// How many reports suggest it.
    reports: usize,
}

/// Prints what failing reports suggest, less what is in force already.
fn suggest(device: Option<&str>, policy: &Policy, context: &mut Context) -> anyhow::Result<Answer> {
    let mut suggested: BTreeMap<String, Suggestion> = BTreeMap::new();
    for report in context.store()?.reports()? {
        if device.is_some_and(|device| device != report.body.device) {
            continue;
        }
        let Some((file, text)) = report.body.advisory() else { continue };
        let id = file.trim_end_matches(".toml");
        if policy.advisories().iter().all(|advisory| advisory.id != id) {
            let fresh = Suggestion { file: file.clone(), text, reports: 0 };
            let known = suggested.entry(file).or_insert(fresh);
            known.reports = known.reports.saturating_add(1);
        }
    }
    let suggested: Vec<Suggestion> = suggested.into_values().collect();
    if context.format == Format::Json {
        context.console.print_json(&serde_json::json!({ "suggested": suggested }))?;
        return Ok(Answer::Yes);
    }
    if suggested.is_empty() {
        context.console.say("no failing report suggests an advisory")?;
    }
    for Suggestion { file, text, reports } in suggested {
        context.console.print(format_args!("# advisories/{file} (failing reports: {reports})\n{text}\n"))?;
    }
    Ok(Answer::Yes)
}
