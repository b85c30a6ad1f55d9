//! Wheels that nobody has inspected yet, fetched in the background.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::flight::{self, Job};
use super::{Shared, locked};
use crate::server::pull::{Counters, FailureKind, Stage};

/// Most wheels that wait. Pages put theirs on it again when they are asked for.
const MOST: usize = 1024;

/// Of how many wheels it is remembered that they failed.
const FAILURES: usize = 4096;

/// How long a wheel that failed is left alone, at the least: fetching a large one costs its upstream much.
const LEAST_REST: Duration = Duration::from_mins(1);

/// How long to wait where too much is under way.
const BUSY: Duration = Duration::from_secs(1);

/// The queue.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    news: Notify,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    /// Those that wait or are worked on (none), and those that failed, with the time.
    known: HashMap<String, Option<Instant>>,
}

impl Queue {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self { inner: Mutex::default(), news: Notify::new(), counters }
    }

    /// Puts a wheel on the queue, unless it is there, or failed a short while ago.
    pub(super) fn put(&self, job: &Job) {
        let key = job.key();
        let mut inner = locked(&self.inner);
        match inner.known.get(&key) {
            Some(None) => return,
            Some(Some(at)) if at.elapsed() < LEAST_REST => return,
            _ => {}
        }
        if inner.jobs.len() >= MOST {
            Counters::count(&self.counters.queue_full);
            return;
        }
        inner.known.insert(key, None);
        inner.jobs.push_back(job.clone());
        self.counters.queue_length.store(inner.jobs.len() as u64, Ordering::Relaxed);
        drop(inner);
        self.news.notify_one();
    }

    fn take(&self) -> Option<Job> {
        let mut inner = locked(&self.inner);
        let job = inner.jobs.pop_front();
        self.counters.queue_length.store(inner.jobs.len() as u64, Ordering::Relaxed);
        job
    }

    fn done(&self, key: String, failed: bool) {
        let mut inner = locked(&self.inner);
        if !failed {
            inner.known.remove(&key);
            return;
        }
        if inner.known.len() >= FAILURES {
            inner.known.retain(|_, at| at.is_none_or(|at| at.elapsed() < LEAST_REST));
        }
        inner.known.insert(key, Some(Instant::now()));
    }
}

/// Works on the queue until the runtime ends.
pub(super) async fn work(shared: Arc<Shared>) {
    loop {
        let Some(job) = shared.queue.take() else {
            shared.queue.news.notified().await;
            continue;
        };
        let key = job.key();
        let failed = loop {
            match flight::begin(&shared, job.clone()) {
                Ok(mut stages) => {
                    let ended = |stage: &Stage| matches!(stage, Stage::Kept | Stage::Failed(_));
                    let stage = stages.wait_for(ended).await;
                    break !matches!(stage.as_deref(), Ok(Stage::Kept));
                }
                Err(failure) if failure.kind == FailureKind::Busy => tokio::time::sleep(BUSY).await,
                Err(_failure) => break true,
            }
        };
        shared.queue.done(key, failed);
        // Another worker may have been told of what this one took.
        shared.queue.news.notify_one();
    }
}
