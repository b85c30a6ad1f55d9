//! `jetwheel sync`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::Context as _;
use bytesize::ByteSize;
use url::Url;

use super::console::counted;
use super::{Answer, Context, Format, Usage};
use crate::policy::{DeviceProfile, Policy};
use crate::store::Watched;
use crate::sync::{self, Listener, Means, Outcome, Progress, Report, Request, Requirement};
use crate::upstream::{Client, Credentials, Index, Options, Source, Upstream};

mod progress;
mod refetch;
mod remote;
mod text;

pub(super) use refetch::refetch;

/// Largest requirements file and upstream file, in bytes.
const LARGEST_FILE: u64 = 16 << 20;

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
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_size: Option<u64>,
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
        return put_into_queue(arguments, &asked.requirements, context);
    }
    let report = do_pass(arguments, asked, context)?;
    answer(&report, context)
}

/// What a command line asks for, read and checked.
struct Asked {
    policy: Arc<Policy>,
    devices: Vec<DeviceProfile>,
    requirements: Vec<Requirement>,
    sources: Vec<(Source, Vec<String>)>,
    client: Client,
}

/// Does a pass, and takes a snapshot of what it changed.
pub(super) fn perform(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Report> {
    let asked = Asked::of(arguments, context)?;
    do_pass(arguments, asked, context)
}

impl Asked {
    fn of(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Self> {
        let policy = Arc::new(context.policy()?);
        let devices = choose_devices(&arguments.devices, &policy)?;
        let mut requirements = read_requirements(arguments, context)?;
        if requirements.is_empty() && !arguments.all {
            return Err(Usage(
                "nothing is asked for: name requirements, a file with -r, or --all".to_owned(),
            )
            .into());
        }
        let index = read_index(arguments.index.as_deref().map(|dir| context.path(dir)), context)?;
        let mut options = network_options(context)?;
        let upstreams = choose_upstreams(arguments, &index, &devices, &mut options.credentials)?;
        options.own = Some(own_urls(upstreams.iter().map(|(upstream, _)| &upstream.url)));
        let client =
            Client::new(options).map_err(|error| Usage(format!("{:#}", anyhow::Error::new(error))))?;
        let cache = context.data.join("cache").join("pages");
        let sources: Vec<(Source, Vec<String>)> = upstreams
            .into_iter()
            .map(|(upstream, devices)| (Source::new(upstream, client.clone(), Some(cache.clone())), devices))
            .collect();
        // Before anything is asked of an upstream: it may be in use.
        context.store()?;
        if arguments.all {
            requirements.extend(all_projects(&sources)?);
        }
        Ok(Self { policy, devices, requirements, sources, client })
    }
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
        most_bytes: arguments.max_size,
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

/// Makes a job of each requirement.
fn put_into_queue(
    arguments: &Arguments,
    requirements: &[Requirement],
    context: &mut Context,
) -> anyhow::Result<Answer> {
    let queue = super::work::queue(context)?;
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

fn choose_devices(ids: &[String], policy: &Policy) -> anyhow::Result<Vec<DeviceProfile>> {
    if ids.is_empty() {
        let hint = "name a device with --device, such as orin-jp6.2; `jetwheel devices` lists them";
        return Err(Usage(hint.to_owned()).into());
    }
    let mut devices: Vec<DeviceProfile> = Vec::new();
    for id in ids {
        let Some(device) = policy.device(id) else {
            let nearest = policy.nearest(id);
            let hint = if nearest.is_empty() {
                "`jetwheel devices` lists the known ones".to_owned()
            } else {
                format!("the nearest known are {}", nearest.join(", "))
            };
            return Err(Usage(format!("no device {id:?}: {hint}")).into());
        };
        if !devices.iter().any(|known| known.id == device.id) {
            devices.push(device.clone());
        }
    }
    Ok(devices)
}

fn read_requirements(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Vec<Requirement>> {
    let wrong = |error: sync::RequirementError| Usage(format!("{:#}", anyhow::Error::new(error)));
    let mut requirements = Vec::new();
    for text in &arguments.requirements {
        requirements.push(Requirement::parse(text).map_err(wrong)?);
    }
    for file in &arguments.files {
        let read = sync::read_requirements(&context.path(file), &read_text).map_err(wrong)?;
        for note in &read.notes {
            context.console.say(format_args!("note: {note}"))?;
        }
        requirements.extend(read.requirements);
    }
    Ok(requirements)
}

/// Reads a text file of bounded size.
pub(super) fn read_text(file: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let reader = fs_err::File::open(file)?;
    let count = reader.take(LARGEST_FILE.saturating_add(1)).read_to_string(&mut text)?;
    if count as u64 > LARGEST_FILE {
        return Err(io::Error::other(format!("larger than {LARGEST_FILE} bytes")));
    }
    Ok(text)
}

/// The built-in upstreams with those of the site over them.
pub(super) fn read_index(dir: Option<PathBuf>, context: &Context) -> anyhow::Result<Index> {
    let mut index = Index::builtin().context("built-in upstreams")?;
    let Some(dir) = dir.or_else(|| context.config.index.clone().map(|dir| context.path(&dir))) else {
        return Ok(index);
    };
    let usage = |error: &dyn std::fmt::Display| Usage(format!("{}: {error}", dir.display()));
    let mut files = Vec::new();
    for entry in fs_err::read_dir(&dir).map_err(|error| Usage(error.to_string()))? {
        let path = entry.map_err(|error| usage(&error))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = read_text(&file).map_err(|error| usage(&error))?;
        index.read(&name, &text).map_err(|error| usage(&error))?;
    }
    Ok(index)
}

/// The upstreams of the command line, or all that serve one of the devices; each with the devices that it serves.
///
/// An upstream that is named serves all devices, whatever its entry says.
fn choose_upstreams(
    arguments: &Arguments,
    index: &Index,
    devices: &[DeviceProfile],
    credentials: &mut Credentials,
) -> anyhow::Result<Vec<(Upstream, Vec<String>)>> {
    let mut chosen: Vec<(Upstream, Vec<String>)> = Vec::new();
    let all = || devices.iter().map(|device| device.id.clone()).collect::<Vec<_>>();
    let named = arguments.upstreams.iter().map(|name| (name, false));
    let named: Vec<(&String, bool)> =
        named.chain(arguments.general.iter().map(|name| (name, true))).collect();
    for (name, general) in &named {
        let mut upstream = named_upstream(name, index)?;
        upstream.general |= general;
        chosen.push((upstream, all()));
    }
    if named.is_empty() {
        for upstream in index.upstreams() {
            let serves = devices.iter().filter(|device| upstream.serves(&device.id));
            let serves: Vec<String> = serves.map(|device| device.id.clone()).collect();
            if !serves.is_empty() {
                chosen.push((upstream.clone(), serves));
            }
        }
    }
    for (upstream, _) in &mut chosen {
        upstream.url = credentials.take_from(&upstream.url);
    }
    Ok(chosen)
}

/// The upstream of that name, or at that URL; it serves all devices.
pub(super) fn named_upstream(name: &str, index: &Index) -> anyhow::Result<Upstream> {
    let upstream = match index.named(name) {
        Some(upstream) => upstream.clone(),
        None if name.contains("://") => Upstream::at(name).map_err(Usage)?,
        None => {
            let known: Vec<&str> = index.upstreams().iter().map(|upstream| upstream.name.as_str()).collect();
            let known = known.join(", ");
            return Err(Usage(format!("no upstream {name:?}: give a URL, or one of {known}")).into());
        }
    };
    Ok(Upstream { devices: vec!["*".to_owned()], ..upstream })
}

/// The URLs whose hosts may be names of this machine: those of upstreams, and those of proxies.
pub(super) fn own_urls<'a>(upstreams: impl Iterator<Item = &'a Url>) -> Vec<Url> {
    let proxies =
        ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"].map(|name| [name.to_owned(), name.to_lowercase()]);
    let proxies = proxies.iter().flatten().filter_map(|name| std::env::var(name).ok());
    let parsed = |text: String| {
        let text = if text.contains("://") { text } else { format!("http://{text}") };
        text.parse().ok()
    };
    upstreams.cloned().chain(proxies.filter_map(parsed)).collect()
}

/// What the configuration and the environment say about networks.
pub(super) fn network_options(context: &mut Context) -> anyhow::Result<Options> {
    let mut options = context.config.network.options();
    options.ca = context.config.ca.as_deref().map(|file| context.path(file));
    for (host, login) in &context.config.credentials {
        options.credentials.add_host(host, login.clone());
    }
    if let Some(file) = std::env::var_os("NETRC").filter(|file| !file.is_empty()) {
        let file = context.path(Path::new(&file));
        options
            .credentials
            .add_netrc(&file)
            .map_err(|error| Usage(format!("NETRC: {:#}", anyhow::Error::new(error))))?;
    } else if let Some(file) =
        std::env::home_dir().map(|home| home.join(".netrc")).filter(|file| file.is_file())
        && let Err(error) = options.credentials.add_netrc(&file)
    {
        // Nobody asked for that file here, so that it is in disorder stops nothing.
        context.console.say(format_args!("note: {:#}; it is not used", anyhow::Error::new(error)))?;
    }
    Ok(options)
}

/// A requirement for every project that the upstreams list.
fn all_projects(sources: &[(Source, Vec<String>)]) -> anyhow::Result<Vec<Requirement>> {
    let runtime = runtime()?;
    let mut names = std::collections::BTreeSet::new();
    let listing = async {
        for (source, _) in sources {
            names.extend(source.projects().await?);
        }
        Ok::<_, crate::upstream::Error>(())
    };
    thread::scope(|scope| scope.spawn(|| runtime.block_on(listing)).join())
        .map_err(|_| anyhow::anyhow!("the list of projects ended by a panic"))??;
    names.iter().map(|name| Ok(Requirement::parse(name.as_str())?)).collect()
}

/// Reads a size: bytes, or with a unit of powers of 1000 (`20GB`) or 1024 (`20GiB`).
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let size: Result<ByteSize, String> = text.trim().parse();
    size.map(|size| size.as_u64()).map_err(|_| format!("{text:?} is no size, expected such as 20GB or 20GiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("20GB"), Ok(20_000_000_000));
        assert_eq!(parse_size("1 MiB"), Ok(1 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_size("99999999TB"), Ok(u64::MAX), "as good as no limit");
        assert!(parse_size("GB").is_err() && parse_size("-1").is_err());
    }
}
