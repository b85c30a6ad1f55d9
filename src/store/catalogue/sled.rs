//! The catalogue in sled, which the data folder of one process holds.
//!
//! It holds nothing that the sidecar files do not hold, so it is thrown away at any doubt. sled 0.34 gives reasons
//! for doubt: damaged files make it panic, lose records in silence, or read flipped bytes. Hence
//!
//! - every call into sled stands inside `catch_unwind`, and a panic counts as damage;
//! - every record carries a checksum, and one record the count and the fingerprint of all others;
//! - after any fault it is never dropped but leaked: after a full disk its `drop` waits for a flush that cannot come.
//!   It also keeps its lock on its file then, so that the file has to be copied to be opened anew;
//! - one logical change is one `apply_batch`, then `flush`, and then `sync_data` on an own handle of sled's file,
//!   for its `flush` does not reach the disk.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use super::record::{SUM, Sum, seal_json, unseal};
use super::{Change, Fault, Records, Visit, bad_record};
use fs_err as fs;

/// Memory for sled's page cache, in bytes. Listings are read front to back, so more of it buys little.
const CACHE_BYTES: u64 = 4 << 20;

/// The record that says who wrote the rest. It changes whenever records of one version would be misread by another.
const SCHEMA: &[u8] = b"jetwheel catalogue 1";

/// The key of [`SCHEMA`].
const SCHEMA_KEY: &[u8] = b"\0schema";

/// The open catalogue.
pub(in crate::store) struct Sled {
    db: Option<sled::Db>,
    /// An own handle of sled's one file, for `sync_data`.
    file: fs::File,
    sum: Mutex<Sum>,
    /// Whether sled, or what it gave back, was at fault.
    broken: AtomicBool,
}

impl std::fmt::Debug for Sled {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Sled")
    }
}

/// How long sled's lock is waited for. No other process has it, for the store's own lock is held; but the threads of a catalogue
/// that this process has closed let go of it a little later.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is tried.
const LOCK_STEP: Duration = Duration::from_millis(10);

