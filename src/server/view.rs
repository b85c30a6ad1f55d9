//! Which files a request may see: what is held now, or what a snapshot lists.

use std::sync::{Arc, OnceLock};

use super::lru::Lru;
use super::refusal::{Refusal, cut};
use super::state::{State, nearest_words};
use crate::digest::Sha256;
use crate::store::{CHANNELS, FilesByProject, SnapshotId, Store};
use crate::wheel::ProjectName;

/// How much is kept of the lists of snapshots, in bytes; one of 20,000 files has some 3 MB.
const FROZEN_WEIGHT: usize = 64 << 20;

/// What one file of a list takes in memory, in bytes, about.
const FILE_WEIGHT: usize = 160;

/// What stands for the files that are held now.
const NEWEST: &str = "newest";

/// The snapshots that were asked for, and what a URL without `@` stands for.
#[derive(Debug)]
pub(super) struct Views {
    frozen: Lru<SnapshotId, Arc<Frozen>>,
    /// A channel or a snapshot; unset for what is held now.
    channel: OnceLock<String>,
}

/// The list of a snapshot.
#[derive(Debug)]
pub(super) struct Frozen {
    id: SnapshotId,
    files: FilesByProject,
}

/// Which files a request may see.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The device, as the URL names it.
    pub(super) device: String,
    /// None for what is held now.
    pub(super) frozen: Option<Arc<Frozen>>,
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
        let files = store.snapshot_files(&id)?;
        let weight =
            files.values().map(std::collections::BTreeSet::len).sum::<usize>().saturating_mul(FILE_WEIGHT);
        let frozen = Arc::new(Frozen { id: id.clone(), files });
        self.frozen.keep(id, Arc::clone(&frozen), weight.saturating_add(FILE_WEIGHT));
        Ok(frozen)
    }
}

impl State {
    /// What `{device}` or `{device}@{snapshot-or-channel}` stands for now.
    pub(super) async fn view(self: &Arc<Self>, text: &str) -> Result<View, Refusal> {
        let (device, asked) = match text.split_once('@') {
            Some((device, selector)) => (device, Some(selector)),
            None => (text, None),
        };
        let selector = asked.or(self.views.channel.get().map(String::as_str)).filter(|text| *text != NEWEST);
        let device = device.to_owned();
        let Some(selector) = selector else { return Ok(View { device, frozen: None }) };
        let Some(id) = self.store.find_snapshot(selector) else {
            return Err(self.no_such_snapshot(selector));
        };
        let frozen = match self.views.frozen.find(&id) {
            Some(frozen) => frozen,
            None => self.blocking(move |state| state.views.load(&state.store, id)).await?,
        };
        Ok(View { device, frozen: Some(frozen) })
    }

    fn no_such_snapshot(&self, selector: &str) -> Refusal {
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

impl View {
    /// What tells pages of a device from each other.
    pub(super) fn key(&self, id: &str) -> String {
        match &self.frozen {
            Some(frozen) => format!("{id}@{}", frozen.id),
            None => id.to_owned(),
        }
    }

    /// Whether a file may be seen.
    pub(super) fn shows(&self, project: &ProjectName, file: &str, sha256: &Sha256) -> bool {
        let Some(frozen) = &self.frozen else { return true };
        let Some(files) = frozen.files.get(project) else { return false };
        files.contains(&(file.to_owned(), *sha256))
    }

    /// The projects of a snapshot; none for what is held now.
    pub(super) fn projects(&self) -> Option<Vec<ProjectName>> {
        self.frozen.as_ref().map(|frozen| frozen.files.keys().cloned().collect())
    }

    /// What is said of the files of a snapshot that are hidden by a policy or an advisory of today.
    pub(super) fn note(&self, hidden: &[String]) -> Option<String> {
        let frozen = self.frozen.as_ref()?;
        let first = hidden.first()?;
        let more = match hidden.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count.saturating_sub(1)),
        };
        Some(format!("of the snapshot {} this is hidden now: {first}{more}", frozen.id))
    }
}
