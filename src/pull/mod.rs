//! Pull-through: pages and files of upstreams, fetched when somebody asks for them.
//!
//! The server asks by [`crate::server::pull::Source`]. A page of an upstream (`pages`) is good for its lifetime; then it is asked
//! for again, and where that fails its copy counts. What a device may be offered (`offers`) goes by the rules of a sync pass:
//! one owner for each project, general upstreams last, digests pinned at first sight, losses not believed. A file is fetched
//! once, however many ask for it (`flight`), and is inspected before anybody who had no facts of it gets a byte. What is large and
//! unknown is fetched and inspected in the background (`queue`), and listed once it was judged.

mod flight;
mod offers;
mod pages;
mod queue;
mod trouble;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::digest::Sha256;
use crate::server::lru::Lru;
use crate::server::pull::{Asked, Counters, Failure, FailureKind, Offer, Offered, Source, Stage};
use crate::store::Store;
use crate::sync::gather::Origin;
use crate::upstream::{self, Client, Link, MetadataSource, Upstream, fetch_metadata, fetch_metadata_inside};
use crate::wording::with_causes;

use flight::{Flights, Job};
use offers::Found;
use pages::Pages;
use queue::Queue;

/// How much core metadata of files that are not held is kept, in bytes; most have below 20 KiB.
const METADATA_WEIGHT: usize = 16 << 20;

/// How much is kept of what devices are offered, in bytes.
const OFFERS_WEIGHT: usize = 32 << 20;

/// How many requests for core metadata may be waited for at once; those for one file share one.
const METADATA_TURNS: usize = 32;

/// How upstreams are pulled from.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a page of an upstream is good for.
    pub lifetime: Duration,
    /// How long a client waits for a page of an upstream, before the copy counts.
    pub page_patience: Duration,
    /// How long a client waits for a file whose bytes it cannot have yet, before it is told to come again. pip waits 15 seconds
    /// for an answer, uv 30.
    pub patience: Duration,
    /// How long an upstream that failed is not asked; each further failure doubles it, up to ten times.
    pub failure: Duration,
    /// Largest pure-Python wheel that is listed before it was inspected, in bytes.
    pub on_the_fly: u64,
    /// Largest wheel that is fetched, in bytes.
    pub largest: u64,
    /// Of how many of the newest versions of a project unknown wheels are fetched and inspected in the background.
    pub versions: usize,
    /// How many files are fetched at once.
    pub fetches: usize,
    /// How many of these in the background.
    pub inspections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_mins(10),
            page_patience: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            failure: Duration::from_secs(30),
            on_the_fly: 32 << 20,
            largest: 16 << 30,
            versions: 10,
            fetches: 8,
            inspections: 2,
        }
    }
}

/// What pulls from upstreams. Its background work ends with the runtime that it was started on.
pub struct Pull(Arc<Shared>);

/// What all its tasks share.
struct Shared {
    options: Options,
    store: Arc<Store>,
    /// Asks for files.
    files: Client,
    /// Asks for what somebody waits for, and so without further tries.
    hasty: Client,
    pages: Arc<Pages>,
    offered: Lru<(String, String), Arc<Found>>,
    metadata: Lru<Sha256, Bytes>,
    metadata_turns: [tokio::sync::Mutex<()>; METADATA_TURNS],
    flights: Flights,
    queue: Queue,
    counters: Arc<Counters>,
    numbers: AtomicU64,
}

impl fmt::Debug for Pull {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pull {{ {:?} }}", self.0.options)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failure(kind: FailureKind, text: impl Into<String>) -> Failure {
    Failure { kind, text: text.into() }
}

/// Runs what blocks in the pool for it; an error is one of the store.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::store::Error> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(FailureKind::Store, with_causes(&error))),
        Err(error) => Err(failure(FailureKind::Store, error.to_string())),
    }
}

