//! Which files a request may see: what is held now, or what a snapshot lists.

use std::sync::{Arc, OnceLock};

use super::lru::Lru;
use super::refusal::{Refusal, cut};
use super::state::{State, nearest_words};
use crate::digest::Sha256;
use crate::store::{self, CHANNELS, FilesByProject, Listed, Provenance, SnapshotHead, SnapshotId, Store};
use crate::wheel::ProjectName;

/// How much is kept of the lists of snapshots, in bytes; one of 20,000 files has some 3 MB.
const FROZEN_WEIGHT: usize = 64 << 20;

/// What one file of a list takes in memory, in bytes, about.
const FILE_WEIGHT: usize = 160;

/// What stands for all that is known now.
pub(crate) const LIVE: [&str; 2] = ["newest", "live"];

/// The snapshots that were asked for, and what a URL without `@` stands for.
#[derive(Debug)]
pub(super) struct Views {
    frozen: Lru<SnapshotId, Arc<Frozen>>,
    /// A channel or a snapshot; unset for what is held now.
    channel: OnceLock<String>,
}

/// The list of a snapshot.
#[derive(Debug)]
pub(crate) struct Frozen {
    head: SnapshotHead,
    created: Option<jiff::Timestamp>,
    files: FilesByProject,
}

/// Among which files a device chooses.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// All that are known now.
    Live,
    /// Those that a snapshot lists.
    Snapshot(Arc<Frozen>),
}

/// Which files a request may see.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The device, as the URL names it.
    pub(super) device: String,
    /// What stands behind its `@`: a channel, or the name or id of a snapshot.
    pub(super) selector: Option<String>,
    pub(super) scope: Scope,
}

impl Views {
    pub(super) fn new() -> Self {
        Self { frozen: Lru::new(FROZEN_WEIGHT), channel: OnceLock::new() }
    }

    /// Sets what a URL without `@` stands for; only the first call counts.
    pub(super) fn set_channel(&self, channel: String) {
        let _set_before = self.channel.set(channel);
    }

    fn load(&self, store: &Store, id: SnapshotId) -> Result<Arc<Frozen>, Refusal> {
        let frozen = Arc::new(Frozen::read(store, &id)?);
        let count: usize = frozen.files.values().map(std::collections::BTreeSet::len).sum();
        let weight = count.saturating_mul(FILE_WEIGHT).saturating_add(FILE_WEIGHT);
        self.frozen.keep(id, Arc::clone(&frozen), weight);
        Ok(frozen)
    }
}

impl Frozen {
    fn read(store: &Store, id: &SnapshotId) -> Result<Self, store::Error> {
        let (head, files) = store.snapshot_files(id)?;
        Ok(Self { created: head.created.parse().ok(), head, files })
    }

    fn lists(&self, project: &ProjectName, file: &str, sha256: &Sha256) -> bool {
        self.files.get(project).is_some_and(|files| files.contains(&(file.to_owned(), *sha256)))
    }
}

impl Scope {
    /// The files of a snapshot. Blocks.
    pub(crate) fn snapshot(store: &Store, id: &SnapshotId) -> Result<Self, store::Error> {
        Ok(Self::Snapshot(Arc::new(Frozen::read(store, id)?)))
    }

    /// The snapshot; none for what is known now.
    pub(crate) fn id(&self) -> Option<&SnapshotId> {
        match self {
            Self::Live => None,
            Self::Snapshot(frozen) => Some(&frozen.head.id),
        }
    }

    /// What tells results for a device from each other.
    pub(super) fn key(&self, device: &str) -> String {
        match self.id() {
            Some(id) => format!("{device}@{id}"),
            None => device.to_owned(),
        }
    }

    /// Whether a file counts.
    pub(super) fn lists(&self, project: &ProjectName, file: &str, sha256: &Sha256) -> bool {
        match self {
            Self::Live => true,
            Self::Snapshot(frozen) => frozen.lists(project, file, sha256),
        }
    }

    /// Whether a device may choose a file: one that others replaced is in the snapshots from before alone.
    pub(super) fn offers(&self, file: &Listed) -> bool {
        match self {
            Self::Live => file.provenance.replaced_since.is_none(),
            Self::Snapshot(frozen) => frozen.lists(&file.project, &file.file, &file.sha256),
        }
    }

    /// Whether a file that the snapshot does not list was known then: its bytes were never held, so that it can only be told
    /// of.
    pub(super) fn knew(&self, held: bool, provenance: &Provenance) -> bool {
        let Self::Snapshot(frozen) = self else { return true };
        let seen = provenance.first_seen.parse::<jiff::Timestamp>().ok();
        !held && seen.zip(frozen.created).is_some_and(|(seen, created)| seen <= created)
    }

    /// The projects of a snapshot; none for what is held now.
    pub(crate) fn projects(&self) -> Option<Vec<ProjectName>> {
        match self {
            Self::Live => None,
            Self::Snapshot(frozen) => Some(frozen.files.keys().cloned().collect()),
        }
    }

    /// What is said of the files of a snapshot that are hidden by a policy or an advisory of today.
    ///
    /// It does not name the snapshot: where a channel goes on to one that says the same of a project, its page stays as it is.
    pub(super) fn note(&self, hidden: &[String]) -> Option<String> {
        self.id()?;
        let first = hidden.first()?;
        let more = match hidden.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count.saturating_sub(1)),
        };
        Some(format!("of what this snapshot lists, this is hidden now: {first}{more}"))
    }
}

impl View {
    /// The first segment of the URLs of a device that lead back to these files.
    pub(super) fn segment(&self, device: &str) -> String {
        match &self.selector {
            Some(selector) => format!("{device}@{selector}"),
            None => device.to_owned(),
        }
    }
}

impl State {
    /// What `{device}` or `{device}@{snapshot-or-channel}` stands for now.
    pub(super) async fn view(self: &Arc<Self>, text: &str) -> Result<View, Refusal> {
        let (device, asked) = match text.split_once('@') {
            Some((device, selector)) => (device, Some(selector)),
            None => (text, None),
        };
        let selector = asked.or(self.views.channel.get().map(String::as_str));
        let view = |scope| View { device: device.to_owned(), selector: asked.map(str::to_owned), scope };
        let Some(selector) = selector.filter(|text| !LIVE.contains(text)) else {
            return Ok(view(Scope::Live));
        };
        let Some(id) = self.store.find_snapshot(selector) else {
            return Err(self.no_such_snapshot(selector));
        };
        let frozen = match self.views.frozen.find(&id) {
            Some(frozen) => frozen,
            None => self.blocking(move |state| state.views.load(&state.store, id)).await?,
        };
        Ok(view(Scope::Snapshot(frozen)))
    }

    pub(super) fn no_such_snapshot(&self, selector: &str) -> Refusal {
        if CHANNELS.contains(&selector) {
            return Refusal::NothingInChannel(selector.to_owned());
        }
        let snapshots = self.store.snapshots().into_iter().rev();
        let words = snapshots.flat_map(|head| head.name.into_iter().chain([head.id.to_string()]));
        let known: Vec<String> = CHANNELS.map(str::to_owned).into_iter().chain(words).collect();
        let nearest = nearest_words(selector, known.iter().map(String::as_str));
        Refusal::NoSuchSnapshot { asked: cut(selector), nearest }
    }
}
