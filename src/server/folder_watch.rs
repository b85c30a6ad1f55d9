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
    /// Watches folders; those that do not exist are watched for by the one they would appear in. None where the kernel has no
    /// watch to spare, or no folder is there.
    pub(super) fn of(folders: &[&Path]) -> Option<Self> {
        let changes = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let mut watched = 0_usize;
        for folder in folders {
            match inotify::add_watch(&watch, *folder, changes) {
                Ok(_) => watched = watched.saturating_add(1),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => return None,
            }
        }
        (watched > 0).then_some(Self { kernel: watch, changed: AtomicBool::new(false) })
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
            let watch = FolderWatch::of(&[dir.path(), &sub]).unwrap();
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
        assert!(FolderWatch::of(&[&sub]).is_none());
    }
}
