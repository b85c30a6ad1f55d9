//! Whether anything changed in some folders, asked of the kernel (inotify) without a look at the disk.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// Tells of the first change of what lies in some folders, and of the folders themselves.
#[derive(Debug)]
pub(super) struct FolderWatch {
    kernel: OwnedFd,
    changed: AtomicBool,
}

impl FolderWatch {
    /// Watches a folder and some in it. What does not exist is watched for where it would appear. None where the kernel has no
    /// watch to spare, or there is no such place either.
    pub(super) fn of(folder: &Path, inner: &[&str]) -> Option<Self> {
        let comes = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let changes = comes
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE;
        let kernel = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let watch = |folder: &Path, of: WatchFlags| match inotify::add_watch(&kernel, folder, of) {
            Ok(_) => Some(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Some(false),
            Err(_) => None,
        };
        if watch(folder, changes)? {
            for name in inner {
                watch(&folder.join(name), changes)?;
            }
        } else if !watch(folder.parent()?, comes)? || watch(folder, changes)? {
            // Without a place nothing tells of it; and it may have come between the two looks.
            return None;
        }
        Some(Self { kernel, changed: AtomicBool::new(false) })
    }

    /// Whether nothing has changed since it was made. Does not block.
    pub(super) fn is_quiet(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut told =
            || !matches!(inotify::Reader::new(&self.kernel, &mut buffer).next(), Err(Errno::AGAIN));
        if !self.changed.load(Ordering::Relaxed) && told() {
            self.changed.store(true, Ordering::Relaxed);
        }
        !self.changed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_of_every_kind_of_change() {
        let dir = tempfile::tempdir().unwrap();
        let (file, sub) = (dir.path().join("a.toml"), dir.path().join("sub"));
        let changed_by = |change: &dyn Fn()| {
            let watch = FolderWatch::of(dir.path(), &["sub"]).unwrap();
            assert!(watch.is_quiet());
            change();
            !watch.is_quiet() && !watch.is_quiet()
        };
        assert!(changed_by(&|| fs_err::write(&file, "1").unwrap()));
        assert!(changed_by(&|| fs_err::write(&file, "2").unwrap()));
        assert!(changed_by(&|| fs_err::create_dir(&sub).unwrap()));
        assert!(changed_by(&|| fs_err::write(sub.join("b.toml"), "1").unwrap()));
        assert!(changed_by(&|| fs_err::rename(&file, sub.join("b.toml")).unwrap()));
        assert!(changed_by(&|| fs_err::remove_dir_all(&sub).unwrap()));
        assert!(FolderWatch::of(&sub.join("deeper"), &[]).is_none());
        let waits = FolderWatch::of(&sub, &[]).unwrap();
        fs_err::write(dir.path().join("a.toml"), "3").unwrap();
        assert!(!waits.is_quiet(), "something came beside it");
        let waits = FolderWatch::of(&sub, &[]).unwrap();
        fs_err::write(dir.path().join("a.toml"), "4").unwrap();
        assert!(waits.is_quiet());
        fs_err::create_dir(&sub).unwrap();
        assert!(!waits.is_quiet());
    }
}
