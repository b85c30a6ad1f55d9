//! The tables, and how older ones become those of this version.

use tokio_postgres::Client;

use super::fault;
use crate::store::catalogue::Fault;

/// The steps from an empty database; each is applied once, in one transaction, and never edited.
const STEPS: [&str; 2] = [include_str!("schema/0001.sql"), include_str!("schema/0002.sql")];

/// The advisory lock of whoever changes the tables: `jetwheel` in ASCII.
const LOCK: i64 = 0x6a65_7477_6865_656c;

/// Brings the tables up to date. Any number of processes may do so at once; one does it, the others wait.
pub(super) async fn migrate(client: &mut Client) -> Result<(), Fault> {
    let known = i32::try_from(STEPS.len()).unwrap_or(i32::MAX);
    let present: Option<i32> =
        match client.query_opt("SELECT max(version) FROM jetwheel_schema HAVING count(*) > 0", &[]).await {
            Ok(row) => row.map(|row| row.get(0)),
            // The table is not there yet.
            Err(error) if error.code() == Some(&tokio_postgres::error::SqlState::UNDEFINED_TABLE) => None,
            Err(error) => return Err(fault(&error)),
        };
    if present == Some(known) {
        return Ok(());
    }
    let transaction = client.transaction().await.map_err(|error| fault(&error))?;
    let work = async {
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        transaction
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS jetwheel_schema (version integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())",
            )
            .await?;
        let row = transaction.query_one("SELECT coalesce(max(version), 0) FROM jetwheel_schema", &[]).await?;
        let present: i32 = row.get(0);
        for (step, version) in STEPS.iter().zip(1_i32..) {
            if version > present {
                transaction.batch_execute(step).await?;
                transaction.execute("INSERT INTO jetwheel_schema (version) VALUES ($1)", &[&version]).await?;
                tracing::info!(version, "the database has the tables of this version now");
            }
        }
        Ok(present)
    };
    let present = work.await.map_err(|error| fault(&error))?;
    if present > known {
        return Err(Fault::Refused(format!(
            "its tables are of version {present}, and this program knows {known}: use the jetwheel that made them, or a newer one"
        )));
    }
    transaction.commit().await.map_err(|error| fault(&error))
}
