//! What requests share: the store, the policy in force, and bounded caches.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use strsim::levenshtein;

use super::accept::Form;
use super::api::Api;
use super::clients::Clients;
use super::files::KnownFile;
use super::in_force::{InForce, PolicySource};
use super::lru::Lru;
use super::metrics::Metrics;
use super::opened::Opened;
use super::pull;
use super::refusal::{Refusal, cut};
use super::resolve::Resolving;
use super::upload::Uploads;
use super::used::Used;
use super::verdicts::Verdicts;
use super::view::{Scope, Views};
use crate::access::Rules;
use crate::digest::Sha256;
use crate::policy::DeviceProfile;
use crate::store::Store;
use crate::wheel::ProjectName;

/// How much the rendered pages that are kept may weigh, in bytes. A page of 1,000 files has some 400 kB and its gzip 100 kB.
const PAGES_WEIGHT: usize = 64 << 20;

/// How much is kept of files that were asked for, in bytes; some 500 are one file, more where a refusal is long.
const FILES_WEIGHT: usize = 8 << 20;

/// How much METADATA is kept, in bytes: an installer asks for that of each wheel that it considers, some 5 kB at a time, and
/// reading it takes thrice what the answer takes.
const METADATA_WEIGHT: usize = 8 << 20;

/// What requests share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Arc<Store>,
    pub(super) policies: PolicySource,
    pub(super) rules: Rules,
    pub(super) clients: Clients,
    pub(super) views: Views,
    /// The path at which a proxy has the mirror, where the configuration says so.
    pub(super) prefix: OnceLock<String>,
    pub(super) pages: Lru<PageKey, Arc<Page>>,
    pub(super) files: Lru<(String, Sha256, String), Arc<KnownFile>>,
    /// METADATA by the digest of its wheel. Whether a device may have it is asked before.
    pub(super) metadata: Lru<Sha256, Bytes>,
    pub(super) opened: Opened,
    pub(super) verdicts: Verdicts,
    pub(super) resolving: Resolving,
    pub(super) metrics: Metrics,
    /// Whoever asks upstreams; unset where nobody does.
    pub(super) pull: OnceLock<Arc<dyn pull::Source>>,
    pub(super) uploads: Uploads,
    pub(super) used: Used,
    pub(super) api: Api,
    names: Mutex<Option<(u64, Arc<[ProjectName]>)>>,
    turns: [Mutex<()>; TURNS],
}

/// How many pages may be made at once.
const TURNS: usize = 16;

/// Which page: device, project (none for the list of projects), form, and whether it is compressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub(super) device: String,
    pub(super) project: Option<ProjectName>,
    pub(super) form: Form,
    pub(super) gzip: bool,
}

/// A rendered page.
#[derive(Debug)]
pub(super) struct Page {
    /// Number of the rows' state or of the verdicts, generation of the policy, and number of what upstreams offer, from which it
    /// was made.
    pub(super) made_from: (u64, u64, u64),
    /// Entity tag, in quotes: a digest of the bytes, so that a change elsewhere leaves it as it is.
    pub(super) etag: String,
    pub(super) body: Bytes,
}

/// What the entity tag of a compressed page ends with.
const COMPRESSED: &str = "-gzip\"";

impl Page {
    /// Whether its bytes are compressed.
    pub(super) fn is_compressed(&self) -> bool {
        self.etag.ends_with(COMPRESSED)
    }

    /// The entity tag of its compressed form.
    pub(super) fn compressed_etag(&self) -> String {
        format!("{}{COMPRESSED}", self.etag.trim_end_matches('"'))
    }

    /// The entity tag of its plain form.
    pub(super) fn plain_etag(&self) -> String {
        match self.etag.strip_suffix(COMPRESSED) {
            Some(tag) => format!("{tag}\""),
            None => self.etag.clone(),
        }
    }
}

