//! The `jetwheel` command: start tracing, run the command, print the error chain, choose the exit code.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use jetwheel::cli::{self, Answer, Cli, Console, Context, Usage};

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info,sled=warn".into()),
        )
        .init();
    match start(cli) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(error) => {
            // A closed pipe is the reader's way to say that it has seen enough.
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
            {
                return ExitCode::SUCCESS;
            }
            let _unprintable = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::from(if error.downcast_ref::<Usage>().is_some() { 2 } else { 3 })
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<Answer> {
    // Two TLS providers would have to be chosen between at the first connection; ring is the only one built in.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(100);
    let console =
        Console::new(Box::new(io::stdout()), Box::new(io::stderr()), io::stderr().is_terminal(), width);
    let mut context = Context::new(&cli, std::env::current_dir()?, console, None)?;
    let answer = cli::run(cli.command, &mut context)?;
    context.console.flush()?;
    Ok(answer)
}
