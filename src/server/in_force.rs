//! The policy in force: that of the site's folder as it is now.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use super::folder_watch::FolderWatch;
use crate::policy::Policy;

/// The most files of a policy folder that are watched.
const MOST_FILES: usize = 4096;

/// The folder of advisories in a policy folder.
const ADVISORIES: &str = "advisories";

/// How coarse a file system's clock may be. Files that changed less than this before they were read are read again, since a
/// second change could have left no mark.
const COARSE: Duration = Duration::from_millis(100);

/// How long the kernel's word that nothing changed in the folder is enough. It does not tell of what another machine changes in
/// a network's file system.
const TRUSTED: Duration = Duration::from_secs(1);

/// Reads a policy folder; an error is a sentence.
pub type Load = Box<dyn Fn(&Path) -> Result<Policy, String> + Send + Sync>;

/// Where the policy comes from.
pub struct PolicySource {
    folder: Option<Folder>,
    current: RwLock<Current>,
}

/// A policy folder, and how it is read.
struct Folder {
    dir: PathBuf,
    load: Load,
    /// Without it the built-in tables are the whole policy.
    optional: bool,
}

struct Current {
    in_force: Arc<InForce>,
    mark: Mark,
    /// When the folder was looked at last, and what tells of a change since then.
    looked: Instant,
    watch: Option<FolderWatch>,
}

/// A policy, and which one it is.
#[derive(Debug)]
pub(crate) struct InForce {
    /// The policy.
    pub(crate) policy: Arc<Policy>,
    /// Grows with every policy.
    pub(super) generation: u64,
    /// Why the folder, as it is now, cannot be used; the policy is then the last one that could.
    pub(super) broken: Option<String>,
}

impl InForce {
    /// A policy that is read once and never changes.
    pub(crate) fn first(policy: Policy) -> Self {
        Self { policy: Arc::new(policy), generation: 0, broken: None }
    }
}

/// What a policy folder looks like from outside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Mark {
    /// Whether the folder is there.
    there: bool,
    files: Vec<(PathBuf, u64, u64, i64, i64, i64)>,
    /// Whether a file had just changed when the folder was read.
    fresh: bool,
    /// Whether a name leads elsewhere, where the kernel would not tell of a change.
    linked: bool,
}

impl fmt::Debug for PolicySource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "PolicySource {{ folder: {:?} }}", self.folder.as_ref().map(|folder| &folder.dir))
    }
}

impl PolicySource {
    /// A policy that never changes.
    pub fn fixed(policy: Policy) -> Self {
        Self { folder: None, current: RwLock::new(Current::first(policy, Mark::default())) }
    }

    /// The policy of a folder, read anew whenever a file in it changes.
    pub fn folder(dir: PathBuf, load: Load) -> Result<Self, String> {
        let mark = Mark::of(&dir);
        let policy = load(&dir)?;
        Ok(Self::of(Folder { dir, load, optional: false }, Current::first(policy, mark)))
    }

    /// The policy of a folder that may come later, with a bundle, and go again: without it the built-in tables are in force.
    pub fn optional_folder(dir: PathBuf, load: Load) -> Result<Self, String> {
        let mark = Mark::of(&dir);
        let policy = if mark.there { load(&dir)? } else { Policy::builtin() };
        Ok(Self::of(Folder { dir, load, optional: true }, Current::first(policy, mark)))
    }

    /// The policy of a folder that should be there and is not yet, such as one on a disk that is mounted later. Until it comes
    /// the built-in tables are in force, and its absence is told.
    pub fn awaited_folder(dir: PathBuf, load: Load) -> Self {
        let missing = format!("{}: there is no such folder yet", dir.display());
        tracing::error!(
            error = missing,
            "the policy folder cannot be used: the built-in tables are in force"
        );
        let mut current = Current::first(Policy::builtin(), Mark::default());
        current.in_force =
            Arc::new(InForce { policy: Arc::new(Policy::builtin()), generation: 0, broken: Some(missing) });
        Self::of(Folder { dir, load, optional: false }, current)
    }

    /// The site's own folder; that of bundles is none, for the next import replaces it.
    pub(super) fn site_folder(&self) -> Option<&Path> {
        self.folder.as_ref().filter(|folder| !folder.optional).map(|folder| folder.dir.as_path())
    }

    fn of(folder: Folder, current: Current) -> Self {
        Self { folder: Some(folder), current: RwLock::new(current) }
    }

    /// The policy as of now, if the kernel's word is enough to tell it. Does not block.
    pub(super) fn unchanged(&self) -> Option<Arc<InForce>> {
        // Who writes may be reading the folder. Those that only look do not keep each other from it.
        let current = self.current.try_read().ok()?;
        if self.folder.is_some() {
            let watch = current.watch.as_ref()?;
            let quiet = !current.mark.fresh && current.looked.elapsed() < TRUSTED && watch.is_quiet();
            quiet.then_some(())?;
        }
        Some(Arc::clone(&current.in_force))
    }

