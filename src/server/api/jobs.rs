//! Syncs that the API started: at most one runs, and the last few are remembered.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wrong::Wrong;

/// How many jobs are remembered.
const REMEMBERED: usize = 32;

/// How many of the last lines of a job are kept; a sync has two a file.
const MOST_LINES: usize = 2000;

/// The longest line, in characters.
const LONGEST_LINE: usize = 1000;

/// What a sync is to do, as `jetwheel sync` takes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of `jetwheel sync`")]
pub struct SyncOrder {
    /// Ids of device profiles.
    pub devices: Vec<String>,
    /// Requirements such as `torch`.
    pub requirements: Vec<String>,
    /// Names or URLs of upstreams, in place of all that are known for the devices.
    pub upstreams: Vec<String>,
    /// The same for general ones.
    pub general: Vec<String>,
    /// Each requirement by itself.
    pub no_deps: bool,
    /// Every project that the upstreams list.
    pub all: bool,
    /// How many versions of each requirement.
    pub keep: Option<std::num::NonZeroU32>,
    /// After how many refused versions the search ends.
    pub tries: Option<std::num::NonZeroU32>,
    /// Most bytes to download.
    pub max_size: Option<u64>,
    /// Go on though an upstream lost most of what it had.
    pub accept_losses: bool,
    /// Files that are taken though their upstream had other bytes under that name.
    pub accept_changed: Vec<String>,
    /// Fetch nothing.
    pub dry_run: bool,
    /// Width in columns of the report's text.
    pub columns: Option<u16>,
}

/// How a sync ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SyncEnd {
    /// As the exit code of `jetwheel sync`.
    pub code: u8,
    /// The report, as `jetwheel sync --format json` prints it.
    pub report: Option<Value>,
    /// The report for people.
    pub text: Option<String>,
    /// Why it could not, where it could not.
    pub error: Option<String>,
}

/// Takes lines of progress.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// A job, as it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) id: String,
    /// `sync`.
    pub(crate) kind: String,
    /// `running`, `done`, `incomplete` (exit code 1) or `failed` (2 and 3).
    pub(crate) state: String,
    /// Who started it.
    pub(crate) who: String,
    pub(crate) started: Timestamp,
    pub(crate) ended: Option<Timestamp>,
    /// Lines of progress, from the one that was asked for on.
    pub(crate) lines: Vec<String>,
    /// The number behind the last of them: what to ask for next.
    pub(crate) next: u64,
    /// How it ended.
    pub(crate) result: Option<SyncEnd>,
}

/// The jobs of a server.
#[derive(Debug, Default)]
pub(in crate::server) struct Jobs(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    jobs: VecDeque<Arc<Job>>,
    made: u64,
}

