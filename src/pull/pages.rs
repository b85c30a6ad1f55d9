//! Pages of upstreams: asked for when they are older than their lifetime; where that fails their copies count.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Semaphore, watch};

use super::trouble::Trouble;
use super::{Options, failure, locked};
use crate::policy::{DeviceProfile, Policy};
use crate::server::lru::Lru;
use crate::server::pull::{Counters, Failure, FailureKind, Outdated};
use crate::store::{self, Store};
use crate::sync::Event;
use crate::sync::pages::Answer;
use crate::upstream::{self, Client, Listing, Source, Upstream};
use crate::wheel::ProjectName;
use crate::wording::with_causes;

/// How much the copies of pages in memory may weigh, in bytes; older ones are read from the disk.
const COPIES_WEIGHT: usize = 64 << 20;

/// What one file of a page weighs in memory, in bytes, about.
const FILE_WEIGHT: usize = 700;

/// Pages that are asked for at the same time.
const AT_ONCE: usize = 16;

/// How long asking for a page may take in all, though nobody waits for it any more.
const LONGEST: Duration = Duration::from_mins(1);

type Key = (usize, ProjectName);

/// The upstreams, and their pages.
pub(super) struct Pages {
    places: Vec<Place>,
    store: Arc<Store>,
    lifetime: Duration,
    patience: Duration,
    failure: Duration,
    copies: Lru<Key, Arc<Copy>>,
    asking: Mutex<HashMap<Key, watch::Receiver<Option<Outcome>>>>,
    permits: Semaphore,
    counters: Arc<Counters>,
    numbers: AtomicU64,
}

/// What asking for a page gave: the page, or nothing.
type Outcome = Option<Arc<Copy>>;

/// An upstream.
struct Place {
    upstream: Upstream,
    client: Client,
    cache: PathBuf,
    /// With the time since which it is used: a flat upstream is read once by one of them.
    source: Mutex<(Arc<Source>, Instant)>,
    trouble: Trouble,
}

/// A page as an upstream gave it.
struct Copy {
    /// Another one for each page that differs.
    number: u64,
    answer: Answer,
    /// When the upstream was last asked, and for how long that is good.
    checked: Instant,
    good_for: Duration,
    /// When the upstream last said that.
    at: SystemTime,
    /// Why the upstream's newest answer is not this one.
    trouble: Option<String>,
}

/// What counts as an upstream's page.
pub(super) struct Page {
    pub(super) number: u64,
    pub(super) answer: Answer,
    pub(super) outdated: Option<Outdated>,
}

/// Takes an entry of what is being asked for away, whatever happens.
struct Asking<'a>(&'a Pages, Key);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        locked(&self.0.asking).remove(&self.1);
    }
}

impl Pages {
    pub(super) fn new(
        upstreams: Vec<Upstream>,
        client: &Client,
        cache: &Path,
        store: Arc<Store>,
        options: &Options,
        counters: Arc<Counters>,
    ) -> Self {
        let place = |upstream: Upstream| Place {
            source: Mutex::new((
                Arc::new(Source::new(upstream.clone(), client.clone(), Some(cache.to_owned()))),
                Instant::now(),
            )),
            upstream,
            client: client.clone(),
            cache: cache.to_owned(),
            trouble: Trouble::new(options.failure),
        };
        Self {
            places: upstreams.into_iter().map(place).collect(),
            store,
            lifetime: options.lifetime,
            patience: options.page_patience,
            failure: options.failure,
            copies: Lru::new(COPIES_WEIGHT),
            asking: Mutex::default(),
            permits: Semaphore::new(AT_ONCE),
            counters,
            numbers: AtomicU64::new(1),
        }
    }

    /// The upstreams that serve a device, by their places.
    pub(super) fn serving(&self, device: &DeviceProfile) -> Vec<usize> {
        let serves = |(order, place): (usize, &Place)| place.upstream.serves(&device.id).then_some(order);
        self.places.iter().enumerate().filter_map(serves).collect()
    }

    pub(super) fn upstream(&self, order: usize) -> Option<&Upstream> {
        self.places.get(order).map(|place| &place.upstream)
    }

    fn named(&self, name: &str) -> Option<usize> {
        self.places.iter().position(|place| place.upstream.name == name)
    }

    /// Fails where an upstream is not asked now, since it failed a short while ago.
    pub(super) fn check(&self, name: &str) -> Result<(), Failure> {
        let place = self.named(name).and_then(|order| self.places.get(order));
        match place.and_then(|place| place.trouble.now()) {
            Some(why) => {
                let text = format!("{name} failed a short while ago, and is not asked again yet: {why}");
                Err(failure(FailureKind::Unreached, text))
            }
            None => Ok(()),
        }
    }