impl State {
    pub(super) fn new(store: Arc<Store>, policies: PolicySource) -> Self {
        Self {
            policies,
            rules: Rules::default(),
            clients: Clients::default(),
            views: Views::new(),
            prefix: OnceLock::new(),
            pages: Lru::new(PAGES_WEIGHT),
            files: Lru::new(FILES_WEIGHT),
            metadata: Lru::new(METADATA_WEIGHT),
            opened: Opened::default(),
            verdicts: Verdicts::new(Arc::clone(&store)),
            resolving: Resolving::default(),
            metrics: Metrics::new(),
            pull: OnceLock::new(),
            uploads: Uploads::default(),
            used: Used::default(),
            api: Api::default(),
            names: Mutex::new(None),
            store,
            turns: [const { Mutex::new(()) }; TURNS],
        }
    }

    /// The turn of making a page; whoever else wants to make it waits. Blocks.
    pub(super) fn turn(&self, key: &PageKey) -> Option<MutexGuard<'_, ()>> {
        let mut hasher = DefaultHasher::new();
        (&key.device, &key.project).hash(&mut hasher);
        let turn = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or(0);
        self.turns.get(turn).map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs what blocks in the pool for it. A panic in there is a defect of ours, answered as one.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let state = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&state)).await {
            Ok(result) => result,
            Err(error) => Err(Refusal::Defect(error.to_string())),
        }
    }

    /// The policy in force at this request.
    pub(super) async fn in_force(self: &Arc<Self>) -> Result<Arc<InForce>, Refusal> {
        match self.policies.unchanged() {
            Some(in_force) => Ok(in_force),
            None => self.blocking(|state| Ok(state.policies.in_force())).await,
        }
    }

    /// All known projects, in order. Blocks.
    pub(super) fn names(&self) -> Result<Arc<[ProjectName]>, Refusal> {
        let revision = self.store.revision();
        let kept = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match kept {
            Some((of, names)) if of == revision => Ok(names),
            _ => {
                let names: Arc<[ProjectName]> = self.store.projects(false)?.into();
                let kept = Some((revision, Arc::clone(&names)));
                *self.names.lock().unwrap_or_else(PoisonError::into_inner) = kept;
                Ok(names)
            }
        }
    }

    /// What to answer for a project without any file. Blocks.
    pub(super) fn no_such_project(&self, project: &ProjectName, scope: &Scope) -> Result<Refusal, Refusal> {
        let nearest = match scope.projects() {
            Some(names) => nearest(project.as_str(), &names),
            None => nearest(project.as_str(), &self.names()?),
        };
        Ok(Refusal::NoSuchProject { project: project.clone(), nearest })
    }
}

impl InForce {
    /// The profile of that id.
    pub(super) fn device(&self, id: &str) -> Result<&DeviceProfile, Refusal> {
        self.policy.device(id).ok_or_else(|| Refusal::NoSuchDevice {
            device: cut(id),
            nearest: self.policy.nearest(&cut(id)).into_iter().map(str::to_owned).collect(),
        })
    }
}

/// Bytes of a name that are looked at; longer ones are no typing errors.
const LONGEST_NAME: usize = 64;

/// How many names a message proposes.
const PROPOSED: usize = 3;

/// The names most like that one, best first: a third of the letters may differ.
pub(crate) fn nearest(name: &str, known: &[ProjectName]) -> Vec<String> {
    nearest_words(name, known.iter().map(ProjectName::as_str))
}

/// As [`nearest`], of any words.
pub(super) fn nearest_words<'w>(name: &str, known: impl Iterator<Item = &'w str>) -> Vec<String> {
    let name = name.get(..name.floor_char_boundary(LONGEST_NAME)).unwrap_or_default();
    let most = name.len().div_ceil(3);
    let near = |known: &&str| known.len().abs_diff(name.len()) <= most;
    let mut found: Vec<(usize, &str)> =
        known.filter(near).map(|known| (levenshtein(name, known), known)).collect();
    found.retain(|(distance, _)| *distance <= most);
    found.sort_unstable();
    found.into_iter().take(PROPOSED).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposes_names_like_the_one_asked_for() {
        let known: Vec<ProjectName> = ["numpy", "torch", "torchvision", "torchaudio"]
            .iter()
            .map(|name| name.parse().unwrap())
            .collect();
        assert_eq!(nearest("torhc", &known), ["torch"]);
        assert_eq!(nearest("torchvison", &known), ["torchvision"]);
        assert_eq!(nearest("jax", &known), Vec::<String>::new());
    }
}
