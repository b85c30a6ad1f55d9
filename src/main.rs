//! The `jetwheel` command: start tracing, hand the command line to `cli`, return its exit code.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;
use jetwheel::cli::{self, Cli, Console};

/// Width of tables where the terminal does not say its own.
const WIDTH: usize = 100;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| "info,sled=warn,pubgrub=warn".into()),
        )
        .init();
    // Two TLS providers would have to be chosen between at the first connection; ring is the only one built in.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(WIDTH);
    let console =
        Console::new(Box::new(io::stdout()), Box::new(io::stderr()), io::stderr().is_terminal(), width);
    // Without a working directory, absolute paths still work.
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    ExitCode::from(cli::start(&arguments, cli, cwd, console))
}
