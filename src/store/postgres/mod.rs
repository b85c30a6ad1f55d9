//! The PostgreSQL database that several processes share: its connections, and transactions with advisory locks.
//!
//! Locks are advisory, and end with their transaction, thus with their process or the server, whichever dies first. Their
//! order, which keeps writers from waiting for each other in a circle: [`Lock::Writers`], then of one digest its intake and
//! record locks with those of pins and URLs, in the order of their numbers, then projects in the order of their numbers,
//! then [`Lock::Changes`]. Nobody who holds one takes one of an earlier kind. Notes have their own, with [`Lock::Changes`] last.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::away::Waiting;
use super::bridge::Bridge;
use super::catalogue::Fault;
use super::{Error, locked};
use crate::digest::Sha256;
use crate::wording::with_causes;

mod connect;
mod fault;
mod schema;
mod watch;

pub use connect::Postgres;
use connect::{CONNECT_TIMEOUT, Way};
use fault::fault;
pub(super) use watch::{News, NotesRows};

/// The most connections of one process. PostgreSQL allows 100 in all unless it is told otherwise.
const MOST_CONNECTIONS: usize = 16;

/// How long a free connection is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// How long one statement may take. The longest are those that read or write a batch of records.
const STATEMENT: Duration = Duration::from_mins(1);

/// How long after a failed attempt to connect no further one is made: whoever asks meanwhile is told so at once.
const PAUSE: Duration = Duration::from_millis(300);

/// A parameter of a statement.
pub(super) type Value = Box<dyn ToSql + Sync + Send>;

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock<'a> {
    /// The right to write records at all, which whoever makes all of them anew takes for itself.
    Writers,
    /// Taking in the bytes of a digest, or removing them.
    Intake(&'a Sha256),
    /// One key of the catalogue.
    Key(&'a [u8]),
    /// Documents and logs.
    Documents,
    /// Snapshots and channels.
    Snapshots,
    /// The end of the list of changes.
    Changes,
}

impl Lock<'_> {
    pub(super) fn number(self) -> i64 {
        let text = match self {
            Self::Writers => b"jetwheel writers".to_vec(),
            Self::Intake(sha256) => [b"jetwheel intake ", &sha256.0[..]].concat(),
            Self::Key(key) => [b"jetwheel key ", key].concat(),
            Self::Documents => b"jetwheel documents".to_vec(),
            Self::Snapshots => b"jetwheel snapshots".to_vec(),
            Self::Changes => b"jetwheel changes".to_vec(),
        };
        let digest = Sha256::of(&text).0;
        i64::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
    }
}

/// The database.
#[derive(Clone)]
pub(super) struct Database(Arc<Inner>);

struct Inner {
    bridge: Arc<Bridge>,
    pool: Pool,
    way: Way,
    /// Tells the changes of this process from those of others.
    origin: String,
    /// How long beginnings wait for a database that is away, in milliseconds.
    patience_ms: AtomicU64,
    /// When the last attempt to connect failed.
    failed: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Database({})", self.0.way.name)
    }
}

