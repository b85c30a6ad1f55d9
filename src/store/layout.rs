//! The data folder: what lies where, whose it is, and how a file in it becomes durable.
//!
//! ```text
//! FORMAT                           version of all that follows
//! lock                             held (flock) by the one process that has the store open; says which
//! blobs/sha256/ab/<64 hex>.whl     the wheel, byte for byte as fetched
//! blobs/sha256/ab/<64 hex>.json    its sidecar: facts and provenance
//! blobs/sha256/ab/<64 hex>.metadata  its METADATA member
//! catalogue/                       sled; can be made anew from the sidecars
//! CLEAN                            what the catalogue held when it was last closed; absent while it is written to
//! spool/                           temporary files, swept at open; <64 hex>.whl is whole and waits for its set
//! reserve                          2 MiB of nothing, given up when the disk is too full to open the catalogue
//! snapshots/<id>.json              frozen lists of files, never changed
//! channels/<name>.json             which snapshot a channel names
//! site.json                        id of this store, and the newest bundles that it took in
//! arrived/<64 hex>.left            wheels of a set that a crash kept from being whole
//! incoming/<bundle>/               what an import has unpacked, before it is taken in
//! quarantine/                      damaged blobs that `verify --repair` moved aside
//! incidents.jsonl                  what upstreams and disks did wrong, one JSON object a line
//! reports.jsonl                    what devices reported, one JSON object a line
//! upstreams.json                   when each upstream was last reached
//! tokens.json                      access tokens, by the digests of their secrets
//! audit.jsonl                      who changed the store, one JSON object a line
//! ```

use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::{Error, SnapshotId, arrived, sidecar};
use crate::digest::Sha256;

/// Version of the data folder's layout that this program writes. Older ones are brought up to it (`migrate`).
pub(super) const FORMAT: u32 = 2;

/// What has to stay free on the disk, in bytes: sled refuses all writes after it has once run out of space,
/// and needs two of its segments (512 KiB each) and a snapshot to be opened anew. What the file `reserve` holds is a part of it.
pub(super) const RESERVE: u64 = 4 << 20;

/// The longest lock or FORMAT file that is read, in bytes.
const LONGEST_NOTE: u64 = 4096;

/// The paths of one data folder.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
    spool: PathBuf,
}

impl Layout {
    pub(super) fn catalogue(&self) -> PathBuf {
        self.dir.join("catalogue")
    }

    pub(super) fn clean(&self) -> PathBuf {
        self.dir.join("CLEAN")
    }

    pub(super) fn spool(&self) -> PathBuf {
        self.spool.clone()
    }

    pub(super) fn quarantine(&self) -> PathBuf {
        self.dir.join("quarantine")
    }

    pub(super) fn upstreams(&self) -> PathBuf {
        self.dir.join("upstreams.json")
    }

    pub(super) fn reports(&self) -> PathBuf {
        self.dir.join("reports.jsonl")
    }

    pub(super) fn incidents(&self) -> PathBuf {
        self.dir.join("incidents.jsonl")
    }

    pub(super) fn snapshots(&self) -> PathBuf {
        self.dir.join("snapshots")
    }

    pub(super) fn snapshot(&self, id: &SnapshotId) -> PathBuf {
        self.snapshots().join(format!("{id}.json"))
    }

    pub(super) fn arrived(&self) -> PathBuf {
        self.dir.join("arrived")
    }

    pub(super) fn incoming(&self) -> PathBuf {
        self.dir.join("incoming")
    }

    pub(super) fn site(&self) -> PathBuf {
        self.dir.join("site.json")
    }

    pub(super) fn audit(&self) -> PathBuf {
        self.dir.join("audit.jsonl")
    }

    pub(super) fn tokens(&self) -> PathBuf {
        self.dir.join("tokens.json")
    }

    pub(super) fn channels(&self) -> PathBuf {
        self.dir.join("channels")
    }

    pub(super) fn channel(&self, name: &str) -> PathBuf {
        self.channels().join(format!("{name}.json"))
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.dir.join("blobs/sha256")
    }

    pub(super) fn shard(&self, sha256: &Sha256) -> PathBuf {
        let [first, ..] = sha256.0;
        self.blobs().join(format!("{first:02x}"))
    }

