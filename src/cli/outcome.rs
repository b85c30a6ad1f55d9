//! What came of a command: its answer or its error, and the exit code of each.

use std::io;

use super::{Console, remote};

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

/// Prints the error of a command, where it has one.
pub(super) fn report(result: &anyhow::Result<Answer>, console: &mut Console) {
    if let Err(error) = result
        && !is_closed_pipe(error)
    {
        // Where even the error stream is closed there is nobody left to tell.
        let _unheard = console.say(format_args!("error: {error:#}"));
    }
    let _unheard = console.flush();
}

/// The exit code of a command.
pub(super) fn exit_code(result: &anyhow::Result<Answer>) -> u8 {
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
