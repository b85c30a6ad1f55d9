//! What the server asks of whoever asks upstreams for it. It knows no upstream itself: `crate::pull` does, and `cli` wires it in.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use url::Url;

use crate::digest::Sha256;
use crate::policy::{DeviceProfile, Policy};
use crate::simple::FileLink;
use crate::wheel::{ProjectName, WheelFilename};

/// Whoever asks upstreams. None of its calls blocks; each ends within [`Source::patience`], or a little more.
pub trait Source: fmt::Debug + Send + Sync {
    /// What the upstreams of a device offer of a project, as of now or as they were last reached.
    fn offers<'a>(&'a self, asked: &'a Asked<'a>) -> BoxFuture<'a, Result<Offered, Failure>>;

    /// Fetches a file, or joins whoever fetches it; it goes on whoever listens to the stages.
    ///
    /// With `size` the facts of its digest are known and admitted for the device, and its bytes can be read while they arrive.
    fn fetch(
        &self,
        asked: &Asked<'_>,
        offer: &Offer,
        size: Option<u64>,
    ) -> Result<watch::Receiver<Stage>, Failure>;

    /// The core metadata of an offered file, with that digest if one is given; none if only the whole file tells it.
    fn metadata<'a>(
        &'a self,
        offer: &'a Offer,
        sha256: Option<Sha256>,
    ) -> BoxFuture<'a, Result<Option<bytes::Bytes>, Failure>>;

    /// How long a client is kept waiting.
    fn patience(&self) -> Duration;

    /// What it did so far.
    fn counters(&self) -> &Counters;
}

/// For whom upstreams are asked.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The project.
    pub project: &'a ProjectName,
    /// The device.
    pub device: &'a DeviceProfile,
    /// The policy in force.
    pub policy: &'a Arc<Policy>,
}

/// A file that an upstream has and the store has not.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Its name.
    pub name: WheelFilename,
    /// Its digest, as the upstream states it.
    pub sha256: Sha256,
    /// What the upstream's page says of it.
    pub file: FileLink,
    /// Where it is.
    pub url: Url,
    /// The upstream.
    pub upstream: String,
    /// Whether it may be listed before it was inspected: it is inspected when it is asked for, before it is served.
    pub listed: bool,
}

/// What upstreams offer of a project to a device.
#[derive(Debug, Default)]
pub struct Offers {
    /// Another one for each that is made, so that what was made from it can be told to be out of date.
    pub number: u64,
    /// The files, in no order.
    pub files: Vec<Offer>,
    /// How many files wait to be inspected.
    pub waiting: usize,
    places: HashMap<(Sha256, String), usize>,
}

impl Offers {
    /// Puts files together.
    pub fn new(number: u64, files: Vec<Offer>, waiting: usize) -> Self {
        let place = |(at, offer): (usize, &Offer)| ((offer.sha256, offer.name.text.clone()), at);
        let places = files.iter().enumerate().map(place).collect();
        Self { number, files, waiting, places }
    }

    /// The offer of that digest and name.
    pub fn find(&self, sha256: &Sha256, file: &str) -> Option<&Offer> {
        self.places.get(&(*sha256, file.to_owned())).and_then(|at| self.files.get(*at))
    }
}

/// What upstreams offer, and how old that is.
#[derive(Debug, Clone)]
pub struct Offered {
    /// The files.
    pub offers: Arc<Offers>,
    /// Set where an upstream could not be asked.
    pub outdated: Option<Outdated>,
}

/// Why an answer may be out of date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outdated {
    /// The first upstream that could not be asked.
    pub upstream: String,
    /// Why not.
    pub why: String,
    /// Of when is what is answered instead; none if there is nothing.
    pub copied: Option<SystemTime>,
}

/// How far a file has come.
#[derive(Debug, Clone)]
pub enum Stage {
    /// Nothing can be read yet; so many of so many bytes are there.
    Waiting(u64, Option<u64>),
    /// So many bytes can be read, though nobody knows yet whether they are the right ones.
    Arriving(Arc<File>, u64),
    /// All bytes are there, and have the digest.
    Whole(Arc<File>),
    /// The store has the file, or the facts that say why not.
    Kept,
    /// It did not come.
    Failed(Failure),
}

/// Why something did not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// One sentence.
    pub text: String,
}

/// The kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The upstream could not be reached.
    Unreached,
    /// The upstream lists it, and has it no more.
    Gone,
    /// The upstream sent something else than its page promises.
    Lied,
    /// It is larger than what is fetched on request.
    TooLarge,
    /// Too much is under way at once.
    Busy,
    /// The store or its disk failed, or is full.
    Store,
}

/// Declares the counters, and what they are at one moment, field by field.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident),* $(,)?) => {
        /// What was done so far; each counter alone is exact.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[doc = $doc])+ pub $name: AtomicU64),* }

        /// The counters at one moment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Snapshot { $($(#[doc = $doc])+ pub $name: u64),* }

        impl Counters {
            /// The counters now.
            pub fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters! {
    /// Pages of upstreams that were answered from a copy within its lifetime.
    page_hits,
    /// Pages that upstreams were asked for.
    page_fetches,
    /// Pages that upstreams failed to give.
    page_failures,
    /// Pages answered from an older copy, or without one, since an upstream could not be asked.
    stale_answers,
    /// Requests for files that the store had.
    file_hits,
    /// Requests for files that the store had not, though an upstream offers them.
    file_misses,
    /// Of these the ones that joined a fetch under way.
    file_joins,
    /// Files that upstreams were asked for.
    file_fetches,
    /// Files that upstreams failed to give.
    file_failures,
    /// Files that were not what the upstream's page promises.
    file_lies,
    /// Bytes of files that upstreams sent.
    fetched_bytes,
    /// Requests that were told to come again, since their file was not ready in time.
    put_off,
    /// Files that are being fetched now.
    in_flight,
    /// Files that wait to be fetched and inspected now.
    queue_length,
    /// Files that were not put on the queue, since it was full.
    queue_full,
}

impl Counters {
    /// Adds one.
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
