//! Files on their way: each is fetched once, however many ask for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::{Semaphore, watch};

use super::{Shared, blocking, failure, locked};
use crate::digest::Sha256;
use crate::policy::{DeviceProfile, Policy};
use crate::server::lru::Lru;
use crate::server::pull::{Counters, Failure, FailureKind, Stage};
use crate::sync::gather::Origin;
use crate::sync::take::{Budget, Keeping, Taker};
use crate::sync::{self, Knowledge, Means};
use crate::upstream::{self, Progress, Wanted, fetch};
use crate::wheel::WheelFilename;
use crate::wording::with_causes;

/// Most files on their way, waiting ones among them.
const MOST: usize = 256;

/// Most devices for which one file is kept; what none of them takes leaves its facts alone.
const MOST_DEVICES: usize = 64;

/// Of how many files it is remembered that they failed.
const FAILURES: usize = 1024;

/// A file to be fetched.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) name: WheelFilename,
    /// Its digest, where the upstream states it.
    pub(super) sha256: Option<Sha256>,
    pub(super) origin: Origin,
    /// Who asks.
    pub(super) device: DeviceProfile,
    pub(super) policy: Arc<Policy>,
    /// Its size, where its facts are known and admitted: then it is read while it arrives.
    pub(super) size: Option<u64>,
}

impl Job {
    /// What tells files from each other.
    pub(super) fn key(&self) -> String {
        match &self.sha256 {
            Some(sha256) => format!("{sha256}/{}", self.name.text),
            None => self.origin.link.stable_url(),
        }
    }
}

/// The files that are on their way.
pub(super) struct Flights {
    table: Mutex<HashMap<String, Flight>>,
    permits: Semaphore,
    /// Bytes that are to come, and need room.
    to_come: AtomicU64,
    failed: Lru<String, (Instant, Failure)>,
}

struct Flight {
    stages: watch::Receiver<Stage>,
    devices: Arc<Mutex<Vec<DeviceProfile>>>,
}

impl Flights {
    pub(super) fn new(at_once: usize) -> Self {
        Self {
            table: Mutex::default(),
            permits: Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)),
            to_come: AtomicU64::new(0),
            failed: Lru::new(FAILURES),
        }
    }
}

/// Takes a flight out of the table when it ends, however that is.
struct InFlight {
    shared: Arc<Shared>,
    key: String,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        locked(&self.shared.flights.table).remove(&self.key);
        self.shared.counters.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sets room aside for what is to come.
struct Room<'a>(&'a AtomicU64, u64);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// Fetches a file, or joins whoever does.
pub(super) fn begin(shared: &Arc<Shared>, job: Job) -> Result<watch::Receiver<Stage>, Failure> {
    let key = job.key();
    let flights = &shared.flights;
    let mut table = locked(&flights.table);
    if let Some(flight) = table.get(&key) {
        let mut devices = locked(&flight.devices);
        if devices.len() < MOST_DEVICES && devices.iter().all(|device| device.id != job.device.id) {
            devices.push(job.device);
        }
        Counters::count(&shared.counters.file_joins);
        return Ok(flight.stages.clone());
    }
    let recent = |(at, _): &(Instant, Failure)| at.elapsed() < shared.options.failure;
    if let Some((_, failure)) = flights.failed.find(&key).filter(recent) {
        return Err(failure);
    }
    shared.pages.check(&job.origin.upstream)?;
    if table.len() >= MOST {
        return Err(failure(FailureKind::Busy, "too many files are being fetched: ask again later"));
    }
    let (tell, stages) = watch::channel(Stage::Waiting(0, job.size.or(job.origin.link.file.size)));
    let devices = Arc::new(Mutex::new(vec![job.device.clone()]));
    table.insert(key.clone(), Flight { stages: stages.clone(), devices: Arc::clone(&devices) });
    drop(table);
    shared.counters.in_flight.fetch_add(1, Ordering::Relaxed);
    let in_flight = InFlight { shared: Arc::clone(shared), key: key.clone() };
    tokio::spawn(async move {
        let shared = Arc::clone(&in_flight.shared);
        let tell = Arc::new(tell);
        let stage = match run(&shared, &job, &tell, &devices).await {
            Ok(()) => Stage::Kept,
            Err(failure) => {
                Counters::count(&shared.counters.file_failures);
                tracing::warn!(file = job.name.text, upstream = job.origin.upstream, "{failure}");
                if failure.kind == FailureKind::Lied {
                    Counters::count(&shared.counters.file_lies);
                }
                // What a further try may mend at once is not remembered.
                if matches!(failure.kind, FailureKind::Lied | FailureKind::TooLarge) {
                    shared.flights.failed.keep(key, (Instant::now(), failure.clone()), 1);
                }
                Stage::Failed(failure)
            }
        };
        // Out of the table first: whoever comes now finds it in the store.
        drop(in_flight);
        tell.send_replace(stage);
    });
    Ok(stages)
}

