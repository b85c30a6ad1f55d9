//! The commands.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};

use crate::policy::Policy;
use crate::store::{self, Store};

mod add;
mod advisories;
mod audit;
mod closure;
mod completions;
mod config;
mod console;
mod detect;
mod devices;
mod explain;
mod export;
mod forward;
mod gc;
mod hands;
mod import;
mod inspect;
mod inventory;
mod log;
mod man;
mod migrate;
mod pull;
mod quickstart;
mod rebuild;
mod remote;
mod resolve;
mod serve;
mod snapshot;
mod sync;
mod token;
mod verify;
mod work;

pub use config::Config;
pub use console::Console;
pub use log::LogWriter;

/// Heading of the options that every command takes.
const GLOBAL: &str = "Options of every command";

/// Data folder where neither the command line nor `JETWHEEL_DATA` names one.
const DEFAULT_DATA: &str = "jetwheel-data";

/// A wheel mirror and resolver for NVIDIA Jetson.
#[derive(Debug, Parser)]
#[command(
    name = "jetwheel",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Examples:
  jetwheel quickstart
  jetwheel inspect torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64.whl --device orin-jp6.2
  jetwheel sync --device orin-jp6.2 cupy-cuda12x
  jetwheel serve --listen 0.0.0.0:8080
  jetwheel explain torch --device orin-jp6.2

Exit code: 0 yes or done; 1 the answer is no; 2 wrong usage or configuration; 3 could not (network, disk, damaged input).
RUST_LOG chooses what is logged to standard error, such as warn or jetwheel=debug; without it: warn,jetwheel=info."
)]
pub struct Cli {
    /// Data folder [default: ./jetwheel-data, unless the configuration names one]
    #[arg(long, global = true, env = "JETWHEEL_DATA", value_name = "DIR", help_heading = GLOBAL)]
    pub data: Option<PathBuf>,
    /// Configuration file [default: the first of `$XDG_CONFIG_HOME/jetwheel/jetwheel.toml` and
    /// `/etc/jetwheel/jetwheel.toml` that is there]
    #[arg(long, global = true, env = "JETWHEEL_CONFIG", value_name = "FILE", help_heading = GLOBAL)]
    pub config: Option<PathBuf>,
    /// Folder with the site's own policy, read over the built-in tables
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL)]
    pub policies: Option<PathBuf>,
    /// Have a mirror elsewhere do it, by its admin API: snapshot, explain, advisories, token, sync, audit.
    /// The token is in --token-file, `JETWHEEL_TOKEN` or a netrc file
    #[arg(long, global = true, env = "JETWHEEL_SERVER", value_name = "URL", help_heading = GLOBAL)]
    pub server: Option<String>,
    /// File with the access token for --server
    #[arg(long, global = true, value_name = "FILE", help_heading = GLOBAL)]
    pub token_file: Option<PathBuf>,
    /// Form of the answer on standard output
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = Format::Text,
        value_name = "FORMAT",
        help_heading = GLOBAL
    )]
    pub format: Format,
    /// Form of the log on standard error: lines for people, or one JSON object each
    #[arg(
        long,
        global = true,
        value_enum,
        env = "JETWHEEL_LOG_FORMAT",
        default_value_t = Format::Text,
        value_name = "FORMAT",
        help_heading = GLOBAL
    )]
    pub log_format: Format,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Forms of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For scripts.
    Json,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the whole way once: wheels in, verdicts, mirror, pip on two devices
    Quickstart(quickstart::Arguments),
    /// Say what wheels, libraries, cubins and folders contain, and on which devices that runs
    Inspect(inspect::Arguments),
    /// List the device profiles, or show one
    Devices(devices::Arguments),
    /// Name the device profile of this machine
    Detect(detect::Arguments),
    /// Take local wheels into the store
    Add(add::Arguments),
    /// Fetch, verify, inspect and keep what the devices need
    Sync(sync::Arguments),
    /// Do jobs of the queue that several machines share
    Work(work::Arguments),
    /// Serve the mirror
    Serve(serve::Arguments),
    /// Say of every known file of a project whether it runs on a device, and why
    Explain(explain::Arguments),
    /// Find a consistent, hashed set of wheels for a device
    Resolve(resolve::Arguments),
    /// Freeze, list, compare and promote sets of wheels
    Snapshot(snapshot::Arguments),
    /// Write a signed bundle for a site without network
    Export(export::Arguments),
    /// Take a bundle in
    Import(import::Arguments),
    /// Print which wheels this site holds, for `export --since` at another
    Inventory(inventory::Arguments),
    /// List the known-bad combinations in force
    Advisories(advisories::Arguments),
    /// Check every byte of the store
    Verify(verify::Arguments),
    /// Remove old snapshots, and wheels that nothing names
    Gc(gc::Arguments),
    /// Copy the store to that of another configuration, embedded or shared
    Migrate(migrate::Arguments),
    /// Make the catalogue anew from the blobs and their sidecar files
    Rebuild(rebuild::Arguments),
    /// Make, list and revoke access tokens
    Token(token::Arguments),
    /// Show who changed the store, when, and how
    Audit(audit::Arguments),
    /// Explain the configuration in force
    Config(config::show::Arguments),
    /// Print a shell's completions of this command
    Completions(completions::Arguments),
    /// Write the manual pages
    Man(man::Arguments),
}

