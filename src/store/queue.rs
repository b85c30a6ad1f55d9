//! Work that any process of a shared store may take.
//!
//! A job is taken by a lease: whoever holds it renews it while it works, and where its process dies the lease ends and the
//! job goes to another one. A job that fails waits for a while, longer each time; one that failed too often is dead, and stays
//! for people to look at. Doing a job twice must do no harm: a process that was thought dead may still be at it.

use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

use super::postgres::Database;
use super::{Error, Store};

/// How long a job stays with a process that says nothing.
const LEASE: Duration = Duration::from_secs(30);

/// How often a holder says that it is still at work.
const RENEWAL: Duration = Duration::from_secs(10);

/// How often a job is tried.
const MOST_ATTEMPTS: i32 = 5;

/// For how long jobs that are done are kept, for people to look at.
const KEPT: &str = "7 days";

/// The longest error that is kept with a job, in bytes.
const LONGEST_ERROR: usize = 2000;

/// The queue of a shared store.
#[derive(Debug, Clone)]
pub struct Queue {
    database: Database,
}

/// A job that this process holds. It goes to another process some time after it was dropped.
#[derive(Debug)]
pub struct Job {
    database: Database,
    id: i64,
    holder: String,
    /// What is to be done.
    pub body: String,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Ends the thread that renews the lease.
    _renewal: mpsc::Sender<()>,
}

/// How many jobs there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct QueueLength {
    /// To be done now or later.
    pub waiting: u64,
    /// Being done.
    pub running: u64,
    /// Done within the last days.
    pub done: u64,
    /// Failed too often.
    pub dead: u64,
}

impl Store {
    /// The queue; none where the store is not shared.
    pub fn queue(&self) -> Option<Queue> {
        self.database.clone().map(|database| Queue { database })
    }
}

impl Queue {
    /// Adds jobs, other than those that wait already; yields how many.
    pub fn add(&self, bodies: &[String]) -> Result<u64, Error> {
        let rows = self.database.query(
            "INSERT INTO job (body) SELECT DISTINCT unnest($1::text[]) ON CONFLICT DO NOTHING RETURNING id",
            || vec![Box::new(bodies.to_vec())],
        );
        let added = rows.map_err(|fault| self.database.error(fault))?.len();
        self.database
            .query("DELETE FROM job WHERE state = 'done' AND changed < now() - $1::text::interval", || {
                vec![Box::new(KEPT)]
            })
            .map_err(|fault| self.database.error(fault))?;
        Ok(added as u64)
    }

    /// Takes the job that is due first; none where none is.
    ///
    /// One whose holder died with it too often is dead, and is passed over.
    pub fn take(&self) -> Result<Option<Job>, Error> {
        let holder = format!("{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond());
        let refused = |fault| self.database.error(fault);
        self.database
            .query(
                "UPDATE job SET state = 'dead', changed = now(), error = coalesce(error, 'its holder died')
                 WHERE state = 'running' AND due < now() AND attempts >= $1",
                || vec![Box::new(MOST_ATTEMPTS)],
            )
            .map_err(refused)?;
        let rows = self
            .database
            .query(
                "UPDATE job SET state = 'running', attempts = attempts + 1, holder = $1, changed = now(),
                    due = now() + make_interval(secs => $2)
                 WHERE id = (
                    SELECT id FROM job WHERE state IN ('waiting', 'running') AND due <= now()
                    ORDER BY due, id LIMIT 1 FOR UPDATE SKIP LOCKED)
                 RETURNING id, body, attempts",
                || vec![Box::new(holder.clone()), Box::new(LEASE.as_secs_f64())],
            )
            .map_err(refused)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (id, body, attempts): (i64, String, i32) = (row.get(0), row.get(1), row.get(2));
        let renewal = self.renew(id, holder.clone());
        let attempt = u32::try_from(attempts).unwrap_or(1);
        let database = self.database.clone();
        Ok(Some(Job { database, id, holder, body, attempt, _renewal: renewal }))
    }

    /// Renews a lease until what is yielded is dropped.
    fn renew(&self, id: i64, holder: String) -> mpsc::Sender<()> {
        let (held, dropped) = mpsc::channel();
        let database = self.database.clone();
        std::thread::spawn(move || {
            while dropped.recv_timeout(RENEWAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                let renewed = database.query(
                    "UPDATE job SET due = now() + make_interval(secs => $3)
                     WHERE id = $1 AND holder = $2 AND state = 'running'",
                    || vec![Box::new(id), Box::new(holder.clone()), Box::new(LEASE.as_secs_f64())],
                );
                if let Err(fault) = renewed {
                    tracing::warn!(?fault, "the lease of a job could not be renewed");
                }
            }
        });
        held
    }

    /// How many jobs there are.
    pub fn length(&self) -> Result<QueueLength, Error> {
        let rows = self.database.query("SELECT state, count(*) FROM job GROUP BY state", Vec::new);
        let mut length = QueueLength::default();
        for row in rows.map_err(|fault| self.database.error(fault))? {
            let (state, count): (&str, i64) = (row.get(0), row.get(1));
            let count = u64::try_from(count).unwrap_or(0);
            match state {
                "waiting" => length.waiting = count,
                "running" => length.running = count,
                "done" => length.done = count,
                _ => length.dead = count,
            }
        }
        Ok(length)
    }
}

impl Job {
    /// Notes that the job is done. Nothing happens where it went to another process meanwhile.
    pub fn done(self) -> Result<(), Error> {
        self.end(
            "UPDATE job SET state = 'done', changed = now(), error = $3
             WHERE id = $1 AND holder = $2 AND state = 'running'",
            None,
        )
    }

    /// Notes that the job failed: it is due again after a pause that doubles with each attempt, or dead.
    pub fn failed(self, why: &str) -> Result<(), Error> {
        let mut why = why.to_owned();
        why.truncate(why.floor_char_boundary(LONGEST_ERROR));
        self.end(
            "UPDATE job SET changed = now(), error = $3, due = now() + make_interval(secs => 5 * 2 ^ attempts),
                state = CASE WHEN attempts >= 5 OR EXISTS (
                    SELECT 1 FROM job other WHERE other.state = 'waiting' AND other.body = job.body)
                    THEN 'dead' ELSE 'waiting' END
             WHERE id = $1 AND holder = $2 AND state = 'running'",
            Some(&why),
        )
    }

    fn end(self, statement: &'static str, error: Option<&str>) -> Result<(), Error> {
        let ended = self.database.query(statement, || {
            // A text of PostgreSQL's holds no NUL.
            let error = error.map(|error| error.replace('\0', " "));
            vec![Box::new(self.id), Box::new(self.holder.clone()), Box::new(error)]
        });
        ended.map(drop).map_err(|fault| self.database.error(fault))
    }
}