    /// Remembers that an upstream failed to give a file, where that is a matter of the upstream and not of the file.
    pub(super) fn failed(self: &Arc<Self>, name: &str, error: &upstream::Error) -> Failure {
        let text = with_causes(error);
        if matches!(error, upstream::Error::Status { status: 404 | 410, .. }) {
            return failure(FailureKind::Gone, text);
        }
        if matches!(error, upstream::Error::Connection { .. })
            && let Some(order) = self.named(name)
        {
            self.note(order, Some(&text));
        }
        failure(FailureKind::Unreached, text)
    }

    /// Remembers how asking an upstream went, and notes it where that is news.
    fn note(self: &Arc<Self>, order: usize, failed: Option<&str>) {
        let Some(place) = self.places.get(order) else { return };
        if place.trouble.note(failed) {
            let name = place.upstream.name.clone();
            if let Some(why) = failed {
                tracing::warn!(upstream = name, why, "an upstream cannot be asked");
            } else {
                tracing::info!(upstream = name, "an upstream answers");
            }
            let (store, reached) = (Arc::clone(&self.store), failed.is_none());
            drop(tokio::task::spawn_blocking(move || {
                if let Err(error) = store.put_reached([(name.as_str(), reached)]) {
                    tracing::warn!(%error, "it could not be noted when an upstream was reached");
                }
            }));
        }
    }

    /// The page of a project, as new as it has to be and can be had.
    pub(super) async fn page(
        self: &Arc<Self>,
        order: usize,
        project: &ProjectName,
        policy: &Arc<Policy>,
    ) -> Page {
        let key = (order, project.clone());
        let young = |copy: &Arc<Copy>| copy.checked.elapsed() < copy.good_for;
        if let Some(copy) = self.copies.find(&key).filter(young) {
            return self.of_copy(order, &copy, &self.counters.page_hits);
        }
        let trouble = |place: &Place| place.trouble.now();
        if let Some(why) = self.places.get(order).and_then(trouble) {
            return self.fallback(key, why).await;
        }
        let mut outcome = self.ask(key.clone(), Arc::clone(policy));
        let waited = tokio::time::timeout(self.patience, outcome.wait_for(Option::is_some)).await;
        match waited.map(|outcome| outcome.ok().and_then(|outcome| outcome.clone()).flatten()) {
            Ok(Some(copy)) => self.of_copy(order, &copy, &self.counters.page_fetches),
            Ok(None) => {
                let why = self.places.get(order).and_then(trouble);
                self.fallback(key, why.unwrap_or_else(|| "it failed".to_owned())).await
            }
            Err(_elapsed) => {
                let why = format!("no answer within {} seconds", self.patience.as_secs_f32());
                self.note(order, Some(&why));
                self.fallback(key, why).await
            }
        }
    }

    fn of_copy(&self, order: usize, copy: &Copy, counter: &AtomicU64) -> Page {
        let outdated = copy.trouble.as_ref().map(|why| self.outdated(order, why.clone(), copy));
        Counters::count(if outdated.is_some() { &self.counters.stale_answers } else { counter });
        Page { number: copy.number, answer: Arc::clone(&copy.answer), outdated }
    }

    fn outdated(&self, order: usize, why: String, copy: &Copy) -> Outdated {
        let upstream = self.upstream(order).map(|upstream| upstream.name.clone()).unwrap_or_default();
        Outdated { upstream, why, copied: copy.answer.is_ok().then_some(copy.at) }
    }

    /// The copy of a page, out of memory or from the disk; an error where there is none.
    async fn fallback(self: &Arc<Self>, key: Key, why: String) -> Page {
        Counters::count(&self.counters.stale_answers);
        let order = key.0;
        let copy = match self.copies.find(&key) {
            Some(copy) => Some(copy),
            None => self.from_disk(key.clone()).await,
        };
        if let Some(copy) = copy {
            let outdated = Some(self.outdated(order, why, &copy));
            return Page { number: copy.number, answer: Arc::clone(&copy.answer), outdated };
        }
        let upstream = self.upstream(order).map(|upstream| upstream.name.clone()).unwrap_or_default();
        let answer = Arc::new(Err(event(&upstream, &key.1, why.clone())));
        Page { number: 0, answer, outdated: Some(Outdated { upstream, why, copied: None }) }
    }

    async fn from_disk(self: &Arc<Self>, key: Key) -> Option<Arc<Copy>> {
        let source = self.places.get(key.0)?.source(self.lifetime);
        let project = key.1.clone();
        let read = tokio::task::spawn_blocking(move || source.copy(&project)).await;
        let (listing, at) = read.ok().flatten()?;
        Some(self.keep(key, Arc::new(Ok(Some(listing))), (Duration::ZERO, at, None)))
    }

    /// Keeps a page; where it says what the one before said, it has that one's number.
    fn keep(
        &self,
        key: Key,
        answer: Answer,
        (good_for, at, trouble): (Duration, SystemTime, Option<String>),
    ) -> Arc<Copy> {
        let before = self.copies.find(&key);
        let number = match before {
            Some(before) if before.answer == answer => before.number,
            _ => self.numbers.fetch_add(1, Ordering::Relaxed),
        };
        let files = match &*answer {
            Ok(Some(listing)) => listing.files.len(),
            _ => 0,
        };
        let copy = Arc::new(Copy { number, answer, checked: Instant::now(), good_for, at, trouble });
        self.copies.keep(key, Arc::clone(&copy), files.saturating_mul(FILE_WEIGHT).saturating_add(500));
        copy
    }

