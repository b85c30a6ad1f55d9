//! Opening a store: an embedded one, or one that several processes share.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use fs_err as fs;

use super::blobs::{self, Blobs, S3};
use super::bridge::Bridge;
use super::catalogue::{self, Catalogue};
use super::layout::Layout;
use super::notes::{self, Notes};
use super::postgres::{Database, Postgres};
use super::revision::Revisions;
use super::snapshot::Index;
use super::write::Writer;
use super::{Error, Places, Store, arrived, recover, tokens};

/// How many snapshots are kept unless the configuration says otherwise.
pub const KEEP_SNAPSHOTS: usize = 50;

/// Where a store keeps what is not in its folder.
#[derive(Debug, Clone, Default)]
pub struct Backends {
    /// The database of the catalogue; none for an embedded one, in the folder.
    pub catalogue: Option<Postgres>,
    /// The bucket of the blobs; none for files in the folder.
    pub blobs: Option<S3>,
    /// How long calls wait for what is away, before they fail.
    pub patience: Duration,
}

impl Backends {
    fn blobs(
        &self,
        layout: &Layout,
        bridge: impl FnOnce() -> Result<Arc<Bridge>, Error>,
    ) -> Result<Blobs, Error> {
        Ok(match &self.blobs {
            None => Blobs::Disk(blobs::Disk::new(layout.clone())),
            Some(address) => {
                Blobs::S3(blobs::Bucket::new(address, bridge()?, layout.spool(), self.patience)?)
            }
        })
    }
}

impl Store {
    /// Opens the store in a folder, which is made where it is missing.
    ///
    /// The time that it takes grows with the number of known files, not with their size: about 5 µs for each.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        Self::open_with(dir, &Backends::default())
    }

    /// Opens the store of a folder and its backends. With a database, others may have it open at the same time.
    pub fn open_with(dir: &Path, backends: &Backends) -> Result<Self, Error> {
        match &backends.catalogue {
            None => Self::open_embedded(dir, backends),
            Some(address) => Self::open_shared(dir, backends, address),
        }
    }

    fn open_shared(dir: &Path, backends: &Backends, address: &Postgres) -> Result<Self, Error> {
        let (layout, locks) = Layout::share(dir)?;
        arrived::expire(&layout)?;
        let bridge = Arc::new(Bridge::new().map_err(Error::io(dir))?);
        let blobs = backends.blobs(&layout, || Ok(Arc::clone(&bridge)))?;
        let database = Database::open(address, Arc::clone(&bridge), backends.patience)?;
        let notes = Notes::new(notes::Backend::Postgres(notes::Postgres::new(database.clone())));
        let newest = database.newest_change().map_err(|fault| database.error(fault))?;
        let index = Index::read(&notes.snapshots_turn()?)?;
        let shared = catalogue::Postgres { database: database.clone() };
        let places = Places { layout, blobs };
        let catalogue = Catalogue::Postgres(shared.clone());
        let store = Self::assemble((places, notes, catalogue), index, backends, locks);
        store.watch(&shared, newest);
        store.settle_pending(&shared)?;
        Ok(store)
    }

    fn open_embedded(dir: &Path, backends: &Backends) -> Result<Self, Error> {
        let (layout, lock, format) = Layout::claim(dir)?;
        arrived::expire(&layout)?;
        let bridge = || Bridge::new().map(Arc::new).map_err(Error::io(dir));
        let blobs = backends.blobs(&layout, bridge)?;
        let notes = Notes::new(notes::Backend::Disk(notes::Disk::new(layout.clone())));
        let places = Places { layout, blobs };
        let (catalogue, recovery) = recover::open(&places)?;
        let index = Index::read(&notes.snapshots_turn()?)?;
        let store = Self::assemble((places, notes, catalogue), index, backends, vec![lock]);
        store.note_recovery(recovery);
        store.migrate(format)?;
        store.places.layout.hold_reserve();
        Ok(store)
    }

    fn assemble(
        (places, notes, catalogue): (Places, Notes, Catalogue),
        index: Index,
        backends: &Backends,
        locks: Vec<fs::File>,
    ) -> Self {
        let patience_ms = u64::try_from(backends.patience.as_millis()).unwrap_or(u64::MAX);
        Self {
            database: catalogue.postgres().map(|postgres| postgres.database.clone()),
            catalogue: RwLock::new(Some(catalogue)),
            writer: Mutex::new(Writer::new(&places.layout)),
            revisions: Arc::new(Revisions::starting_now()),
            recovery: Mutex::new(None),
            snapshots: Arc::new(Mutex::new(index)),
            intake: RwLock::new(()),
            keep_snapshots: AtomicUsize::new(KEEP_SNAPSHOTS),
            patience_ms: AtomicU64::new(patience_ms),
            setting_aside: Mutex::new(()),
            tokens: Arc::new(tokens::TokenShelf::default()),
            activity: super::activity::Activity::default(),
            places,
            notes,
            _locks: locks,
        }
    }

    /// Sets how long calls wait for what is away, before they fail.
    pub fn set_patience(&self, patience: Duration) {
        let ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience_ms.store(ms, std::sync::atomic::Ordering::Relaxed);
        self.places.blobs.set_patience(patience);
        if let Some(database) = &self.database {
            database.set_patience(patience);
        }
    }

    /// Whether several processes may have this store open.
    pub const fn is_shared(&self) -> bool {
        self.database.is_some()
    }
}
