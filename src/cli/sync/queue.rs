//! `sync --queue`: jobs for whoever works on a shared store.

use super::Arguments;
use crate::cli::{Answer, Context, Format, work};
use crate::sync::Requirement;
use crate::wording::counted;

/// Makes a job of each requirement.
pub(super) fn put(
    arguments: &Arguments,
    requirements: &[Requirement],
    context: &mut Context,
) -> anyhow::Result<Answer> {
    let queue = work::queue(context)?;
    let mut words = vec!["sync".to_owned(), format!("--keep={}", arguments.keep)];
    let named =
        [("device", &arguments.devices), ("upstream", &arguments.upstreams), ("general", &arguments.general)];
    for (option, values) in named {
        words.extend(values.iter().map(|value| format!("--{option}={value}")));
    }
    words.extend(arguments.accept_changed.iter().map(|file| format!("--accept-changed={file}")));
    words.extend(arguments.tries.map(|tries| format!("--tries={tries}")));
    let flags =
        [("--no-deps", arguments.no_deps || arguments.all), ("--accept-losses", arguments.accept_losses)];
    words.extend(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| (*flag).to_owned()));
    words.push("--".to_owned());
    let job = |requirement: &Requirement| {
        let words: Vec<String> = words.iter().cloned().chain([requirement.to_string()]).collect();
        serde_json::to_string(&words)
    };
    let jobs = requirements.iter().map(job).collect::<Result<Vec<_>, _>>()?;
    let added = queue.add(&jobs)?;
    if context.format == Format::Json {
        context.console.print_json(&serde_json::json!({"queued": added, "queue": queue.length()?}))?;
    } else {
        context.console.print(format_args!(
            "{} queued of {}\n",
            counted(added, "job"),
            counted(requirements.len(), "requirement")
        ))?;
    }
    Ok(Answer::Yes)
}