    /// Makes the folder where it is missing, takes its lock, checks its format and sweeps its spool.
    ///
    /// Yields the format that it has, which may be an older one.
    pub(super) fn claim(dir: &Path) -> Result<(Self, fs::File, u32), Error> {
        make(dir)?;
        let layout = Self { dir: dir.to_owned(), spool: dir.join("spool") };
        let lock = layout.lock(false)?;
        let format = layout.check_format()?;
        layout.give_up_reserve();
        let spool = layout.spool();
        arrived::settle(&layout, &spool)?;
        for made in [&spool, &layout.blobs(), &layout.snapshots(), &layout.channels()] {
            fs::create_dir_all(made).map_err(Error::io(made))?;
        }
        sync_folder(&layout.dir.join("blobs"))?;
        sync_folder(&layout.dir)?;
        Ok((layout, lock, format))
    }

    /// Makes a folder that several processes may use at once, each with a spool of its own, and sweeps those of processes that
    /// have ended. The locks that come with it are to be held as long as it is used.
    pub(super) fn share(dir: &Path) -> Result<(Self, Vec<fs::File>), Error> {
        let spools = dir.join("spool");
        make(dir)?;
        let mut layout = Self { dir: dir.to_owned(), spool: spools.clone() };
        let shared = layout.lock(true)?;
        let one_at_a_time = lock_file(&dir.join("spool.lock"))?;
        one_at_a_time.file().lock().map_err(Error::io(dir))?;
        layout.check_format()?;
        fs::create_dir_all(&spools).map_err(Error::io(&spools))?;
        for entry in fs::read_dir(&spools).map_err(Error::io(&spools))? {
            let path = entry.map_err(Error::io(&spools))?.path();
            let ended =
                |path: &Path| lock_file(&path.join("lock")).is_ok_and(|file| file.file().try_lock().is_ok());
            if path.is_dir() && ended(&path) {
                arrived::settle(&layout, &path)?;
                fs::remove_dir_all(&path).map_err(Error::io(&path))?;
            }
        }
        let own = tempfile::Builder::new().prefix("process-").tempdir_in(&spools);
        layout.spool = own.map_err(Error::io(&spools))?.keep();
        let used = lock_file(&layout.spool.join("lock"))?;
        used.file().lock().map_err(Error::io(&layout.spool))?;
        let blobs = layout.blobs();
        fs::create_dir_all(&blobs).map_err(Error::io(&blobs))?;
        sync_folder(&layout.dir)?;
        Ok((layout, vec![shared, used]))
    }

    /// Takes the lock, or says who has it. The kernel frees it when the process ends, however that happens.
    fn lock(&self, shared: bool) -> Result<fs::File, Error> {
        let path = self.dir.join("lock");
        let mut file = fs::OpenOptions::new()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::io(&path))?;
        match if shared { file.file().try_lock_shared() } else { file.file().try_lock() } {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut note = String::new();
                let _unreadable = (&mut file).take(LONGEST_NOTE).read_to_string(&mut note);
                let mut lines = note.lines();
                let pid = lines.next().and_then(|line| line.parse().ok());
                let command = lines.next().filter(|line| !line.is_empty()).map(str::to_owned);
                return Err(Error::InUse { dir: self.dir.clone(), pid, command });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(Error::Io { path, source }),
        }
        // The note is for people alone, so a full disk does not matter here.
        let verb = std::env::args().find(|word| VERBS.contains(&word.as_str())).unwrap_or_default();
        let note = format!("{}\njetwheel {verb}\n", std::process::id());
        let _unsaid = file
            .rewind()
            .and_then(|()| file.write_all(note.as_bytes()))
            .and_then(|()| file.set_len(note.len() as u64));
        Ok(file)
    }

    /// Reads FORMAT, or writes it to a folder that holds no store yet.
    fn check_format(&self) -> Result<u32, Error> {
        let path = self.dir.join("FORMAT");
        let mut text = String::new();
        match fs::File::open(&path) {
            Ok(file) => {
                file.take(LONGEST_NOTE).read_to_string(&mut text).map_err(Error::io(&path))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let ours = [self.dir.join("blobs"), self.catalogue(), self.spool()];
                if let Some(stranger) = ours.iter().find(|path| path.exists()) {
                    let found = format!(
                        "is missing, but {} is there; in a folder that is a jetwheel store it holds the line {FORMAT}",
                        stranger.display()
                    );
                    return Err(Error::Format { path, found });
                }
                self.set_format(FORMAT)?;
                return Ok(FORMAT);
            }
            Err(error) => return Err(Error::io(&path)(error)),
        }
        match text.trim().parse() {
            Ok(format @ 1..=FORMAT) => Ok(format),
            Ok(other) => {
                let found = format!(
                    "is {other}; this program reads formats 1 to {FORMAT}: a newer jetwheel wrote this store, and can read it"
                );
                Err(Error::Format { path, found })
            }
            Err::<u32, _>(_) => {
                let start: String = text.chars().take(40).collect();
                Err(Error::Format { path, found: format!("holds {start:?}, expected the line {FORMAT}") })
            }
        }
    }

    /// Notes which format the store has: durable when this returns.
    pub(super) fn set_format(&self, format: u32) -> Result<(), Error> {
        write_durably(&self.dir, &self.dir.join("FORMAT"), format!("{format}\n").as_bytes())
    }

    /// Fails where the disk is so full that a write of that many bytes could break the catalogue.
    pub(super) fn check_space(&self, bytes: u64) -> Result<(), Error> {
        let free = self.free()?;
        let needed = RESERVE.saturating_sub(self.reserved()).saturating_add(bytes);
        if free < needed {
            return Err(Error::Full { dir: self.dir.clone(), free, needed });
        }
        Ok(())
    }

    /// Free space on the disk, in bytes.
    pub(super) fn free(&self) -> Result<u64, Error> {
        let disk = rustix::fs::statvfs(&self.dir).map_err(|error| Error::io(&self.dir)(error.into()))?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// Makes the data folder where it is missing; one that is there keeps its mode.
fn make(dir: &Path) -> Result<(), Error> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(Error::io(parent))?;
    }
    match std::fs::DirBuilder::new().mode(FOLDER).create(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io(dir)(error)),
    }
    let mode = fs::metadata(dir).map_err(Error::io(dir))?.permissions().mode();
    if mode & EVERYBODY_WRITES != 0 {
        tracing::warn!(data = %dir.display(), "everybody on this machine can change the data folder: chmod o-w");
    }
    Ok(())
}

