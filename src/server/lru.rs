//! A bounded cache: what was used least recently goes first.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// A map whose entries weigh at most a given sum. Every call is short; no lock outlives it.
pub(crate) struct Lru<K, V> {
    limit: usize,
    inner: Mutex<Inner<K, V>>,
}

struct Inner<K, V> {
    entries: HashMap<K, Entry<V>>,
    weight: usize,
    clock: u64,
    counts: Counts,
}

/// How often something was looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// It was there.
    pub(super) hits: u64,
    /// It was not.
    pub(super) misses: u64,
}

struct Entry<V> {
    value: V,
    weight: usize,
    used: u64,
}

impl<K, V> fmt::Debug for Lru<K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Lru {{ limit: {} }}", self.limit)
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Lru<K, V> {
    /// An empty cache that holds entries up to that weight in all.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, inner: Mutex::new(Inner::default()) }
    }

    /// The value of that key.
    pub(crate) fn find(&self, key: &K) -> Option<V> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock = inner.clock.wrapping_add(1);
        let clock = inner.clock;
        let Some(entry) = inner.entries.get_mut(key) else {
            inner.counts.misses = inner.counts.misses.wrapping_add(1);
            return None;
        };
        entry.used = clock;
        let value = entry.value.clone();
        inner.counts.hits = inner.counts.hits.wrapping_add(1);
        Some(value)
    }

    /// How often it was looked into.
    pub(super) fn counts(&self) -> Counts {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).counts
    }

    /// Keeps a value, unless it alone is heavier than all that may be kept.
    pub(crate) fn keep(&self, key: K, value: V, weight: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = inner.entries.remove(&key) {
            inner.weight = inner.weight.saturating_sub(old.weight);
        }
        if weight > self.limit {
            return;
        }
        if inner.weight.saturating_add(weight) > self.limit {
            inner.shrink(self.limit.saturating_sub(weight).min(self.limit / 8 * 7));
        }
        inner.clock = inner.clock.wrapping_add(1);
        let used = inner.clock;
        inner.weight = inner.weight.saturating_add(weight);
        inner.entries.insert(key, Entry { value, weight, used });
    }
}

impl<K, V> Default for Inner<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), weight: 0, clock: 0, counts: Counts::default() }
    }
}

impl<K: Hash + Eq + Clone, V> Inner<K, V> {
    /// Drops the entries used least recently until no more than that weight is left. It goes an eighth below the limit, so
    /// that sorting is paid once for many entries.
    fn shrink(&mut self, to: usize) {
        let mut by_age: Vec<(u64, K)> =
            self.entries.iter().map(|(key, entry)| (entry.used, key.clone())).collect();
        by_age.sort_unstable_by_key(|(used, _)| *used);
        for (_, key) in by_age {
            if self.weight <= to {
                break;
            }
            if let Some(entry) = self.entries.remove(&key) {
                self.weight = self.weight.saturating_sub(entry.weight);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_used_last_within_its_limit() {
        let lru = Lru::new(80);
        for key in 0..10 {
            lru.keep(key, key, 10);
            assert_eq!(lru.find(&0), Some(0), "used all the time");
        }
        assert_eq!(lru.find(&9), Some(9));
        assert_eq!(lru.find(&1), None);
        assert!(lru.inner.lock().unwrap().weight <= 80);
        lru.keep(9, 99, 10);
        assert_eq!(lru.find(&9), Some(99));
        lru.keep(9, 100, 81);
        assert_eq!(lru.find(&9), None, "the old value is gone too");
        assert_eq!(lru.counts(), Counts { hits: 12, misses: 2 });
    }
}