impl Database {
    /// Connects, and brings the tables up to date.
    pub(super) fn open(address: &Postgres, bridge: Arc<Bridge>, patience: Duration) -> Result<Self, Error> {
        let way = address.way()?;
        let manager = Manager::from_config(
            way.config.clone(),
            way.tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(MOST_CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .build()
            .map_err(|error| Error::Address { address: way.name.clone(), found: with_causes(&error) })?;
        let origin = format!("{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond());
        let database = Self(Arc::new(Inner {
            bridge,
            pool,
            way,
            origin,
            patience_ms: AtomicU64::new(0),
            failed: Mutex::new(None),
        }));
        database.set_patience(patience);
        database.patiently(|| database.migrate()).map_err(|fault| database.error(fault))?;
        Ok(database)
    }

    fn migrate(&self) -> Result<(), Fault> {
        let inner = Arc::clone(&self.0);
        self.wait(STATEMENT, async move {
            let (mut client, connection) =
                inner.way.config.connect(inner.way.tls.clone()).await.map_err(|error| fault(&error))?;
            let talk = tokio::spawn(connection);
            let result = schema::migrate(&mut client).await;
            talk.abort();
            result
        })
    }

    /// The address, for messages.
    pub(super) fn name(&self) -> &str {
        &self.0.way.name
    }

    /// A fault in words for whoever called the store.
    pub(super) fn error(&self, fault: Fault) -> Error {
        let place = self.name().to_owned();
        match fault {
            Fault::Away(found) => Error::Unreachable { place, found },
            Fault::Io(error) => Error::Unreachable { place, found: error.to_string() },
            Fault::Damaged(found) => Error::Catalogue {
                path: place.into(),
                found: format!("{found}; jetwheel rebuild makes it anew"),
            },
            Fault::Refused(found) => Error::Catalogue { path: place.into(), found },
        }
    }

    pub(super) fn set_patience(&self, patience: Duration) {
        let ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.0.patience_ms.store(ms, Ordering::Relaxed);
    }

    /// Tries what has no effect if it fails as long as patience lasts, and at least twice: a connection at hand may turn out
    /// to be dead.
    fn patiently<T>(&self, attempt: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
        let patience = Duration::from_millis(self.0.patience_ms.load(Ordering::Relaxed));
        let (mut waiting, mut tried) = (Waiting::begin(), false);
        loop {
            let result = attempt();
            let Err(Fault::Away(found)) = &result else { return result };
            if std::mem::replace(&mut tried, true) && !waiting.goes_on(self.name(), found, patience) {
                return result;
            }
        }
    }

    fn wait<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let limited = async move {
            let late = |_| Fault::Away(format!("it did not answer within {} s", limit.as_secs()));
            tokio::time::timeout(limit, work).await.map_err(late).and_then(|answer| answer)
        };
        let gone = || Err(Fault::Away("the store is being closed".to_owned()));
        self.0.bridge.wait(limited).unwrap_or_else(gone)
    }

    /// Runs one statement by itself; once more where the connection turns out to be dead.
    pub(super) fn query(
        &self,
        statement: &'static str,
        values: impl Fn() -> Vec<Value>,
    ) -> Result<Vec<Row>, Fault> {
        self.patiently(|| self.query_once(statement, values()))
    }

    fn query_once(&self, statement: &'static str, values: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let inner = Arc::clone(&self.0);
        self.wait(STATEMENT, async move {
            let client = inner.client().await?;
            ask(&client, statement, &values).await
        })
    }

    /// Begins a transaction that sees what others commit meanwhile.
    pub(super) fn begin(&self) -> Result<Session, Fault> {
        self.begin_with("BEGIN")
    }

    /// Begins a transaction that sees one state of all tables.
    pub(super) fn begin_frozen(&self) -> Result<Session, Fault> {
        self.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    }

    fn begin_with(&self, statement: &'static str) -> Result<Session, Fault> {
        let begin = || {
            let inner = Arc::clone(&self.0);
            self.wait(STATEMENT, async move {
                let client = inner.client().await?;
                // The bytes of a wheel may be on their way for long.
                let text = format!("{statement}; SET LOCAL idle_in_transaction_session_timeout = 0");
                client.batch_execute(&text).await.map_err(|error| fault(&error))?;
                Ok(client)
            })
        };
        let client = self.patiently(begin)?;
        Ok(Session { database: self.clone(), client: Some(Arc::new(client)), broken: AtomicBool::new(false) })
    }
}

impl Inner {
    /// A connection; fails at once where another attempt has just failed.
    async fn client(&self) -> Result<Object, Fault> {
        if locked(&self.failed).is_some_and(|failed| failed.elapsed() < PAUSE) {
            return Err(Fault::Away("no connection could be made a moment ago".to_owned()));
        }
        let got = self.pool.get().await;
        *locked(&self.failed) = got.as_ref().err().map(|_| Instant::now());
        got.map_err(|error| match error {
            PoolError::Backend(error) => fault(&error),
            other => Fault::Away(with_causes(&other)),
        })
    }
}

/// One transaction. It is undone where it is dropped without [`Session::commit`].
pub(super) struct Session {
    database: Database,
    client: Option<Arc<Object>>,
    /// Whether the connection is not to be used again.
    broken: AtomicBool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Session({})", self.database.name())
    }
}

impl Session {
    /// Runs a statement.
    pub(super) fn query(&self, statement: &'static str, values: Vec<Value>) -> Result<Vec<Row>, Fault> {
        let Some(client) = self.client.clone() else {
            return Err(Fault::Refused("the transaction has ended".to_owned()));
        };
        let result = self.database.wait(STATEMENT, async move { ask(&client, statement, &values).await });
        if matches!(result, Err(Fault::Away(_))) {
            self.broken.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Waits for locks, which are then held until the end.
    pub(super) fn lock(&self, locks: &[Lock<'_>]) -> Result<(), Fault> {
        let mut numbers: Vec<i64> = locks.iter().map(|lock| lock.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.query(
            "SELECT pg_advisory_xact_lock(number) FROM unnest($1::bigint[]) AS number",
            vec![Box::new(numbers)],
        )?;
        Ok(())
    }

    /// As [`Session::lock`], for a lock that others may share.
    pub(super) fn lock_shared(&self, lock: Lock<'_>) -> Result<(), Fault> {
        self.query("SELECT pg_advisory_xact_lock_shared($1)", vec![Box::new(lock.number())])?;
        Ok(())
    }

    /// Takes a lock if nobody has it.
    pub(super) fn try_lock(&self, lock: Lock<'_>) -> Result<bool, Fault> {
        let rows = self.query("SELECT pg_try_advisory_xact_lock($1)", vec![Box::new(lock.number())])?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    /// Notes what changed, for the other processes, as the last step before the end; yields the change's number.
    pub(super) fn tell(&self, projects: Vec<Option<String>>) -> Result<i64, Fault> {
        self.lock(&[Lock::Changes])?;
        let origin = self.database.0.origin.clone();
        let rows = self.query(
            "WITH made AS (
                INSERT INTO change (origin, project) SELECT $1, project FROM unnest($2::text[]) AS project
                RETURNING number
            )
            SELECT max(number), pg_notify('jetwheel', '')::text FROM made",
            vec![Box::new(origin), Box::new(projects)],
        )?;
        Ok(rows.first().and_then(|row| row.get(0)).unwrap_or(0))
    }

    /// Ends the transaction: all of it is durable when this returns.
    pub(super) fn commit(mut self) -> Result<(), Fault> {
        let Some(client) = self.client.take() else {
            return Err(Fault::Refused("the transaction has ended".to_owned()));
        };
        self.database.wait(STATEMENT, async move {
            let done = client.batch_execute("COMMIT").await.map_err(|error| fault(&error));
            if done.is_err() {
                forget(client);
            }
            done
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        let broken = self.broken.load(Ordering::Relaxed);
        self.database.0.bridge.spawn(async move {
            let undone = tokio::time::timeout(CONNECT_TIMEOUT, client.batch_execute("ROLLBACK")).await;
            if broken || !matches!(undone, Ok(Ok(()))) {
                forget(client);
            }
        });
    }
}

/// Closes a connection instead of giving it back.
fn forget(client: Arc<Object>) {
    if let Some(client) = Arc::into_inner(client) {
        drop(Object::take(client));
    }
}

async fn ask(client: &Object, statement: &'static str, values: &[Value]) -> Result<Vec<Row>, Fault> {
    let work = async {
        let statement = client.prepare_cached(statement).await?;
        let values: Vec<&(dyn ToSql + Sync)> =
            values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
        client.query(&statement, &values).await
    };
    work.await.map_err(|error| fault(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_different_things_differ() {
        let sha256 = Sha256::of(b"");
        let locks = [
            Lock::Writers,
            Lock::Intake(&sha256),
            Lock::Key(&sha256.0),
            Lock::Documents,
            Lock::Snapshots,
            Lock::Changes,
        ];
        let mut numbers: Vec<i64> = locks.iter().map(|lock| lock.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), locks.len());
    }
}