/// Whether sled could not lock its file.
fn is_lock(error: &std::io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

impl Sled {
    /// Opens the catalogue in a folder, or makes an empty one there, and checks every record.
    ///
    /// `visit` sees each key and value, without its checksum, in key order.
    pub(in crate::store) fn open(folder: &Path, mut visit: impl FnMut(&[u8], &[u8])) -> Result<Self, Fault> {
        let config = sled::Config::new()
            .path(folder)
            .cache_capacity(CACHE_BYTES)
            // All writes are flushed one by one; a flushing thread would only hold the processor awake.
            .flush_every_ms(None);
        let began = Instant::now();
        let db = guard(|| {
            loop {
                match config.open() {
                    Err(sled::Error::Io(error)) if is_lock(&error) && began.elapsed() < LOCK_PATIENCE => {
                        std::thread::sleep(LOCK_STEP);
                    }
                    opened => return opened.map_err(Fault::from),
                }
            }
        })?;
        let file = fs::OpenOptions::new().write(true).open(folder.join("db")).map_err(Fault::Io)?;
        let catalogue =
            Self { db: Some(db), file, sum: Mutex::new(Sum::default()), broken: AtomicBool::new(false) };
        if catalogue.guard(|| Ok(catalogue.db().is_empty()))? {
            let (key, value) = (SUM, seal_json(SUM, &Sum::default()));
            let mut batch = sled::Batch::default();
            batch.insert(SCHEMA_KEY, SCHEMA);
            batch.insert(key, value);
            catalogue.commit(batch)?;
            return Ok(catalogue);
        }
        let (mut stated, mut schema, mut sum) = (None, false, Sum::default());
        catalogue.each(b"", |key, sealed| {
            if key == SCHEMA_KEY {
                schema = sealed == SCHEMA;
                return Ok(());
            }
            let (check, payload) = unseal(key, sealed).ok_or_else(|| bad_record(key))?;
            if key == SUM {
                stated = serde_json::from_slice::<Sum>(payload).ok();
            } else {
                sum.add(check);
                visit(key, payload);
            }
            Ok(())
        })?;
        if !schema {
            return Err(Fault::Damaged("its schema record is missing or of another version".to_owned()));
        }
        if stated != Some(sum) {
            let records = stated.map_or(0, |stated| stated.records);
            return Err(Fault::Damaged(format!(
                "it states {records} records with one fingerprint, and has {} with another",
                sum.records
            )));
        }
        *catalogue.sum.lock().unwrap_or_else(PoisonError::into_inner) = sum;
        Ok(catalogue)
    }

    /// Count and fingerprint of all records.
    pub(in crate::store) fn sum(&self) -> Sum {
        *self.sum.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one logical change: durable when this returns, and never there in part.
    ///
    /// The values are sealed already. Callers take turns: the sum is read and written here.
    pub(in crate::store) fn apply(&self, changes: Vec<Change>) -> Result<(), Fault> {
        let mut sum = self.sum();
        let mut batch = sled::Batch::default();
        for (key, value) in changes {
            if let Some(old) = self.guard(|| self.db().get(&key).map_err(Fault::from))? {
                let (check, _) = unseal(&key, &old).ok_or_else(|| bad_record(&key))?;
                sum.remove(check);
            }
            if let Some(value) = value {
                let (check, _) = unseal(&key, &value).ok_or_else(|| bad_record(&key))?;
                sum.add(check);
                batch.insert(key, value);
            } else {
                batch.remove(key);
            }
        }
        batch.insert(SUM, seal_json(SUM, &sum));
        self.commit(batch)?;
        *self.sum.lock().unwrap_or_else(PoisonError::into_inner) = sum;
        Ok(())
    }

    fn commit(&self, batch: sled::Batch) -> Result<(), Fault> {
        self.guard(|| {
            self.db().apply_batch(batch)?;
            self.db().flush()?;
            self.file.file().sync_data().map_err(Fault::Io)
        })
    }

    fn each(
        &self,
        prefix: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.guard(|| {
            for record in self.db().scan_prefix(prefix) {
                let (key, sealed) = record?;
                visit(&key, &sealed)?;
            }
            Ok(())
        })
    }

    /// As [`guard`], and remembers faults.
    fn guard<T>(&self, call: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let result = guard(call);
        if result.is_err() {
            self.broken.store(true, Ordering::Relaxed);
        }
        result
    }

    fn db(&self) -> &sled::Db {
        self.db.as_ref().expect("it is only taken when the catalogue is dropped")
    }
}

impl Records for Sled {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let Some(sealed) = self.guard(|| self.db().get(key).map_err(Fault::from))? else { return Ok(None) };
        unseal(key, &sealed).map(|(_, payload)| Some(payload.to_vec())).ok_or_else(|| bad_record(key))
    }

    fn scan(&self, prefix: &[u8], visit: &mut Visit<'_>) -> Result<(), Fault> {
        self.each(prefix, |key, sealed| {
            let (_, payload) = unseal(key, sealed).ok_or_else(|| bad_record(key))?;
            visit(key, payload)
        })
    }
}

impl Drop for Sled {
    fn drop(&mut self) {
        let db = self.db.take();
        if self.broken.load(Ordering::Relaxed) {
            std::mem::forget(db);
            return;
        }
        let _it_was_damaged = guard(|| {
            drop(db);
            Ok(())
        });
        // Threads of sled still write for a moment; what comes next should find the folder at rest. Closing our own handle
        // gives the lock back.
        let began = Instant::now();
        while self.file.file().try_lock().is_err() && began.elapsed() < LOCK_PATIENCE {
            std::thread::sleep(LOCK_STEP);
        }
    }
}

impl From<sled::Error> for Fault {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => Self::Io(error),
            // A damaged configuration file shows itself as an option that does not fit.
            sled::Error::Corruption { .. } | sled::Error::Unsupported(_) | sled::Error::ReportableBug(_) => {
                Self::Damaged(error.to_string())
            }
            sled::Error::CollectionNotFound(_) => Self::Refused(error.to_string()),
        }
    }
}

thread_local! {
    /// Whether a panic of this thread is about to be caught and told in other words.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls into sled; a panic there is damage, and is not printed as a bug of this program.
fn guard<T>(call: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                loud(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(outer);
    result.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a word");
        Err(Fault::Damaged(format!("sled panicked: {}", text.chars().take(200).collect::<String>())))
    })
}
