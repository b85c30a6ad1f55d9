//! Files that were opened a moment ago and are still as they were, so that a range of one costs no call that can block.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::digest::Sha256;

/// The most files that are kept open: a fleet's update asks for few at a time, and file descriptors are scarce.
const MOST: usize = 64;

/// How long a file that nobody asks for is kept open. One that was removed from the store takes space on the disk until then.
const KEPT: Duration = Duration::from_secs(5);

/// Open blobs.
#[derive(Debug, Default)]
pub(super) struct Opened(Mutex<HashMap<Sha256, Entry>>);

#[derive(Debug)]
struct Entry {
    file: Arc<File>,
    used: Instant,
}

impl Opened {
    /// The open file of that digest, if it has that size and is still in the store. What the kernel is asked, it knows of any
    /// open file without the disk.
    pub(super) fn find(&self, sha256: &Sha256, size: u64) -> Option<Arc<File>> {
        let file = {
            let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = entries.get_mut(sha256)?;
            entry.used = Instant::now();
            Arc::clone(&entry.file)
        };
        let sound = file.metadata().is_ok_and(|metadata| metadata.len() == size && metadata.nlink() > 0);
        if sound {
            return Some(file);
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(sha256);
        None
    }

    /// Keeps a file open, unless as many as may be are.
    pub(super) fn keep(&self, sha256: Sha256, file: &Arc<File>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() < MOST || entries.contains_key(&sha256) {
            entries.insert(sha256, Entry { file: Arc::clone(file), used: Instant::now() });
        }
    }

    /// Takes out the files that nobody asked for lately. Closing them may block: that is the caller's part.
    fn idle(&self, kept: Duration) -> Vec<Arc<File>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = entries.extract_if(|_, entry| entry.used.elapsed() > kept);
        idle.map(|(_, entry)| entry.file).collect()
    }

    /// Closes what nobody asks for, for as long as it is polled.
    pub(super) async fn close_idle(&self) {
        loop {
            tokio::time::sleep(KEPT).await;
            let idle = self.idle(KEPT);
            if !idle.is_empty() {
                tokio::task::spawn_blocking(move || drop(idle));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changed_or_is_gone_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let (path, sha256) = (dir.path().join("blob"), Sha256::of(b"blob"));
        let opened = Opened::default();
        let keep = || {
            fs_err::write(&path, b"blob").unwrap();
            opened.keep(sha256, &Arc::new(fs_err::File::open(&path).unwrap().into_file()));
        };
        keep();
        assert!(opened.find(&sha256, 4).is_some() && opened.find(&Sha256::of(b"other"), 4).is_none());
        fs_err::write(&path, b"cut").unwrap();
        assert!(opened.find(&sha256, 4).is_none());
        keep();
        fs_err::remove_file(&path).unwrap();
        assert!(opened.find(&sha256, 4).is_none());
        keep();
        assert!(opened.idle(KEPT).is_empty());
        assert_eq!(opened.idle(Duration::ZERO).len(), 1);
        assert!(opened.find(&sha256, 4).is_none());
    }
}