/// Fetches, verifies, inspects and keeps.
async fn run(
    shared: &Arc<Shared>,
    job: &Job,
    tell: &Arc<watch::Sender<Stage>>,
    devices: &Mutex<Vec<DeviceProfile>>,
) -> Result<(), Failure> {
    let Job { name, origin, .. } = job;
    if let Some(sha256) = job.sha256 {
        let (store, file) = (Arc::clone(&shared.store), name.text.clone());
        let row = blocking(move || store.row_named(&sha256, &file)).await?;
        if row.is_some_and(|row| row.held) {
            return Ok(());
        }
    }
    let _permit = shared.flights.permits.acquire().await;
    let size = job.size.or(origin.link.file.size);
    let to_come = &shared.flights.to_come;
    let _room = Room(to_come, size.unwrap_or(0));
    let needed = to_come.fetch_add(size.unwrap_or(0), Ordering::Relaxed).saturating_add(size.unwrap_or(0));
    let store = Arc::clone(&shared.store);
    let spool = blocking(move || store.spool_for(needed)).await?;
    let wanted = Wanted {
        url: origin.link.url.clone(),
        sha256: job.sha256,
        size,
        limit: job.size.unwrap_or(shared.options.largest),
        append_only: job.size.is_some(),
    };
    let lost = |error: std::io::Error| failure(FailureKind::Store, error.to_string());
    let file = Arc::new(spool.reopen().map_err(lost)?);
    let progress = progress(shared, tell, job.size.is_some().then(|| Arc::clone(&file)), size);
    Counters::count(&shared.counters.file_fetches);
    let taker = |devices: Vec<DeviceProfile>| Taker {
        means: Means {
            store: Arc::clone(&shared.store),
            policy: Arc::clone(&job.policy),
            client: shared.hasty.clone(),
        },
        devices: Arc::new(devices),
        listener: Arc::new(|_| {}),
        permits: Semaphore::new(1),
        budget: Budget::new(None),
        now: jiff::Timestamp::now().to_string(),
        accept_changed: Arc::default(),
    };
    let of_sync = |error: sync::Error| failure(FailureKind::Store, with_causes(&error));
    let fetched = match fetch(&shared.files, &wanted, spool.path(), &progress).await {
        Ok(fetched) => fetched,
        Err(error @ upstream::Error::Io { .. }) => {
            return Err(failure(FailureKind::Store, with_causes(&error)));
        }
        Err(error @ upstream::Error::TooLarge { .. }) if job.size.is_none() => {
            return Err(failure(FailureKind::TooLarge, with_causes(&error)));
        }
        Err(error) if error.is_lie() => {
            let text = with_causes(&error);
            taker(Vec::new()).failed(name, origin, error).await.map_err(of_sync)?;
            return Err(failure(FailureKind::Lied, text));
        }
        Err(error) => return Err(shared.pages.failed(&origin.upstream, &error)),
    };
    if job.size.is_some() {
        tell.send_replace(Stage::Whole(file));
    }
    let devices = locked(devices).clone();
    let kept = taker(devices).keep(name, origin, spool, fetched, Keeping::AtOnce).await;
    match kept.map_err(of_sync)?.knowledge {
        Knowledge::Lied(reason) => Err(failure(FailureKind::Lied, reason.text.clone())),
        _ => Ok(()),
    }
}

/// Tells how far a file is; with its handle where it can be read meanwhile.
fn progress(
    shared: &Arc<Shared>,
    tell: &Arc<watch::Sender<Stage>>,
    file: Option<Arc<std::fs::File>>,
    size: Option<u64>,
) -> Progress {
    let (shared, tell, before) = (Arc::clone(shared), Arc::clone(tell), AtomicU64::new(0));
    Arc::new(move |reached| {
        let came = reached.saturating_sub(before.swap(reached, Ordering::Relaxed));
        shared.counters.fetched_bytes.fetch_add(came, Ordering::Relaxed);
        tell.send_replace(match &file {
            Some(file) => Stage::Arriving(Arc::clone(file), reached),
            None => Stage::Waiting(reached, size),
        });
    })
}