#[derive(Debug)]
struct Job {
    id: String,
    who: String,
    started: Timestamp,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    lines: VecDeque<String>,
    /// How many lines were let go.
    dropped: u64,
    ended: Option<(Timestamp, SyncEnd)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Jobs {
    /// Starts a job on a thread of its own, unless one runs.
    pub(super) fn start(
        &self,
        who: &str,
        work: impl FnOnce(Say) -> SyncEnd + Send + 'static,
    ) -> Result<Told, Wrong> {
        let mut known = locked(&self.0);
        if let Some(running) = known.jobs.iter().find(|job| locked(&job.now).ended.is_none()) {
            let id = &running.id;
            return Err(Wrong::Stands(format!(
                "the sync {id} is still running: GET /api/v1/jobs/{id} tells how far it is"
            )));
        }
        known.made = known.made.saturating_add(1);
        let started = Timestamp::now();
        let id = format!("{}-{}", started.strftime("%Y%m%dT%H%M%SZ"), known.made);
        let job = Arc::new(Job { id, who: who.to_owned(), started, now: Mutex::default() });
        let of_thread = Arc::clone(&job);
        let thread = std::thread::Builder::new().name("sync job".to_owned()).spawn(move || {
            let of_lines = Arc::clone(&of_thread);
            let say: Say = Arc::new(move |line| of_lines.say(line));
            let end = std::panic::catch_unwind(AssertUnwindSafe(|| work(say)));
            let end = end.unwrap_or_else(|_| SyncEnd {
                code: 3,
                error: Some("the sync ended by a panic, which the log has".to_owned()),
                ..SyncEnd::default()
            });
            locked(&of_thread.now).ended = Some((Timestamp::now(), end));
        });
        if let Err(error) = thread {
            return Err(Wrong::Stands(format!("no thread for a sync: {error}")));
        }
        let told = job.told(0);
        known.jobs.push_back(job);
        while known.jobs.len() > REMEMBERED {
            known.jobs.pop_front();
        }
        Ok(told)
    }

    /// A job, with its lines from that number on.
    pub(super) fn told(&self, id: &str, from: u64) -> Option<Told> {
        let job = locked(&self.0).jobs.iter().find(|job| job.id == id).map(Arc::clone)?;
        Some(job.told(from))
    }

    /// The job that runs.
    pub(super) fn running(&self) -> Option<String> {
        let known = locked(&self.0);
        known.jobs.iter().find(|job| locked(&job.now).ended.is_none()).map(|job| job.id.clone())
    }
}

impl Job {
    fn say(&self, text: &str) {
        let mut now = locked(&self.now);
        for line in text.lines() {
            now.lines.push_back(line.chars().take(LONGEST_LINE).collect());
            if now.lines.len() > MOST_LINES {
                now.lines.pop_front();
                now.dropped = now.dropped.saturating_add(1);
            }
        }
    }

    fn told(&self, from: u64) -> Told {
        let now = locked(&self.now);
        let skipped = usize::try_from(from.saturating_sub(now.dropped)).unwrap_or(usize::MAX);
        let state = match now.ended.as_ref().map(|(_, end)| end.code) {
            None => "running",
            Some(0) => "done",
            Some(1) => "incomplete",
            Some(_) => "failed",
        };
        Told {
            id: self.id.clone(),
            kind: "sync".to_owned(),
            state: state.to_owned(),
            who: self.who.clone(),
            started: self.started,
            ended: now.ended.as_ref().map(|(at, _)| *at),
            lines: now.lines.iter().skip(skipped).cloned().collect(),
            next: now.dropped.saturating_add(now.lines.len() as u64),
            result: now.ended.as_ref().map(|(_, end)| end.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    fn ended(jobs: &Jobs, id: &str) -> Told {
        let begin = Instant::now();
        loop {
            let told = jobs.told(id, 0).unwrap();
            if told.state != "running" {
                return told;
            }
            assert!(begin.elapsed() < Duration::from_secs(30));
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_runs_at_a_time_and_its_last_lines_are_kept() {
        let jobs = Jobs::default();
        let (go, wait) = mpsc::channel::<()>();
        let first = jobs
            .start("token:a", move |say| {
                for number in 0..MOST_LINES + 5 {
                    say(&format!("line {number}"));
                }
                wait.recv().unwrap();
                SyncEnd { code: 1, ..SyncEnd::default() }
            })
            .unwrap();
        assert!(matches!(jobs.start("token:b", |_| SyncEnd::default()), Err(Wrong::Stands(_))));
        assert_eq!(jobs.running().as_deref(), Some(first.id.as_str()));
        go.send(()).unwrap();
        let told = ended(&jobs, &first.id);
        assert_eq!((told.state.as_str(), told.lines.len(), told.next), ("incomplete", MOST_LINES, 2005));
        let rest = jobs.told(&first.id, 2003).unwrap().lines;
        assert_eq!(rest, ["line 2003", "line 2004"]);
        let second = jobs.start("token:b", |_| panic!("on purpose")).unwrap();
        assert_eq!(ended(&jobs, &second.id).state, "failed");
        assert!(jobs.told("x", 0).is_none());
    }
}