    /// The policy as of now. Looks at the folder, so that an edit takes effect at the next request; an edit that cannot be
    /// used is logged once, and leaves the last good policy in force. Blocks.
    pub(super) fn in_force(&self) -> Arc<InForce> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Folder { dir, load, optional }) = &self.folder {
            current.looked = Instant::now();
            // It begins before the look: what changes after that is told.
            if !current.watch.as_ref().is_some_and(FolderWatch::is_quiet) {
                current.watch = FolderWatch::of(dir, &[ADVISORIES]);
            }
            let mark = Mark::of(dir);
            if mark.linked {
                current.watch = None;
            }
            if current.mark.fresh || mark.there != current.mark.there || mark.files != current.mark.files {
                let loaded = if *optional && !mark.there { Ok(Policy::builtin()) } else { load(dir) };
                current.change(loaded, mark);
            }
        }
        Arc::clone(&current.in_force)
    }
}

impl Current {
    fn first(policy: Policy, mark: Mark) -> Self {
        Self { in_force: Arc::new(InForce::first(policy)), mark, looked: Instant::now(), watch: None }
    }

    fn change(&mut self, loaded: Result<Policy, String>, mark: Mark) {
        let generation = self.in_force.generation.saturating_add(1);
        self.mark = mark;
        self.in_force = Arc::new(match loaded {
            Ok(policy) => {
                tracing::info!(generation, "the policy folder changed: its policy is in force");
                InForce { policy: Arc::new(policy), generation, broken: None }
            }
            Err(error) => {
                if self.in_force.broken.as_ref() != Some(&error) {
                    tracing::error!(
                        error,
                        "the policy folder cannot be used: the last good policy stays in force"
                    );
                }
                InForce { policy: Arc::clone(&self.in_force.policy), generation, broken: Some(error) }
            }
        });
    }
}

impl Mark {
    /// Never fails: a folder that cannot be read is a mark of its own, and reading it says why.
    fn of(dir: &Path) -> Self {
        let mut mark = Self::default();
        let now = SystemTime::now();
        mark.there = dir.is_dir();
        if !mark.there {
            return mark;
        }
        for folder in [dir.to_owned(), dir.join(ADVISORIES)] {
            mark.linked |= fs_err::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_symlink());
            let Ok(entries) = fs_err::read_dir(&folder) else { continue };
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                if mark.files.len() < MOST_FILES
                    && path.extension().is_some_and(|extension| extension == "toml")
                {
                    mark.linked |= path.is_symlink();
                    let Ok((line, changed)) = look(&path) else { continue };
                    mark.fresh |= now.duration_since(changed).is_ok_and(|age| age < COARSE);
                    mark.files.push(line);
                }
            }
        }
        mark.files.sort();
        mark
    }
}

type Line = (PathBuf, u64, u64, i64, i64, i64);

fn look(path: &Path) -> io::Result<(Line, SystemTime)> {
    let metadata = fs_err::metadata(path)?;
    let changed = metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
    let since_epoch = Duration::from_nanos(u64::try_from(changed).unwrap_or(0));
    let line =
        (path.to_owned(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec(), changed);
    Ok((line, SystemTime::UNIX_EPOCH.checked_add(since_epoch).unwrap_or(SystemTime::UNIX_EPOCH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_in_force_at_the_next_look_and_a_broken_one_never() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rules.toml");
        fs_err::write(&file, "one").unwrap();
        let load: Load = Box::new(|dir| match fs_err::read_to_string(dir.join("rules.toml")) {
            Ok(text) if text == "bad" => Err("rules.toml: bad".to_owned()),
            Ok(_) => Ok(Policy::default()),
            Err(error) => Err(error.to_string()),
        });
        let source = PolicySource::folder(dir.path().to_owned(), load).unwrap();
        let first = source.in_force().generation;
        assert!(source.unchanged().is_none_or(|unchanged| unchanged.generation == first));
        // The same length, and within the same tick of a coarse clock.
        fs_err::write(&file, "two").unwrap();
        assert!(source.unchanged().is_none(), "the kernel told of it");
        let second = source.in_force();
        assert!(second.generation > first && second.broken.is_none());
        fs_err::write(&file, "bad").unwrap();
        assert_eq!(source.in_force().broken.as_deref(), Some("rules.toml: bad"));
        fs_err::write(&file, "six").unwrap();
        assert_eq!(source.in_force().broken, None);
    }

    #[test]
    fn a_folder_that_comes_later_is_noticed_and_one_that_goes_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("policies");
        let load = || -> Load {
            Box::new(|dir| {
                let there = dir.join("rules.toml").exists();
                there.then(Policy::default).ok_or_else(|| "no rules.toml".to_owned())
            })
        };
        let optional = PolicySource::optional_folder(place.clone(), load()).unwrap();
        let awaited = PolicySource::awaited_folder(place.clone(), load());
        assert_eq!(optional.in_force().generation, 0);
        assert!(optional.unchanged().is_some_and(|policy| policy.generation == 0));
        assert!(awaited.in_force().broken.as_ref().unwrap().contains("policies"));
        fs_err::create_dir(&place).unwrap();
        fs_err::write(place.join("rules.toml"), "").unwrap();
        assert!(optional.unchanged().is_none());
        let come = [&optional, &awaited].map(PolicySource::in_force);
        assert!(come.iter().all(|policy| policy.generation > 0 && policy.broken.is_none()));
        fs_err::remove_dir_all(&place).unwrap();
        assert_eq!(optional.in_force().broken, None);
        assert!(optional.unchanged().is_some());
        assert!(awaited.in_force().broken.is_some(), "the last good policy stays, and that is told");
    }
}
