//! Brings a store of an older format up to date, in place.
//!
//! | format | what is new in it |
//! |---|---|
//! | 1 | blobs, sidecar files, catalogue |
//! | 2 | what is held is in a snapshot, and `candidate` names one: there is always a state to go back to |
//!
//! Each step may be cut short at any moment and is begun anew by the next open; FORMAT is written when it is done. A step
//! only adds, so that nothing of the store is lost where it fails.

use super::layout::FORMAT;
use super::{Error, NewSnapshot, Store};

impl Store {
    /// Brings the store from that format to today's. On a full disk it stays as it is until there is space: it can be served.
    pub(super) fn migrate(&self, from: u32) -> Result<(), Error> {
        for format in from..FORMAT {
            let outcome = match format {
                1 => self.freeze_what_was_there(),
                _ => Ok(()),
            };
            match outcome.and_then(|()| self.places.layout.set_format(format.saturating_add(1))) {
                Ok(()) => tracing::info!(from = format, "the store was brought up to date"),
                Err(error) if error.is_full() => {
                    tracing::warn!("the store stays in format {format} until there is space: {error}");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn freeze_what_was_there(&self) -> Result<(), Error> {
        if self.snapshots().is_empty() {
            let new = NewSnapshot { reason: "upgrade".to_owned(), ..NewSnapshot::default() };
            self.take_snapshot(&new)?;
        }
        match self.left_behind("candidate") {
            Some(id) if self.find_snapshot("candidate").is_none() => self.promote("candidate", &id),
            _ => Ok(()),
        }
    }
}