    /// Asks for a page, or joins whoever asks for it already.
    fn ask(self: &Arc<Self>, key: Key, policy: Arc<Policy>) -> watch::Receiver<Option<Outcome>> {
        let mut asking = locked(&self.asking);
        if let Some(outcome) = asking.get(&key) {
            return outcome.clone();
        }
        let (tell, outcome) = watch::channel(None);
        asking.insert(key.clone(), outcome.clone());
        drop(asking);
        let pages = Arc::clone(self);
        tokio::spawn(async move {
            let asking = Asking(&pages, key.clone());
            let outcome = pages.ask_now(key, &policy).await;
            drop(asking);
            tell.send_replace(Some(outcome));
        });
        outcome
    }

    async fn ask_now(self: &Arc<Self>, key: Key, policy: &Arc<Policy>) -> Outcome {
        let (order, project) = (key.0, key.1.clone());
        let place = self.places.get(order)?;
        let _permit = self.permits.acquire().await.ok()?;
        let source = place.source(self.lifetime);
        Counters::count(&self.counters.page_fetches);
        let failed = match tokio::time::timeout(LONGEST, source.project(&project)).await {
            Ok(Ok(listing)) => {
                self.note(order, None);
                let lost = self.lost(order, &project, listing.as_ref(), policy).await;
                let Some(why) = lost else {
                    let fresh = (self.lifetime, SystemTime::now(), None);
                    return Some(self.keep(key, Arc::new(Ok(listing)), fresh));
                };
                why
            }
            Ok(Err(error @ upstream::Error::Connection { .. })) => {
                Counters::count(&self.counters.page_failures);
                self.note(order, Some(&with_causes(&error)));
                return None;
            }
            Ok(Err(error)) => with_causes(&error),
            Err(_elapsed) => {
                Counters::count(&self.counters.page_failures);
                self.note(order, Some("no answer in time"));
                return None;
            }
        };
        // It is a matter of this page: what was known of it counts.
        Counters::count(&self.counters.page_failures);
        tracing::warn!(upstream = place.upstream.name, %project, why = failed, "a page is not taken");
        let before = match self.copies.find(&key) {
            Some(copy) => Some(copy),
            None => self.from_disk(key.clone()).await,
        };
        let (answer, at) = if let Some(copy) = before {
            (Arc::clone(&copy.answer), copy.at)
        } else {
            let event = event(&place.upstream.name, &project, failed.clone());
            (Arc::new(Err(event)), SystemTime::now())
        };
        Some(self.keep(key, answer, (self.failure, at, Some(failed))))
    }

    /// Why a page is not believed: it lists none, or a small part, of what is known from its upstream.
    async fn lost(
        &self,
        order: usize,
        project: &ProjectName,
        listing: Option<&Listing>,
        policy: &Arc<Policy>,
    ) -> Option<String> {
        let name = self.upstream(order)?.name.clone();
        let links = listing.iter().flat_map(|listing| &listing.files);
        let listed: BTreeSet<String> = links.map(|link| link.file.filename.clone()).collect();
        let (store, own, policy) = (Arc::clone(&self.store), project.clone(), Arc::clone(policy));
        let counting = move || -> Result<Option<String>, store::Error> {
            let mut known = store.listing(&own)?;
            known.retain(|file| file.provenance.upstream == name && file.provenance.gone_since.is_none());
            let lost = known.iter().filter(|file| !listed.contains(&file.file)).count();
            let all = !known.is_empty() && listed.is_empty();
            let is_loss = all || policy.is_loss(lost as u64, known.len() as u64);
            Ok(is_loss.then(|| {
                let known = known.len();
                format!(
                    "it no longer lists {lost} of {known} known files; a sync with --accept-losses takes that"
                )
            }))
        };
        match tokio::task::spawn_blocking(counting).await {
            Ok(Ok(why)) => why,
            Ok(Err(error)) => Some(with_causes(&error)),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Place {
    /// What asks the upstream: another one where what a flat upstream lists is older than its lifetime.
    fn source(&self, lifetime: Duration) -> Arc<Source> {
        let mut source = locked(&self.source);
        if source.0.is_flat() && source.1.elapsed() >= lifetime {
            let anew = Source::new(self.upstream.clone(), self.client.clone(), Some(self.cache.clone()));
            *source = (Arc::new(anew), Instant::now());
        }
        Arc::clone(&source.0)
    }
}

fn event(upstream: &str, project: &ProjectName, text: String) -> Event {
    Event { kind: "page", upstream: upstream.to_owned(), name: project.to_string(), text }
}