/// A file that is there for its lock alone.
fn lock_file(path: &Path) -> Result<fs::File, Error> {
    let mut options = fs::OpenOptions::new();
    options.create(true).write(true).truncate(false).open(path).map_err(Error::io(path))
}

/// Verbs that open the store, for the note in the lock file.
const VERBS: [&str; 17] = [
    "migrate",
    "work",
    "add",
    "sync",
    "serve",
    "explain",
    "resolve",
    "verify",
    "rebuild",
    "quickstart",
    "snapshot",
    "export",
    "import",
    "inventory",
    "gc",
    "token",
    "audit",
];

/// Reads a file whole, up to the longest that the store writes.
pub(super) fn read_bounded(path: &Path) -> Result<Vec<u8>, Error> {
    let file = fs::File::open(path).map_err(Error::io(path))?;
    let mut bytes = Vec::new();
    file.take(sidecar::LONGEST + 1).read_to_end(&mut bytes).map_err(Error::io(path))?;
    if bytes.len() as u64 > sidecar::LONGEST {
        let found = format!("is longer than {} bytes", sidecar::LONGEST);
        return Err(Error::Damaged { path: path.to_owned(), found });
    }
    Ok(bytes)
}

/// Writes a file so that it is there whole, or not at all, whenever the power goes.
///
/// The temporary file lies in `folder`, which must be in the same file system.
pub(super) fn write_durably(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_durably_as(folder, path, bytes, READABLE)
}

/// Mode of the data folder: its group may read what a backup may.
const FOLDER: u32 = 0o750;

/// That others than the owner and the group may write.
const EVERYBODY_WRITES: u32 = 0o002;

/// Mode of files that a backup may read.
pub(super) const READABLE: u32 = 0o644;

/// Mode of files that are for their owner alone.
pub(super) const PRIVATE: u32 = 0o600;

/// As [`write_durably`], with a mode.
pub(super) fn write_durably_as(folder: &Path, path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let mut file = tempfile::Builder::new().prefix("new-").tempfile_in(folder).map_err(Error::io(folder))?;
    file.write_all(bytes).map_err(Error::io(path))?;
    persist_as(file, path, mode)?;
    sync_folder(path.parent().unwrap_or(folder))
}

/// As [`write_durably`], but the name itself is durable only after a [`sync_folder`].
pub(super) fn write_whole(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = tempfile::Builder::new().prefix("new-").tempfile_in(folder).map_err(Error::io(folder))?;
    file.write_all(bytes).map_err(Error::io(path))?;
    persist(file, path)
}

/// Makes a temporary file durable under its name; the name is durable only after a [`sync_folder`].
pub(super) fn persist(file: tempfile::NamedTempFile, path: &Path) -> Result<(), Error> {
    // Temporary files are for their owner alone; what is kept may be read by a backup.
    persist_as(file, path, READABLE)
}

fn persist_as(file: tempfile::NamedTempFile, path: &Path, mode: u32) -> Result<(), Error> {
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(mode))
        .and_then(|()| file.as_file().sync_all())
        .map_err(Error::io(path))?;
    file.persist(path).map_err(|error| Error::io(path)(error.error))?;
    Ok(())
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder))
}