impl Pull {
    /// Begins to pull from upstreams, best first, into a store. Their pages are kept in the folder `cache`.
    ///
    /// `files` fetches files; `hasty`, which should give up soon, fetches what a client waits for.
    pub fn start(
        upstreams: Vec<Upstream>,
        (files, hasty): (Client, Client),
        store: Arc<Store>,
        cache: &Path,
        options: Options,
    ) -> Self {
        let counters = Arc::new(Counters::default());
        let pages = Pages::new(upstreams, &hasty, cache, Arc::clone(&store), &options, Arc::clone(&counters));
        let shared = Arc::new(Shared {
            flights: Flights::new(options.fetches),
            queue: Queue::new(Arc::clone(&counters)),
            store,
            files,
            hasty,
            pages: Arc::new(pages),
            offered: Lru::new(OFFERS_WEIGHT),
            metadata: Lru::new(METADATA_WEIGHT),
            metadata_turns: [const { tokio::sync::Mutex::const_new(()) }; METADATA_TURNS],
            counters,
            numbers: AtomicU64::new(1),
            options,
        });
        for _worker in 0..shared.options.inspections {
            tokio::spawn(queue::work(Arc::clone(&shared)));
        }
        Self(shared)
    }
}

impl Shared {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// Where an offered file is, as a sync pass has it.
fn origin(offer: &Offer) -> Origin {
    let link = Link { file: offer.file.clone(), url: offer.url.clone() };
    Origin { upstream: offer.upstream.clone(), link }
}

impl Source for Pull {
    fn offers<'a>(&'a self, asked: &'a Asked<'a>) -> BoxFuture<'a, Result<Offered, Failure>> {
        Box::pin(offers::offers(&self.0, asked))
    }

    fn fetch(
        &self,
        asked: &Asked<'_>,
        offer: &Offer,
        size: Option<u64>,
    ) -> Result<watch::Receiver<Stage>, Failure> {
        let job = Job {
            name: offer.name.clone(),
            sha256: Some(offer.sha256),
            origin: origin(offer),
            device: asked.device.clone(),
            policy: Arc::clone(asked.policy),
            size,
        };
        flight::begin(&self.0, job)
    }

    fn metadata<'a>(
        &'a self,
        offer: &'a Offer,
        sha256: Option<Sha256>,
    ) -> BoxFuture<'a, Result<Option<Bytes>, Failure>> {
        Box::pin(self.0.core_metadata(offer, sha256))
    }

    fn patience(&self) -> Duration {
        self.0.options.patience
    }

    fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

impl Shared {
    /// Core metadata out of the file beside the wheel, or of the wheel's end; with the digest if one is given.
    async fn core_metadata(&self, offer: &Offer, sha256: Option<Sha256>) -> Result<Option<Bytes>, Failure> {
        let right = |bytes: &Bytes| sha256.is_none_or(|sha256| Sha256::of(bytes) == sha256);
        if let Some(bytes) = self.metadata.find(&offer.sha256).filter(right) {
            return Ok(Some(bytes));
        }
        self.pages.check(&offer.upstream)?;
        let turn = usize::from(offer.sha256.0[0]) % METADATA_TURNS;
        let asking = async {
            let _turn = match self.metadata_turns.get(turn) {
                Some(turn) => Some(turn.lock().await),
                None => None,
            };
            if let Some(bytes) = self.metadata.find(&offer.sha256).filter(right) {
                return Ok(Some(bytes));
            }
            let link = origin(offer).link;
            let found = fetch_metadata(&self.hasty, &link).await?.map(|source| match source {
                MetadataSource::Beside(bytes) => (Bytes::from(bytes), true),
                MetadataSource::Inside(bytes) => (Bytes::from(bytes), false),
            });
            let found = match found {
                Some((bytes, true)) if !right(&bytes) => {
                    fetch_metadata_inside(&self.hasty, &link).await?.map(Bytes::from)
                }
                found => found.map(|(bytes, _)| bytes),
            };
            let found = found.filter(right);
            if let Some(bytes) = &found {
                self.metadata.keep(offer.sha256, bytes.clone(), bytes.len().saturating_add(200));
            }
            Ok::<_, upstream::Error>(found)
        };
        match tokio::time::timeout(self.options.patience, asking).await {
            Ok(Ok(found)) => Ok(found),
            // What lies about its end is fetched whole, and then inspecting tells.
            Ok(Err(error)) if error.is_lie() => Ok(None),
            Ok(Err(error)) => Err(self.pages.failed(&offer.upstream, &error)),
            Err(_elapsed) => {
                let text = format!("{}: its metadata did not come in time", offer.name.text);
                Err(failure(FailureKind::Unreached, text))
            }
        }
    }
}
