//! Who changed the store, when, and how: `audit.jsonl`, fsynced. Nothing of it is ever removed.

use serde::{Deserialize, Serialize};

use super::notes::Log;
use super::{Error, Store};

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When, RFC 3339 in UTC.
    pub time: String,
    /// Who: `token:NAME`, or `user:NAME` for a command.
    pub who: String,
    /// The verb: `add`, `upload`, `token create`.
    pub action: String,
    /// What was changed.
    pub what: serde_json::Value,
}

impl AuditEntry {
    /// A change of now.
    pub fn now(who: &str, action: &str, what: serde_json::Value) -> Self {
        let time = jiff::Timestamp::now().to_string();
        Self { time, who: who.to_owned(), action: action.to_owned(), what }
    }
}

impl Store {
    /// Notes a change: durable when this returns.
    pub fn put_audit(&self, entry: &AuditEntry) -> Result<(), Error> {
        let turn = self.notes.turn()?;
        turn.append(Log::Audit, entry)?;
        turn.finish().map(drop)
    }

    /// The changes of the newest log, oldest first.
    pub fn audit(&self) -> Result<Vec<AuditEntry>, Error> {
        self.notes.turn()?.lines(Log::Audit)
    }
}