/// What a command answers; the exit code follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done, or yes: exit code 0.
    Yes,
    /// The answer is no: refused, unsatisfiable, a check failed. Exit code 1.
    No,
}

/// Wrong usage or configuration: exit code 2. Any other error is exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Folder in the data folder with the policy that came in the newest bundle; used where the site has none of its own.
const BUNDLE_POLICIES: &str = "policies";

/// Whose policy is in force besides the built-in tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoliciesFrom {
    /// The folder that the command line or the configuration names.
    Site,
    /// The folder that an import made.
    Bundles,
    /// There is none.
    Nowhere,
}

/// Where a folder is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    OnCommandLine,
    InConfiguration,
}

/// What every command has at hand.
#[derive(Debug)]
pub struct Context {
    /// Where the command was given; relative paths start here.
    pub cwd: PathBuf,
    /// Data folder.
    pub data: PathBuf,
    /// The configuration file's values.
    pub config: Config,
    /// Form of the answer.
    pub format: Format,
    /// Where to write.
    pub console: Console,
    /// Who gave the command, as the audit log names them.
    pub who: String,
    policies: Option<PathBuf>,
    policies_from: PoliciesFrom,
    named: config::show::Named,
    store: Option<Arc<Store>>,
    remote: Option<Arc<remote::Remote>>,
}

impl Context {
    /// Reads the configuration that a command line names.
    ///
    /// Where it cannot, the console comes back with the error, so that this can be said.
    pub fn new(
        cli: &Cli,
        cwd: PathBuf,
        console: Console,
        store: Option<Arc<Store>>,
    ) -> Result<Self, (anyhow::Error, Console)> {
        let file = cli.config.as_ref().map(|file| cwd.join(file)).or_else(config::default_file);
        let config = match file.as_deref().map(Config::read).transpose() {
            Ok(config) => config.unwrap_or_default(),
            Err(error) => return Err((error, console)),
        };
        let named = cli.data.as_ref().or(config.data.as_ref());
        let data = cwd.join(named.map_or(Path::new(DEFAULT_DATA), PathBuf::as_path));
        let own = cli.policies.clone().or_else(|| config.policies.clone()).map(|dir| cwd.join(dir));
        let (policies, policies_from) = policies_now(own, &data);
        let named = config::show::Named {
            file,
            file_by: config::show::Named::by(cli.config.as_ref(), "--config", "JETWHEEL_CONFIG"),
            data_by: config::show::Named::by(cli.data.as_ref(), "--data", "JETWHEEL_DATA"),
            policies_by: cli.policies.as_ref().map(|_| "--policies"),
        };
        let who = audit::user(rustix::process::getuid().as_raw());
        let format = cli.format;
        let remote = None;
        Ok(Self { cwd, data, config, format, console, who, policies, policies_from, named, store, remote })
    }

