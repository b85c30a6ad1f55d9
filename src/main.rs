//! The `jetwheel` command: start tracing, hand the command line to `cli`, return its exit code.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use jetwheel::cli::{self, Cli, Console, Format, LogWriter};
use rustix::fs::Mode;
use rustix::process::umask;

/// Width of tables where the terminal does not say its own.
const WIDTH: usize = 100;

/// The narrowest terminal that is believed; some environments say 0.
const NARROWEST: usize = 20;

/// What is logged where `RUST_LOG` does not say: our own doings, and of libraries only what goes wrong.
const LOGGED: &str = "warn,jetwheel=info";

/// What only the owner of what is made may do, whatever the umask allows.
const OWNERS_ALONE: Mode = Mode::WGRP.union(Mode::WOTH);

fn main() -> ExitCode {
    // No other thread makes files yet.
    let others = umask(OWNERS_ALONE);
    umask(others.union(OWNERS_ALONE));
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = Cli::parse();
    let log = tracing_subscriber::fmt()
        .with_writer(LogWriter::default)
        .with_ansi(io::stderr().is_terminal())
        // A log that nobody reads any more, or on a full disk, must not end the mirror.
        .log_internal_errors(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| LOGGED.into()),
        );
    match cli.log_format {
        Format::Text => log.init(),
        Format::Json => log.json().flatten_event(true).with_ansi(false).init(),
    }
    // Two TLS providers would have to be chosen between at the first connection; ring is the only one built in.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let width = columns.filter(|columns| *columns >= NARROWEST).unwrap_or(WIDTH);
    let console =
        Console::new(Box::new(io::stdout()), Box::new(io::stderr()), io::stderr().is_terminal(), width);
    // Without a working directory, absolute paths still work.
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    ExitCode::from(cli::start(&arguments, cli, cwd, console))
}
