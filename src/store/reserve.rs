//! `reserve`: a file that holds space on the disk for the moment when there is no other.
//!
//! sled may have to begin a segment (512 KiB) when it is opened. On a disk without a free byte that fails, and with it every
//! command, even those that would free space. So the file is given up before such an open, and made again from what is free
//! as soon as there is something.

use fs_err as fs;

use super::layout::Layout;

/// Size of the file in bytes: two of sled's segments for an open, and as much again for what the command writes.
pub(super) const RESERVED: u64 = 2 << 20;

/// What is left to others on a full disk, in bytes: enough to move a channel back after a bad release.
const SPARED: u64 = 256 << 10;

/// The smallest piece that is worth holding, in bytes.
const SMALLEST: u64 = 64 << 10;

impl Layout {
    fn reserve(&self) -> std::path::PathBuf {
        self.dir.join("reserve")
    }

    /// How many bytes the file holds.
    pub(super) fn reserved(&self) -> u64 {
        fs::symlink_metadata(self.reserve()).map_or(0, |found| found.len().min(RESERVED))
    }

    /// Gives the space up where less than that is free.
    pub(super) fn give_up_reserve(&self) {
        if self.free().is_ok_and(|free| free < RESERVED)
            && let Ok(()) = fs::remove_file(self.reserve())
        {
            tracing::warn!(data = %self.dir.display(), "the disk is full: the reserve is given up for the catalogue");
        }
    }

    /// Holds nearly as much space as there is, up to the whole reserve. That it cannot is no failure.
    pub(super) fn hold_reserve(&self) {
        let held = self.reserved();
        if held == RESERVED {
            return;
        }
        let wanted =
            self.free().map_or(0, |free| free.saturating_sub(SPARED).saturating_add(held).min(RESERVED));
        if wanted <= held || wanted < SMALLEST {
            return;
        }
        let path = self.reserve();
        let made =
            fs::OpenOptions::new().create(true).write(true).truncate(false).open(&path).and_then(|file| {
                let all = rustix::fs::FallocateFlags::empty();
                match rustix::fs::fallocate(file.file(), all, 0, wanted) {
                    // A file system that cannot set space aside without writing to it.
                    Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(&file, wanted),
                    other => Ok(other?),
                }
            });
        if made.is_err() {
            let _tried_again_later = fs::remove_file(&path);
        }
    }
}

fn write_zeros(mut file: &fs::File, len: u64) -> std::io::Result<()> {
    use std::io::Read as _;
    std::io::copy(&mut std::io::repeat(0).take(len), &mut file).map(drop)
}
