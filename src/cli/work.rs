//! `jetwheel work`.

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;

use super::{Answer, Cli, Command, Context, Usage};
use crate::store::Queue;

/// How often an empty queue is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Arguments of `jetwheel work`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Takes jobs from the queue of a shared store and does them, one after the other; any number of these processes, on any \
machine, share the work. `jetwheel sync --queue` puts jobs there. A job whose process dies goes to another one after half a \
minute; one that fails is tried again later, five times in all.

Examples:
  jetwheel --config site.toml sync --device orin-jp6.2 --queue -r requirements.txt
  jetwheel --config site.toml work
  jetwheel --config site.toml work --until-empty")]
pub struct Arguments {
    /// End when nothing waits or is being done
    #[arg(long)]
    until_empty: bool,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let queue = queue(context)?;
    loop {
        let Some(job) = queue.take()? else {
            let length = queue.length()?;
            if arguments.until_empty && length.waiting == 0 && length.running == 0 {
                return Ok(if length.dead == 0 { Answer::Yes } else { Answer::No });
            }
            std::thread::sleep(LOOK);
            continue;
        };
        tracing::info!(attempt = job.attempt, job = job.body.as_str(), "takes a job");
        match do_one(&job.body, context) {
            // No is an answer as well: the same would be found again.
            Ok(_) => job.done()?,
            Err(error) => {
                tracing::warn!(job = job.body.as_str(), "a job failed: {error:#}");
                job.failed(&format!("{error:#}"))?;
            }
        }
    }
}

/// The queue of the store.
pub(super) fn queue(context: &mut Context) -> anyhow::Result<Queue> {
    let queue = context.store()?.queue();
    queue.ok_or_else(|| {
        Usage("there is a queue only where `catalogue` in the configuration names a database".to_owned())
            .into()
    })
}

/// Runs the command line of a job; nothing but `sync` is one.
fn do_one(body: &str, context: &mut Context) -> anyhow::Result<Answer> {
    let words: Vec<String> = serde_json::from_str(body).context("a job is a list of words")?;
    let cli = Cli::try_parse_from(std::iter::once("jetwheel".to_owned()).chain(words))?;
    match cli.command {
        Command::Sync(arguments) => super::sync::run(&arguments, context),
        _ => Err(Usage("a job is a sync".to_owned()).into()),
    }
}
