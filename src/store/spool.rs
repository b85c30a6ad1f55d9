//! Temporary files beside the blobs, and the room for them.

use super::{Error, Store, locked};

impl Store {
    /// A temporary file in the store's own file system, for [`Store::put`].
    pub fn spool(&self) -> Result<tempfile::NamedTempFile, Error> {
        let spool = self.places.layout.spool();
        tempfile::Builder::new().prefix("wheel-").tempfile_in(&spool).map_err(Error::io(&spool))
    }

    /// As [`Store::spool`], for a file of that size in bytes: fails before anything is written where it does not fit.
    ///
    /// The space is its own from now on, so that of several files written at once those that fit are whole.
    pub fn spool_for(&self, size: u64) -> Result<tempfile::NamedTempFile, Error> {
        // One at a time: two that do not both fit would each take a part from the other, and fail together.
        let _turn = locked(&self.setting_aside);
        self.places.layout.check_space(size)?;
        let spooled = self.spool()?;
        // Where a file system cannot set space aside, what was checked has to do.
        if let Err(error @ rustix::io::Errno::NOSPC) =
            rustix::fs::fallocate(spooled.as_file(), rustix::fs::FallocateFlags::KEEP_SIZE, 0, size.max(1))
        {
            drop(spooled);
            self.places.layout.check_space(size)?;
            return Err(Error::io(&self.places.layout.spool())(error.into()));
        }
        Ok(spooled)
    }

    /// Fails where so many bytes do not fit on the disk, with what has to stay free.
    pub fn check_room(&self, bytes: u64) -> Result<(), Error> {
        self.places.layout.check_space(bytes)
    }

    /// Free space on the disk, in bytes, as far as this user may fill it.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        self.places.layout.free()
    }
}
