//! `jetwheel sync`.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use super::{Answer, Context, Format};
use crate::store::Watched;
use crate::sync::{self, Listener, Means, Outcome, Progress, Report, Request};
use crate::wheel::Size;
use crate::wording::counted;
use asked::Asked;

mod asked;
mod progress;
mod queue;
mod refetch;
mod remote;
mod text;

pub(super) use refetch::refetch;

const EXAMPLES: &str = "\
Examples:
  jetwheel sync --device orin-jp6.2 torch torchvision
      the newest versions of both that run together on an Orin with JetPack 6.2, with all that they need
  jetwheel sync --device orin-jp6.2 --device thor-jp7.0 -r requirements.txt --max-size 20GB
      what a requirements file names, for two sorts of devices, with at most 20 GB downloaded
  jetwheel sync --device orin-jp6.2 --upstream http://devpi.example:3141/site/prod 'numpy<2'
      from a site's own index; a name such as jp6-cu126 chooses one of the known upstreams
  jetwheel sync --device orin-jp6.2 torch --dry-run
      what would be fetched, with sizes
  jetwheel sync --device orin-jp6.2 torch --no-deps --keep 3
      the three newest versions of torch that run there, without what they need

Exit code: 0 all there; 1 a device has no set that fits, the size limit was met, or an upstream lost most of what it had; 2 wrong usage; 3 something that is \
wanted could not be reached. Whatever the code, what was there stays.";

/// Arguments of `jetwheel sync`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Requirements such as torch, 'numpy<2'
    #[arg(value_name = "REQUIREMENT")]
    requirements: Vec<String>,
    /// Device profile to sync for; may be repeated
    #[arg(long = "device", short = 'd', value_name = "ID")]
    devices: Vec<String>,
    /// File with requirements; may be repeated
    #[arg(long = "requirement", short = 'r', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Name or URL of an upstream, in place of all that are known for the devices; may be repeated, the first counts most
    #[arg(long = "upstream", short = 'u', value_name = "NAME-or-URL")]
    upstreams: Vec<String>,
    /// Name or URL of a general upstream, as by --upstream: it comes last, since anybody may put projects into it
    #[arg(long, value_name = "NAME-or-URL")]
    general: Vec<String>,
    /// Take each requirement by itself, without what it needs
    #[arg(long)]
    no_deps: bool,
    /// Take every project that the upstreams list, each by itself
    #[arg(long)]
    all: bool,
    /// How many versions to keep of each requirement, each older one with a set of its own
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    /// End the search for a requirement after so many fetched and refused versions; the next pass goes on from there
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tries: Option<u32>,
    /// Most bytes to download in this pass: 500MB, 20GB
    #[arg(long, value_name = "SIZE")]
    max_size: Option<Size>,
    /// Wheels to fetch at the same time
    #[arg(long, default_value_t = remote::JOBS, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Folder with the site's own upstreams, read over the built-in ones
    #[arg(long, value_name = "DIR")]
    index: Option<PathBuf>,
    /// Go on though an upstream no longer lists most of what it had; what is there stays
    #[arg(long)]
    accept_losses: bool,
    /// Take the file of that name though its upstream had other bytes under it at first sight: they count from now on, and
    /// snapshots that list the old ones keep them; may be repeated
    #[arg(long, value_name = "FILE")]
    accept_changed: Vec<String>,
    /// Say what would be fetched, and fetch no wheel
    #[arg(long)]
    dry_run: bool,
    /// Put each requirement, with what it needs, as a job into the queue of a shared store; `work` does it
    #[arg(long, conflicts_with_all = ["dry_run", "max_size", "index"])]
    queue: bool,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    if let Some(remote) = context.remote() {
        return remote::run(&remote, arguments, context);
    }
    let asked = Asked::of(arguments, context)?;
    if arguments.queue {
        return queue::put(arguments, &asked.requirements, context);
    }
    let report = do_pass(arguments, asked, context)?;
    answer(&report, context)
}

