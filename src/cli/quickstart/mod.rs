//! `jetwheel quickstart`: the whole way once, from an index to two devices, each command shown as one would type it.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser as _;

use super::context::DEFAULT_DATA;
use super::explain::cut;
use super::{Answer, Cli, Console, Context};
use crate::policy::{DeviceProfile, Policy, judge};
use crate::wheel::ProjectName;

mod pip;
mod wheels;

/// Devices whose indexes are shown.
const DEVICES: [&str; 3] = ["orin-jp6.2", "orin-jp7.2", "thor-jp7.0"];
/// Small real projects (2 to 8 MB a wheel) on which those devices differ.
const PROJECTS: [&str; 2] = ["nvidia-nvtiff-tegra-cu12", "torchvision==0.26.0"];
/// Devices whose index pip is pointed at.
const CLIENTS: [&str; 2] = ["orin-jp6.2", "thor-jp7.0"];
/// Folder of the store where `--data` names none: what is only shown does not belong into the store that serves.
const DATA: &str = "jetwheel-quickstart";
/// How long a server may take to bind its port.
const START: Duration = Duration::from_secs(20);

/// Arguments of `jetwheel quickstart`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The store is quickstart's own, ./jetwheel-quickstart, unless --data names another.

Examples:
  jetwheel quickstart
  jetwheel quickstart --upstream https://index.example/simple/
  jetwheel quickstart --offline")]
pub struct Arguments {
    /// Index to take wheels from [default: the one that pip is configured with]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Use wheels built here around small real GPU code, without any index
    #[arg(long, conflicts_with = "upstream")]
    offline: bool,
    /// Keep serving at the end, until interrupted
    #[arg(long)]
    stay: bool,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    pip::check_python().context("quickstart shows pip at work")?;
    if context.data == context.cwd.join(DEFAULT_DATA) {
        context.data = context.cwd.join(DATA);
    }
    // What it shows is nobody else's.
    (context.config.catalogue, context.config.blobs) = (None, None);
    let upstream = match (&arguments.upstream, arguments.offline) {
        (Some(url), _) => Some(url.clone()),
        (None, true) => None,
        (None, false) => pip::index_url(),
    };

    context.console.say("1. Wheels into the store")?;
    let projects = fill(upstream.as_deref(), context)?;

    context.console.say("\n2. Which of them run where: read from the bytes, not from the file names")?;
    let policy = context.policy()?;
    print_matrix(&projects, &policy, context)?;
    // The server below opens the store, which has one owner at a time.
    context.close_store();

    context.console.say("\n3. The mirror")?;
    let mut server = Server::start(context)?;
    context.console.say(format_args!("   serving at {}", server.url))?;

    context.console.say("\n4. pip on two devices")?;
    let asked = ask_pip(&server.url, &projects, &policy, &mut context.console)?;

    if asked == Answer::No {
        bail!("the two devices did not get different files, as they should; what went wrong stands above");
    }
    let program = std::env::current_exe()?;
    context.console.say(format_args!(
        "\nDone: one mirror, {} devices, different answers. The store is {}. To go on:\n  \
         {} --data {} serve\n  pip install --index-url http://127.0.0.1:8080/orin-jp6.2/simple/ PROJECT",
        CLIENTS.len(),
        context.data.display(),
        program.display(),
        context.data.display(),
    ))?;
    if arguments.stay {
        context.console.say(format_args!("Serving at {} until interrupted.", server.url))?;
        server.process.wait()?;
    }
    Ok(asked)
}

/// Fills the store from an index, or with wheels built here, and yields the projects.
fn fill(upstream: Option<&str>, context: &mut Context) -> anyhow::Result<Vec<ProjectName>> {
    if let Some(url) = upstream {
        let shown = url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        context.console.say(format_args!(
            "   small real wheels, from the index at {}",
            shown.as_deref().unwrap_or("the given address")
        ))?;
        let mut sync = vec!["sync", "--no-deps", "--upstream", url];
        sync.extend(DEVICES.iter().flat_map(|device| ["--device", device]));
        sync.extend(PROJECTS);
        let names = PROJECTS.iter().map(|project| project.split("==").next().unwrap_or(project).parse());
        let projects: Vec<ProjectName> = names.collect::<Result<_, _>>()?;
        let synced = command(&sync, context).and_then(|_| Ok(context.store()?.projects(true)?));
        match synced {
            Ok(held) if projects.iter().any(|project| held.contains(project)) => return Ok(projects),
            Ok(_) => context.console.say("   the index has none of these projects")?,
            Err(error) => context.console.say(format_args!("   the index did not serve: {error:#}"))?,
        }
    }
    context.console.say(
        "   no general index at hand: wheels built here around small real GPU code, made with NVIDIA's tools",
    )?;
    let folder = tempfile::tempdir()?;
    let projects = wheels::build(folder.path())?;
    command(&["add", &folder.path().to_string_lossy()], context)?;
    Ok(projects)
}

