//! Which devices ask the mirror, since it was started.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// When each device's pages or files were asked for last. It has known devices alone, so that no client can make it grow.
#[derive(Debug, Default)]
pub(super) struct Used(Mutex<BTreeMap<String, Timestamp>>);

impl Used {
    /// Notes that something of a device is asked for, by the id that the policy calls it.
    pub(super) fn note(&self, device: &str) {
        let now = Timestamp::now();
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match used.get_mut(device) {
            Some(last) => *last = now,
            None => drop(used.insert(device.to_owned(), now)),
        }
    }

    /// All that were asked for, and when that was last.
    pub(super) fn all(&self) -> BTreeMap<String, Timestamp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