    /// The store, opened at the first call.
    pub fn store(&mut self) -> anyhow::Result<Arc<Store>> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let store = Arc::new(Store::open_with(&self.data, &self.config.backends())?);
        if let Some(keep) = self.config.keep_snapshots {
            store.set_keep_snapshots(keep);
        }
        self.store = Some(Arc::clone(&store));
        Ok(store)
    }

    /// The mirror elsewhere that is to do it, where there is one.
    fn remote(&self) -> Option<Arc<remote::Remote>> {
        self.remote.as_ref().map(Arc::clone)
    }

    /// Whether a mirror elsewhere does it.
    const fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The same for another command on the same store, which writes elsewhere and is given by somebody else.
    fn twin(&self, console: Console, who: String) -> Self {
        let own = self.policies.clone().filter(|_| self.policies_from == PoliciesFrom::Site);
        let (policies, policies_from) = policies_now(own, &self.data);
        Self {
            cwd: self.cwd.clone(),
            data: self.data.clone(),
            config: self.config.clone(),
            format: self.format,
            console,
            who,
            policies,
            policies_from,
            named: self.named.clone(),
            store: self.store.clone(),
            remote: None,
        }
    }

    /// Gives the store back, so that another process can open it.
    pub fn close_store(&mut self) {
        self.store = None;
    }

    /// The policy in force: the built-in tables with the site's folder over them.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        match &self.policies {
            Some(dir) => load_policy(dir),
            None => Ok(Policy::builtin()),
        }
    }

    /// The site's policy folder, where there is one.
    pub fn policies(&self) -> Option<&Path> {
        self.policies.as_deref()
    }

    /// The policy folder that the command line or the configuration names, and which of them does.
    fn site_policies(&self) -> Option<(PathBuf, Named)> {
        let dir = self.policies.clone().filter(|_| self.policies_from == PoliciesFrom::Site)?;
        let of_configuration = self.config.policies.as_ref().map(|folder| self.cwd.join(folder));
        let named = if of_configuration.as_ref() == Some(&dir) {
            Named::InConfiguration
        } else {
            Named::OnCommandLine
        };
        Some((dir, named))
    }

    /// Where an import puts the policy of a bundle.
    fn bundle_policies(&self) -> PathBuf {
        self.data.join(BUNDLE_POLICIES)
    }

    /// A path of the command line, made absolute.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.cwd.join(path)
    }
}

/// Which policy folder counts, beside the site's own: that of bundles may come, and go, while a server runs.
fn policies_now(own: Option<PathBuf>, data: &Path) -> (Option<PathBuf>, PoliciesFrom) {
    let of_bundles = data.join(BUNDLE_POLICIES);
    match own {
        Some(own) => (Some(own), PoliciesFrom::Site),
        None if of_bundles.is_dir() => (Some(of_bundles), PoliciesFrom::Bundles),
        None => (None, PoliciesFrom::Nowhere),
    }
}

/// Reads a site's policy folder over the built-in tables.
pub fn load_policy(dir: &Path) -> anyhow::Result<Policy> {
    let files = read_policy(dir)?;
    Policy::with_site(&files).map_err(|error| Usage(format!("{}/{error}", dir.display())).into())
}

