//! Learns what other processes changed: a connection of its own that listens, and looks for itself once a second.

use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client};

use super::{Database, Inner, fault};
use crate::store::catalogue::Fault;

/// How long nothing is looked for while no notification comes.
const LOOK: Duration = Duration::from_secs(1);

/// How long an answer may take before the connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long after a failure the next attempt is made.
const PAUSE: Duration = Duration::from_millis(200);

/// How many changes are read at once; after more of them, all that was made of rows counts as out of date.
const MOST_CHANGES: usize = 10_000;

/// For how long changes are kept. Who slept for longer takes all for changed.
const KEPT: &str = "1 day";

/// What is done with the news.
type Tell = dyn Fn(News) + Send + Sync;

/// What was changed since the last look.
#[derive(Debug, Default)]
pub(in crate::store) struct News {
    /// Whether any row may have changed.
    pub(in crate::store) all: bool,
    /// Projects whose rows changed.
    pub(in crate::store) projects: Vec<String>,
    /// The notes, where they changed: the number of the newest change in them, and their rows.
    pub(in crate::store) notes: Option<NotesRows>,
}

/// Heads of snapshots, and channels, as of one change.
#[derive(Debug, Default)]
pub(in crate::store) struct NotesRows {
    pub(in crate::store) as_of: i64,
    pub(in crate::store) starts: Vec<(String, Vec<u8>)>,
    pub(in crate::store) documents: Vec<(String, Vec<u8>)>,
}

impl Database {
    /// The number of the newest change.
    pub(in crate::store) fn newest_change(&self) -> Result<i64, Fault> {
        let rows = self.query("SELECT coalesce(max(number), 0) FROM change", Vec::new)?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    /// Tells of all changes after that number, until the database is closed.
    pub(in crate::store) fn watch(&self, after: i64, tell: impl Fn(News) + Send + Sync + 'static) {
        let tell: Arc<Tell> = Arc::new(tell);
        let inner = Arc::downgrade(&self.0);
        self.0.bridge.spawn(async move {
            let mut after = after;
            let mut said = false;
            while let Err(fault) = listen(&inner, &mut after, &tell, &mut said).await {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(?fault, "the database is away: pages at hand are served as they are");
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
}

/// Listens over one connection; ends in peace where the store was closed.
async fn listen(
    inner: &Weak<Inner>,
    after: &mut i64,
    tell: &Arc<Tell>,
    said: &mut bool,
) -> Result<(), Fault> {
    let Some(way) = inner.upgrade().map(|inner| inner.way.clone()) else { return Ok(()) };
    let (client, mut connection) = way.config.connect(way.tls).await.map_err(|error| fault(&error))?;
    let (wake, mut woken) = mpsc::channel(1);
    let talk = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                // One waiting wake-up stands for all.
                let _one_waits = wake.try_send(());
            }
        }
    });
    let work = async {
        ask(client.batch_execute("LISTEN jetwheel")).await?;
        loop {
            let news = ask(look(&client, after)).await?;
            if std::mem::take(said) {
                tracing::info!("the database answers again");
            }
            if inner.strong_count() == 0 {
                return Ok(());
            }
            if let Some(news) = news {
                // Whoever holds what it locks may wait for this runtime.
                let tell = Arc::clone(tell);
                let _told = tokio::task::spawn_blocking(move || tell(news)).await;
            }
            let _timeout = tokio::time::timeout(LOOK, woken.recv()).await;
        }
    };
    let ended = work.await;
    talk.abort();
    ended
}

async fn ask<T>(work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Fault> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(answer) => answer.map_err(|error| fault(&error)),
        Err(_) => Err(Fault::Away(format!("it did not answer within {} s", PATIENCE.as_secs()))),
    }
}

async fn look(client: &Client, after: &mut i64) -> Result<Option<News>, tokio_postgres::Error> {
    let row = client
        .query_one("SELECT coalesce(max(number), 0), coalesce(min(number), 0) FROM change", &[])
        .await?;
    let (newest, oldest): (i64, i64) = (row.get(0), row.get(1));
    if newest == *after {
        return Ok(None);
    }
    // Older changes were dropped, or the database is an older one.
    let lost = oldest > after.saturating_add(1) || newest < *after;
    let rows = client
        .query(
            "SELECT DISTINCT project FROM change WHERE number > $1 AND number <= $2 LIMIT $3",
            &[&*after, &newest, &i64::try_from(MOST_CHANGES).unwrap_or(i64::MAX)],
        )
        .await?;
    let mut news = News { all: lost || rows.len() >= MOST_CHANGES, ..News::default() };
    let mut notes = news.all;
    for row in rows {
        match row.get::<_, Option<String>>(0) {
            None => notes = true,
            Some(project) if project == "*" => news.all = true,
            Some(project) => news.projects.push(project),
        }
    }
    if notes {
        news.notes = Some(read_notes(client).await?);
    }
    *after = newest;
    Ok(Some(news))
}

async fn read_notes(client: &Client) -> Result<NotesRows, tokio_postgres::Error> {
    // One statement sees one state.
    let rows = client
        .query(
            "SELECT 0, coalesce(max(number), 0)::text, ''::bytea FROM change
             UNION ALL SELECT 1, id, head FROM snapshot
             UNION ALL SELECT 2, name, body FROM document",
            &[],
        )
        .await?;
    let mut notes = NotesRows::default();
    for row in rows {
        let (kind, name, body): (i32, String, Vec<u8>) = (row.get(0), row.get(1), row.get(2));
        match kind {
            0 => notes.as_of = name.parse().unwrap_or(0),
            1 => notes.starts.push((name, body)),
            _ => notes.documents.push((name, body)),
        }
    }
    Ok(notes)
}

impl Database {
    /// Forgets changes that everybody has seen.
    pub(in crate::store) fn prune_changes(&self) -> Result<(), Fault> {
        let newest_stays = "DELETE FROM change WHERE at < now() - $1::text::interval AND number < (SELECT max(number) FROM change)";
        self.query(newest_stays, || vec![Box::new(KEPT)]).map(drop)
    }
}
