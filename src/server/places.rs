//! How many connections are taken at once, and the open files that they need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that a configuration may ask for: each has buffers, so that more of them would need gigabytes of memory.
pub const MOST_CONNECTIONS: usize = 1 << 16;

/// Open files of a connection: its socket, and a file that it sends or takes in, or the bucket's socket that has it.
const FILES_EACH: u64 = 2;

/// Open files of everything else: the store or the database's connections, files kept open for ranges, pulls, the log.
const FILES_BESIDE: u64 = 224;

/// As many of these connections as the process may have open files for, of which it takes all that the system grants.
///
/// 1,024 files, which is what a process has where nobody raised that, are 400 connections.
pub fn connections_that_fit(wanted: usize) -> usize {
    let files = raise_open_files();
    let fit = files.map_or(u64::MAX, |files| (files.saturating_sub(FILES_BESIDE) / FILES_EACH).max(1));
    let fit = usize::try_from(fit).unwrap_or(usize::MAX);
    if fit < wanted {
        let needed = FILES_EACH.saturating_mul(wanted as u64).saturating_add(FILES_BESIDE);
        tracing::warn!(
            "limits.connections is {wanted}, which takes {needed} open files, and this process may have {}: {fit} connections \
             are taken at once. LimitNOFILE= in the service's unit raises that, or ulimit -Hn where it is started by hand",
            files.unwrap_or_default()
        );
    }
    fit.min(wanted)
}

/// Raises the process's limit of open files to what the system grants; yields it, none where there is none.
fn raise_open_files() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        // Some sandboxes forbid the call; what there is may do.
        Err(error) => {
            tracing::debug!(%error, "the limit of open files could not be raised");
            current
        }
    }
}
