//! One pass: plan, fetch, inspect, keep.
//!
//! With dependencies, a device's requirements are resolved as its pip would (`set`): over index pages, the metadata beside the
//! wheels or at their end, and known facts. What is chosen and has not been inspected is fetched, smallest first, until a set
//! holds. Without them (`single`), for each project the pages of its upstream and the rows of the store become candidates; `plan` says
//! for each device and requirement which are taken, and which have to be fetched before more can be said, until it asks for
//! nothing more. Facts are kept whatever they say, bytes where a device of the pass takes them. A crash at any moment leaves
//! facts and files that the next pass does not fetch again.

pub(crate) mod gather;
mod losses;
pub(crate) mod owner;
pub(crate) mod pages;
mod pass;
mod plan;
mod report;
mod requirements;
mod set;
mod shelf;
mod shipped;
mod single;
pub(crate) mod take;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use pass::run;
pub use plan::{Candidate, Knowledge, PassedOver, Plan, Want, plan};
pub use report::{
    DeviceError, DeviceReport, Event, Kept, Loss, Missing, Nearest, Outcome, Package, Planned, Refused,
    Report, Shadowed, State, Why,
};
pub use requirements::{Requirement, RequirementError, RequirementsFile, read_requirements};

use crate::policy::{DeviceProfile, Policy};
use crate::store::{self, Store};
use crate::upstream::{self, Client, Source};
use crate::wheel::Size;

/// What a pass shall do.
#[derive(Debug)]
pub struct Request {
    /// Devices to sync for.
    pub devices: Vec<DeviceProfile>,
    /// What each of them needs.
    pub requirements: Vec<Requirement>,
    /// Where to look, in the order of priority, each with the ids of the devices that it serves.
    pub sources: Vec<(Source, Vec<String>)>,
    /// How many versions to keep of each requirement.
    pub keep: usize,
    /// How many versions that were fetched and refused may pass before the search for a requirement ends; none for no limit.
    pub tries: Option<usize>,
    /// Most bytes of wheels to download; none for no limit.
    pub most_bytes: Option<u64>,
    /// Wheels fetched at the same time.
    pub jobs: usize,
    /// Whether to plan alone.
    pub dry_run: bool,
    /// Whether dependencies belong to it: then each device gets one set for all requirements, else each requirement its file.
    pub dependencies: bool,
    /// Whether to go on where an upstream lost most of what it had.
    pub accept_losses: bool,
    /// Names of files that are taken though their upstream had other bytes under that name at first sight.
    pub accept_changed: BTreeSet<String>,
}

/// What a pass works with.
#[derive(Debug, Clone)]
pub struct Means {
    /// The store.
    pub store: Arc<Store>,
    /// The policy.
    pub policy: Arc<Policy>,
    /// The client.
    pub client: Client,
}

/// Something that happens during a pass, for a progress bar or a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// A project's pages are asked for.
    Project {
        /// The project.
        project: String,
    },
    /// A download begins.
    Begins {
        /// File name.
        file: String,
        /// Size in bytes, where it is known.
        size: Option<u64>,
    },
    /// A download has come so far.
    Reached {
        /// File name.
        file: String,
        /// Bytes so far; falls when a download begins anew.
        bytes: u64,
    },
    /// A download is whole, and is being inspected.
    Inspecting {
        /// File name.
        file: String,
    },
    /// All is done about a file.
    Ends {
        /// File name.
        file: String,
        /// What became of it, in a few words.
        outcome: String,
    },
}

/// Who is told what happens.
pub type Listener = Arc<dyn Fn(Progress) + Send + Sync>;

/// Why a pass could not go on. What an upstream does wrong is in the report instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be read or written.
    #[error("the store cannot go on")]
    Store(#[from] store::Error),
    /// Our own disk or setup fails.
    #[error("cannot fetch")]
    Fetch(#[source] upstream::Error),
    /// The disk is full.
    #[error(
        "no space on the disk: wheels still to be fetched: {files} ({}); those that were fetched whole are kept", Size(*.bytes)
    )]
    Full {
        /// How many files are left of what is wanted, as far as that is known.
        files: usize,
        /// How many bytes they have.
        bytes: u64,
        /// What failed.
        source: Box<Error>,
    },
    /// A thread of ours was lost.
    #[error("an inspection ended by a panic")]
    Lost(#[from] tokio::task::JoinError),
}

impl Error {
    /// Whether the disk is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Store(error) => error.is_full(),
            Self::Fetch(upstream::Error::Io { source, .. }) => store::says_full(source),
            Self::Fetch(_) | Self::Lost(_) => false,
        }
    }
}
