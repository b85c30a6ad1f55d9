//! The commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};

use crate::store;

mod add;
mod advisories;
mod audit;
mod closure;
mod completions;
mod config;
mod console;
mod context;
mod detect;
mod devices;
mod explain;
mod export;
mod forward;
mod gc;
mod hands;
mod import;
mod input;
mod inspect;
mod inventory;
mod log;
mod man;
mod migrate;
mod outcome;
mod policies;
mod pull;
mod quickstart;
mod rebuild;
mod remote;
mod resolve;
mod serve;
mod snapshot;
mod sync;
mod token;
mod upstreams;
mod verify;
mod work;

pub use config::Config;
pub use console::Console;
pub use context::Context;
pub use log::LogWriter;
pub use outcome::{Answer, Usage};
pub use policies::load as load_policy;

use outcome::{exit_code, report};

/// Heading of the options that every command takes.
const GLOBAL: &str = "Options of every command";

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
