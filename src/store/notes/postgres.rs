//! Notes in PostgreSQL: rows, and transactions as turns.

use std::io::{self, Read};
use std::path::PathBuf;

use super::{Document, Log};
use crate::store::catalogue::Fault;
use crate::store::postgres::{Database, Session};
use crate::store::{Error, SnapshotId};

/// Size in bytes of the pieces of a snapshot.
const PIECE: u64 = 1 << 20;

/// How many lines of a log are kept, and read.
const MOST_LINES: i64 = 20_000;

/// How much of a snapshot is kept once more as its head, in bytes.
const HEAD: usize = 4096;

/// The notes of a database.
#[derive(Debug, Clone)]
pub(in crate::store) struct Postgres {
    database: Database,
}

impl Document {
    /// The key of its row.
    pub(in crate::store) fn row(self) -> String {
        match self {
            Self::Site => "site".to_owned(),
            Self::Tokens => "tokens".to_owned(),
            Self::Upstreams => "upstreams".to_owned(),
            Self::Channel(name) => format!("channels/{name}"),
        }
    }
}

impl Log {
    const fn row(self) -> &'static str {
        match self {
            Self::Incidents => "incidents",
            Self::Reports => "reports",
            Self::Audit => "audit",
        }
    }
}

impl Postgres {
    pub(in crate::store) const fn new(database: Database) -> Self {
        Self { database }
    }

    pub(super) fn name(&self, row: &str) -> PathBuf {
        PathBuf::from(format!("{}#{row}", self.database.name()))
    }

    pub(super) fn begin(&self) -> Result<Session, Error> {
        self.database.begin().map_err(|fault| self.database.error(fault))
    }

    pub(super) fn error(&self) -> impl Fn(Fault) -> Error + use<'_> {
        |fault| self.database.error(fault)
    }

    pub(super) fn read(&self, document: Document) -> Result<Option<Vec<u8>>, Error> {
        let rows = self
            .database
            .query("SELECT body FROM document WHERE name = $1", || vec![Box::new(document.row())])
            .map_err(self.error())?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    pub(super) fn lines(&self, log: Log) -> Result<Vec<String>, Error> {
        let rows = self
            .database
            .query("SELECT body FROM log WHERE name = $1 ORDER BY number", || vec![Box::new(log.row())])
            .map_err(self.error())?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    pub(super) fn snapshot_ids(&self) -> Result<Vec<SnapshotId>, Error> {
        let rows = self.database.query("SELECT id FROM snapshot ORDER BY id", Vec::new);
        let rows = rows.map_err(self.error())?;
        Ok(rows.iter().filter_map(|row| row.get::<_, &str>(0).parse().ok()).collect())
    }

    pub(super) fn open_snapshot(&self, id: &SnapshotId) -> Result<Option<Box<dyn Read>>, Error> {
        let key = id.to_string();
        let found = self
            .database
            .query("SELECT 1 FROM snapshot WHERE id = $1", || vec![Box::new(key.clone())])
            .map_err(self.error())?;
        let database = self.database.clone();
        Ok((!found.is_empty()).then(|| {
            Box::new(Pieces { database, id: key, next: 0, piece: io::Cursor::new(Vec::new()) })
                as Box<dyn Read>
        }))
    }
}

/// Reads the pieces of a snapshot one after the other.
struct Pieces {
    database: Database,
    id: String,
    next: i32,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.read(buffer)?;
        if count > 0 || buffer.is_empty() {
            return Ok(count);
        }
        let (id, next) = (&self.id, self.next);
        let rows = self
            .database
            .query("SELECT body FROM snapshot_piece WHERE id = $1 AND number = $2", || {
                vec![Box::new(id.clone()), Box::new(next)]
            })
            .map_err(|fault| io::Error::other(self.database.error(fault)))?;
        let Some(row) = rows.first() else { return Ok(0) };
        self.next = self.next.saturating_add(1);
        self.piece = io::Cursor::new(row.get(0));
        self.piece.read(buffer)
    }
}

pub(super) fn read(session: &Session, document: Document) -> Result<Option<Vec<u8>>, Fault> {
    let rows = session.query("SELECT body FROM document WHERE name = $1", vec![Box::new(document.row())])?;
    Ok(rows.first().map(|row| row.get(0)))
}

pub(super) fn write(session: &Session, document: Document, text: &[u8]) -> Result<(), Fault> {
    session.query(
        "INSERT INTO document (name, body) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET body = excluded.body",
        vec![Box::new(document.row()), Box::new(text.to_vec())],
    )?;
    Ok(())
}

pub(super) fn append(session: &Session, log: Log, line: String) -> Result<(), Fault> {
    session
        .query("INSERT INTO log (name, body) VALUES ($1, $2)", vec![Box::new(log.row()), Box::new(line)])?;
    session.query(
        "DELETE FROM log WHERE name = $1 AND number <= (
            SELECT number FROM log WHERE name = $1 ORDER BY number DESC OFFSET $2 LIMIT 1)",
        vec![Box::new(log.row()), Box::new(MOST_LINES)],
    )?;
    Ok(())
}

pub(super) fn lines(session: &Session, log: Log) -> Result<Vec<String>, Fault> {
    let rows =
        session.query("SELECT body FROM log WHERE name = $1 ORDER BY number", vec![Box::new(log.row())])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

pub(super) fn snapshot_starts(session: &Session) -> Result<Vec<(SnapshotId, Vec<u8>)>, Fault> {
    let rows = session.query("SELECT id, head FROM snapshot ORDER BY id", Vec::new())?;
    Ok(rows.iter().filter_map(|row| Some((row.get::<_, &str>(0).parse().ok()?, row.get(1)))).collect())
}

/// Takes in a snapshot a piece at a time.
pub(super) fn put_snapshot(
    session: &Session,
    id: &SnapshotId,
    mut spooled: impl Read,
) -> Result<(), Result<Fault, io::Error>> {
    let id = id.to_string();
    for number in 0_i32.. {
        let mut piece = Vec::new();
        (&mut spooled).take(PIECE).read_to_end(&mut piece).map_err(Err)?;
        if number == 0 {
            let head = piece.get(..HEAD).unwrap_or(&piece).to_vec();
            session
                .query(
                    "INSERT INTO snapshot (id, head) VALUES ($1, $2)",
                    vec![Box::new(id.clone()), Box::new(head)],
                )
                .map_err(Ok)?;
        }
        if piece.is_empty() {
            break;
        }
        session
            .query(
                "INSERT INTO snapshot_piece (id, number, body) VALUES ($1, $2, $3)",
                vec![Box::new(id.clone()), Box::new(number), Box::new(piece)],
            )
            .map_err(Ok)?;
    }
    Ok(())
}

pub(super) fn remove_snapshot(session: &Session, id: &SnapshotId) -> Result<(), Fault> {
    session.query("DELETE FROM snapshot WHERE id = $1", vec![Box::new(id.to_string())])?;
    Ok(())
}