/// The files of a policy folder: names relative to it, and texts.
fn read_policy(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for (folder, prefix) in [(dir.to_owned(), ""), (dir.join("advisories"), "advisories/")] {
        if !folder.is_dir() {
            if prefix.is_empty() {
                return Err(Usage(format!(
                    "{}: no such folder; --policies names a folder",
                    folder.display()
                ))
                .into());
            }
            continue;
        }
        let mut names = Vec::new();
        for entry in fs_err::read_dir(&folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if Path::new(&name).extension().is_some_and(|extension| extension == "toml") {
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            let path = folder.join(&name);
            // A server reads the folder anew while it runs: a pipe would stop it, and a device fill its memory.
            if !fs_err::metadata(&path).context("policy file")?.is_file() {
                return Err(Usage(format!("policy file: {}: not a regular file", path.display())).into());
            }
            let text = sync::read_text(&path)
                .map_err(|error| Usage(format!("policy file: {}: {error}", path.display())))?;
            files.push((format!("{prefix}{name}"), text));
        }
    }
    Ok(files)
}

/// Runs a command.
pub fn run(command: Command, context: &mut Context) -> anyhow::Result<Answer> {
    match command {
        Command::Quickstart(arguments) => quickstart::run(&arguments, context),
        Command::Inspect(arguments) => inspect::run(&arguments, context),
        Command::Devices(arguments) => devices::run(&arguments, context),
        Command::Detect(arguments) => detect::run(&arguments, context),
        Command::Add(arguments) => add::run(&arguments, context),
        Command::Sync(arguments) => sync::run(&arguments, context),
        Command::Work(arguments) => work::run(&arguments, context),
        Command::Serve(arguments) => serve::run(&arguments, context),
        Command::Explain(arguments) => explain::run(&arguments, context),
        Command::Resolve(arguments) => resolve::run(&arguments, context),
        Command::Snapshot(arguments) => snapshot::run(&arguments, context),
        Command::Export(arguments) => export::run(&arguments, context),
        Command::Import(arguments) => import::run(&arguments, context),
        Command::Inventory(arguments) => inventory::run(&arguments, context),
        Command::Advisories(arguments) => advisories::run(&arguments, context),
        Command::Verify(arguments) => verify::run(&arguments, context),
        Command::Gc(arguments) => gc::run(&arguments, context),
        Command::Migrate(arguments) => migrate::run(&arguments, context),
        Command::Rebuild(arguments) => rebuild::run(&arguments, context),
        Command::Token(arguments) => token::run(&arguments, context),
        Command::Audit(arguments) => audit::run(&arguments, context),
        Command::Config(arguments) => config::show::run(&arguments, context),
        Command::Completions(arguments) => completions::run(&arguments, context),
        Command::Man(arguments) => man::run(&arguments, context),
    }
}

/// Runs a command line, here or inside the server that has the store open, and yields the exit code.
pub fn start(arguments: &[OsString], cli: Cli, cwd: PathBuf, console: Console) -> u8 {
    let serves = matches!(cli.command, Command::Serve(_));
    let mut context = match Context::new(&cli, cwd.clone(), console, None) {
        Ok(context) => context,
        Err((error, mut console)) => {
            let result = Err(error);
            report(&result, &mut console);
            return exit_code(&result);
        }
    };
    let result = attach(&cli, &mut context).and_then(|()| run(cli.command, &mut context));
    let in_use = result.as_ref().is_err_and(|error| {
        error.chain().any(|cause| matches!(cause.downcast_ref(), Some(store::Error::InUse { .. })))
    });
    if in_use
        && !serves
        && !context.is_remote()
        && let Some(code) = forward::forward(&context.data, arguments, cwd, &mut context.console)
    {
        return code;
    }
    report(&result, &mut context.console);
    exit_code(&result)
}

/// Has the command done by a mirror elsewhere, where the command line names one.
fn attach(cli: &Cli, context: &mut Context) -> anyhow::Result<()> {
    match (&cli.server, cli.token_file.as_deref()) {
        (Some(server), token_file) => {
            remote::check(&cli.command)?;
            context.remote = Some(Arc::new(remote::Remote::new(server, token_file, context)?));
            Ok(())
        }
        (None, Some(_)) => Err(Usage("--token-file is for --server, which is not given".to_owned()).into()),
        (None, None) => Ok(()),
    }
}

/// Prints the error of a command, where it has one.
fn report(result: &anyhow::Result<Answer>, console: &mut Console) {
    if let Err(error) = result
        && !is_closed_pipe(error)
    {
        // Where even the error stream is closed there is nobody left to tell.
        let _unheard = console.say(format_args!("error: {error:#}"));
    }
    let _unheard = console.flush();
}

/// The exit code of a command.
fn exit_code(result: &anyhow::Result<Answer>) -> u8 {
    match result {
        Ok(Answer::Yes) => 0,
        Ok(Answer::No) => 1,
        Err(error) if is_closed_pipe(error) => 0,
        Err(error) if error.chain().any(is_usage) => 2,
        Err(_) => 3,
    }
}

/// Whether another command line would do, as this machine or the mirror elsewhere says.
fn is_usage(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<Usage>() || cause.downcast_ref().is_some_and(remote::Problem::is_usage)
}

/// A closed pipe is the reader's way to say that it has seen enough.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