/// Does a pass, and takes a snapshot of what it changed.
pub(super) fn perform(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Report> {
    let asked = Asked::of(arguments, context)?;
    do_pass(arguments, asked, context)
}

fn do_pass(arguments: &Arguments, asked: Asked, context: &mut Context) -> anyhow::Result<Report> {
    let Asked { policy, devices, requirements, sources, client } = asked;
    let store = context.store()?;
    let request = Request {
        devices,
        requirements,
        sources,
        keep: count(arguments.keep),
        tries: arguments.tries.map(count),
        most_bytes: arguments.max_size.map(|size| size.0),
        jobs: count(arguments.jobs),
        dry_run: arguments.dry_run,
        // Of all projects no set is asked for.
        dependencies: !arguments.no_deps && !arguments.all,
        accept_losses: arguments.accept_losses,
        accept_changed: arguments.accept_changed.iter().cloned().collect(),
    };
    let asked: Vec<String> = request.sources.iter().map(|(source, _)| source.upstream.name.clone()).collect();
    let report = pass(request, Means { store: Arc::clone(&store), policy, client }, context)?;
    if !report.dry_run {
        let fails = |name: &str| report.unreachable.iter().any(|event| event.upstream == name);
        store.put_reached(asked.iter().map(|name| (name.as_str(), !fails(name))))?;
        super::snapshot::after_change(context, "sync")?;
    }
    Ok(report)
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Runs a pass on threads of its own, while this one shows its progress.
fn pass(request: Request, means: Means, context: &mut Context) -> anyhow::Result<Report> {
    let runtime = runtime()?;
    let (tell, events) = mpsc::channel::<Progress>();
    let devices = request.devices.iter().map(|device| device.id.clone()).collect();
    let asked = request.requirements.iter().map(ToString::to_string).collect();
    // Whoever watches the server that this runs in.
    let watched = Arc::new(means.store.watch_pass(devices, asked));
    let shown_to = Arc::clone(&watched);
    let listener: Listener = Arc::new(move |event| {
        tell_watchers(&shown_to, &event);
        // After the last event nobody is left to hear of more.
        drop(tell.send(event));
    });
    let worker = thread::Builder::new()
        .name("sync".to_owned())
        .spawn(move || runtime.block_on(sync::run(request, means, listener)))?;
    let shown = progress::show(&events, &mut context.console);
    let report = worker.join().map_err(|_| anyhow::anyhow!("the pass ended by a panic"))?;
    shown?;
    let outcome = match &report {
        Ok(report) => outcome(report),
        Err(error) => error.to_string(),
    };
    watched.outcome(outcome);
    Ok(report?)
}

/// How a pass ended, in a few words.
fn outcome(report: &Report) -> String {
    let how = match report.outcome() {
        Outcome::Complete => "complete",
        Outcome::Incomplete => "incomplete: not all that was asked for is to be had",
        Outcome::Unreachable => "incomplete: not all could be reached",
    };
    let dry = if report.dry_run { "dry run, " } else { "" };
    let (fetched, refused) = (counted(report.downloads, "wheel"), counted(report.refused.len(), "file"));
    format!("{dry}{how}; {fetched} fetched, {refused} refused")
}

fn tell_watchers(watched: &Watched, event: &Progress) {
    match event {
        Progress::Project { project } => watched.project(project.clone()),
        Progress::Begins { file, size } => watched.begins(file.clone(), *size),
        Progress::Reached { file, bytes } => watched.reached(file, *bytes),
        Progress::Inspecting { file } => watched.inspecting(file),
        Progress::Ends { file, outcome } => watched.ends(file.clone(), outcome.clone()),
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    // Two threads keep a fast network and the disk busy; inspections run beside them.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn answer(report: &Report, context: &mut Context) -> anyhow::Result<Answer> {
    match context.format {
        Format::Json => context.console.print_json(report)?,
        Format::Text => {
            let width = context.console.width;
            context.console.print(text(report, width))?;
        }
    }
    conclude(report)
}

/// The report of a pass, for people.
pub(super) fn text(report: &Report, width: usize) -> String {
    text::render(report, width)
}

/// What a pass amounts to.
pub(super) fn conclude(report: &Report) -> anyhow::Result<Answer> {
    match report.outcome() {
        Outcome::Complete => Ok(Answer::Yes),
        Outcome::Incomplete => Ok(Answer::No),
        Outcome::Unreachable => {
            let first = report.unreachable.first().map_or("", |event| event.text.as_str());
            let more = match report.unreachable.len() {
                0 | 1 => String::new(),
                number => format!(" (and {} more)", number.saturating_sub(1)),
            };
            Err(anyhow::anyhow!("not all could be reached; what was there stays: {first}{more}"))
        }
    }
}