/// Shows and runs one of our own commands, on the store that this one has open. Its report is left out: what it comes to
/// is shown next.
fn command(arguments: &[&str], context: &mut Context) -> anyhow::Result<Answer> {
    context.console.say(format_args!("   $ jetwheel {}", arguments.join(" ")))?;
    let cli = Cli::try_parse_from(std::iter::once(&"jetwheel").chain(arguments))?;
    let quiet = Console::new(
        Box::new(io::sink()),
        Box::new(io::stderr()),
        context.console.interactive,
        context.console.width,
    );
    let own = std::mem::replace(&mut context.console, quiet);
    let answer = super::run(cli.command, context);
    context.console = own;
    answer
}

/// Prints a row for every known file and a column for every device.
fn print_matrix(projects: &[ProjectName], policy: &Policy, context: &mut Context) -> anyhow::Result<()> {
    let devices: Vec<&DeviceProfile> = DEVICES.iter().filter_map(|id| policy.device(id)).collect();
    let store = context.store()?;
    let console = &mut context.console;
    console.print(format_args!("{:<48}", "wheel"))?;
    for device in &devices {
        console.print(format_args!(" {:<16}", device.id))?;
    }
    console.print("\n")?;
    for project in projects {
        for row in store.rows(project)? {
            let shown = cut(&row.facts.file, 48);
            console.print(format_args!("{shown:<48}"))?;
            for device in &devices {
                let judgement = judge(&row.facts, device, policy);
                let why =
                    judgement.reasons.first().map(|reason| serde_json::to_value(reason.code)).transpose()?;
                let word = why.as_ref().and_then(|code| code.as_str().map(str::to_owned));
                console
                    .print(format_args!(" {:<16}", word.unwrap_or_else(|| judgement.verdict.to_string())))?;
            }
            console.print("\n")?;
        }
    }
    Ok(())
}

/// Has pip fetch every project from two devices' indexes; the answer is yes if they got different files.
fn ask_pip(
    mirror: &str,
    projects: &[ProjectName],
    policy: &Policy,
    console: &mut Console,
) -> anyhow::Result<Answer> {
    let environment = pip::Environment::make()?;
    let mut answers = Vec::new();
    for id in CLIENTS {
        let device = policy.device(id).with_context(|| format!("no device profile {id}"))?;
        let index = format!("{mirror}{id}/simple/");
        console.say(format_args!("   $ pip download --no-deps --index-url {index} ..."))?;
        let mut files = Vec::new();
        for project in projects {
            let got = environment.download(project.as_str(), &index, device)?;
            console.say(format_args!(
                "     {project}: {}",
                got.as_deref().unwrap_or("no version that runs here")
            ))?;
            files.push(got);
        }
        answers.push(files);
    }
    let differ = answers.first() != answers.last();
    let fetched = answers.iter().all(|files| files.iter().any(Option::is_some));
    Ok(if differ && fetched { Answer::Yes } else { Answer::No })
}

/// A `jetwheel serve` of our own, ended with this value.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(context: &Context) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--data").arg(&context.data).current_dir(&context.cwd);
        if let Some(folder) = context.policies() {
            command.arg("--policies").arg(folder);
        }
        command.args(["serve", "--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut server = Self { process: command.stderr(Stdio::piped()).spawn()?, url: String::new() };
        let lines =
            BufReader::new(server.process.stderr.take().context("the server's error stream")?).lines();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Reads on after the address was found, so that the server never waits for a full pipe.
            for line in lines.map_while(Result::ok) {
                let _nobody_listens_any_more = send.send(line);
            }
        });
        let end = Instant::now() + START;
        let mut said = Vec::new();
        while let Ok(line) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if let Some((_, url)) = line.split_once("listening on ") {
                url.trim().clone_into(&mut server.url);
                return Ok(server);
            }
            said.push(line);
        }
        bail!("the server did not start: {}", said.join("; "))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended by itself where these fail.
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// A program of a virtual environment.
fn program(folder: &Path, name: &str) -> PathBuf {
    folder.join("bin").join(name)
}
