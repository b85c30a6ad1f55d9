//! The catalogue in PostgreSQL, which any number of processes share.

use tokio_postgres::Row;

use super::record::unseal;
use super::{Change, Fault, Records, Visit, bad_record};
use crate::store::postgres::{Database, Session, Value};

/// How many records are read or written by one statement.
const BATCH: usize = 2000;

/// The longest key, in bytes: PostgreSQL's index takes some 2700, and only names that upstreams choose come near.
const LONGEST_KEY: usize = 2000;

const RECORD: &str = "SELECT value FROM record WHERE key = $1";
const SEVERAL: &str = "SELECT key, value FROM record WHERE key = ANY($1::bytea[])";
const PAGE: &str = "SELECT key, value FROM record WHERE key > $1 AND key < $2 ORDER BY key LIMIT $3";

/// The records in a database.
#[derive(Debug, Clone)]
pub(in crate::store) struct Postgres {
    pub(in crate::store) database: Database,
}

impl Records for Postgres {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        payload(key, &self.database.query(RECORD, || vec![Box::new(key.to_vec())])?)
    }

    fn records(&self, keys: &[Vec<u8>], visit: &mut Visit<'_>) -> Result<(), Fault> {
        for some in keys.chunks(BATCH) {
            let rows = self.database.query(SEVERAL, || vec![Box::new(some.to_vec())])?;
            rows.iter().try_for_each(|row| show(row, visit).map(drop))?;
        }
        Ok(())
    }

    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Fault> {
        // Most scans are of one project, and fit one statement.
        let rows = self.database.query(PAGE, || page(prefix, prefix))?;
        if rows.len() < BATCH {
            return rows.iter().try_for_each(|row| show(row, visit).map(drop));
        }
        self.database.begin_frozen()?.scan(prefix, visit)
    }
}

impl Records for Session {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        payload(key, &self.query(RECORD, vec![Box::new(key.to_vec())])?)
    }

    /// As of one moment only where the transaction is frozen, or the records are locked.
    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Fault> {
        let mut after = prefix.to_vec();
        loop {
            let rows = self.query(PAGE, page(&after, prefix))?;
            for row in &rows {
                after = show(row, visit)?;
            }
            if rows.len() < BATCH {
                return Ok(());
            }
        }
    }
}

/// Writes records within a transaction. The values are sealed already.
pub(in crate::store) fn write(session: &Session, changes: &[Change]) -> Result<(), Fault> {
    if let Some((key, _)) = changes.iter().find(|(key, _)| key.len() > LONGEST_KEY) {
        return Err(Fault::Refused(format!(
            "a name of {} bytes is longer than what PostgreSQL's index takes ({LONGEST_KEY})",
            key.len()
        )));
    }
    for some in changes.chunks(BATCH) {
        let gone: Vec<Vec<u8>> =
            some.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.clone()).collect();
        if !gone.is_empty() {
            session.query("DELETE FROM record WHERE key = ANY($1::bytea[])", vec![Box::new(gone)])?;
        }
        // One statement writes no row twice: the last value counts.
        let last: std::collections::BTreeMap<&[u8], &[u8]> =
            some.iter().filter_map(|(key, value)| Some((key.as_slice(), value.as_deref()?))).collect();
        let (keys, values): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            last.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).unzip();
        session.query(
            "INSERT INTO record (key, value) SELECT * FROM unnest($1::bytea[], $2::bytea[])
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            vec![Box::new(keys), Box::new(values)],
        )?;
    }
    Ok(())
}

fn page(after: &[u8], prefix: &[u8]) -> Vec<Value> {
    // No prefix ends in the highest byte, so the next one differs from it in the last byte alone.
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    vec![Box::new(after.to_vec()), Box::new(end), Box::new(i64::try_from(BATCH).unwrap_or(i64::MAX))]
}

/// Shows a record without its checksum; yields its key.
fn show(row: &Row, visit: &mut Visit<'_>) -> Result<Vec<u8>, Fault> {
    let (key, sealed): (Vec<u8>, &[u8]) = (row.get(0), row.get(1));
    let (_, payload) = unseal(&key, sealed).ok_or_else(|| bad_record(&key))?;
    visit(&key, payload)?;
    Ok(key)
}

fn payload(key: &[u8], rows: &[Row]) -> Result<Option<Vec<u8>>, Fault> {
    let Some(row) = rows.first() else { return Ok(None) };
    unseal(key, row.get(0)).map(|(_, payload)| Some(payload.to_vec())).ok_or_else(|| bad_record(key))
}
