//! Why the store could not do what was asked.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Sha256;
use crate::wheel::Size;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the store open.
    #[error("{}: the store is in use by {}", .dir.display(), holder(.pid.as_ref(), .command.as_deref()))]
    InUse {
        /// The data folder.
        dir: PathBuf,
        /// The process that holds it, where its lock file says so.
        pid: Option<u32>,
        /// The command that the process runs, where its lock file says so.
        command: Option<String>,
    },
    /// The folder is no store, or that of another version.
    #[error("{}: {found}", .path.display())]
    Format {
        /// The file that says which format the store has.
        path: PathBuf,
        /// What was found, and what was expected.
        found: String,
    },
    /// The file system refused.
    #[error("{}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The disk is too full to take anything in; what is there is still served.
    #[error("{}: no space: {} are free on the disk, and {} are needed, with what stays free for the catalogue", .dir.display(), Size(*.free), Size(*.needed))]
    Full {
        /// The data folder.
        dir: PathBuf,
        /// Free space, in bytes.
        free: u64,
        /// What is needed, in bytes, with what has to stay free for the catalogue.
        needed: u64,
    },
    /// A file of the store does not hold what was written to it.
    #[error("{}: {found}; `jetwheel verify --repair` mends what can be mended", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found, and what was expected.
        found: String,
    },
    /// The file of the access tokens does not read as one. Until it does, no token is worth anything.
    #[error("{}: {found}; put it back from a backup, or remove it, which revokes all tokens", .path.display())]
    Tokens {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// The catalogue could not be used, although its folder could.
    #[error("{}: the catalogue refused: {found}", .path.display())]
    Catalogue {
        /// The folder of the catalogue.
        path: PathBuf,
        /// What sled said.
        found: String,
    },
    /// What the store is kept in is away; the same may work a little later.
    #[error("{place} cannot be reached: {found}")]
    Unreachable {
        /// Its address.
        place: String,
        /// What was said.
        found: String,
    },
    /// An address that is none, or at which there is nobody to be trusted.
    #[error("{address}: {found}")]
    Address {
        /// The address, without its password.
        address: String,
        /// What is wrong with it.
        found: String,
    },
    /// The facts cannot be kept under the name that they state.
    #[error("{file:?}: {found}")]
    Name {
        /// The file name, cut after 80 characters.
        file: String,
        /// What is wrong with it.
        found: &'static str,
    },
    /// The bytes at hand are not those that the facts speak of.
    #[error("{file}: {found}")]
    Mismatch {
        /// The file name.
        file: String,
        /// What was found, and what was expected.
        found: String,
    },
    /// A held file has that name already, with other bytes.
    #[error("{file} exists already with other bytes (sha256 {sha256})")]
    Exists {
        /// The file name.
        file: String,
        /// The digest of the held file.
        sha256: Sha256,
    },
    /// No file with that digest is known.
    #[error("no file with sha256 {0} is known")]
    Unknown(Sha256),
    /// No snapshot, and no channel that names one.
    #[error("there is no snapshot {asked:?}; `jetwheel snapshot list` shows those that there are")]
    NoSnapshot {
        /// What was asked for.
        asked: String,
    },
    /// A name that a snapshot cannot have.
    #[error("a snapshot cannot be named {name:?}: {found}")]
    SnapshotName {
        /// The name, cut after 80 characters.
        name: String,
        /// Why not.
        found: &'static str,
    },
    /// A snapshot that is not to be removed.
    #[error("the channel {channel} names the snapshot {snapshot}: promote another one first")]
    SnapshotInUse {
        /// The snapshot.
        snapshot: String,
        /// The channel.
        channel: &'static str,
    },
    /// A channel that has nowhere to go back to.
    #[error("the channel {channel} named no other snapshot before that is still kept")]
    NothingBefore {
        /// The channel.
        channel: &'static str,
    },
}

impl Error {
    /// Whether the disk is full, or a quota is.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io { source, .. } => says_full(source),
            _ => false,
        }
    }

    /// Names the file or folder of an error of the file system.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Whether the disk or a quota is full.
pub fn says_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero
    )
}

fn holder(pid: Option<&u32>, command: Option<&str>) -> String {
    match (pid, command) {
        (Some(pid), Some(command)) => format!("process {pid} ({command})"),
        (Some(pid), None) => format!("process {pid}"),
        (None, _) => "another jetwheel process".to_owned(),
    }
}
