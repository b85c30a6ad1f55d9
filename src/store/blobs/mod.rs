//! Where the bytes lie: each wheel with its METADATA member and its sidecar, all three named by the wheel's digest.
//!
//! A closed set of backends. What each must promise: what [`Blobs::put_wheel`] and [`Blobs::put`] took in is there whole or
//! not at all, and is durable after [`Blobs::settle`]. Writers of one digest take turns; that is the store's part.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::catalogue::record::Stamp;
use super::{Error, sidecar};
use crate::digest::Sha256;

mod disk;
mod s3;

pub(super) use disk::Disk;
pub(super) use s3::Bucket;
pub use s3::{Pieces, S3};

/// The parts of one digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The wheel, byte for byte as fetched.
    Wheel,
    /// Its METADATA member.
    Metadata,
    /// Its facts and provenance.
    Sidecar,
}

impl Part {
    /// The extension of its file.
    pub(super) const fn extension(self) -> &'static str {
        match self {
            Self::Wheel => "whl",
            Self::Metadata => "metadata",
            Self::Sidecar => "json",
        }
    }
}

/// What is known of a part without reading it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Which state of it this is, length included.
    pub(super) stamp: Stamp,
    /// When it was written, where the backend says so.
    pub(super) modified: Option<SystemTime>,
}

/// The bytes of all wheels.
#[derive(Debug)]
pub(super) enum Blobs {
    /// Files of the data folder.
    Disk(Disk),
    /// Objects of an S3-compatible store.
    S3(Bucket),
}

/// A wheel that lies in a file, for those who have to seek in it.
#[derive(Debug)]
pub(super) enum LocalWheel {
    /// The blob itself.
    InPlace(PathBuf),
    /// A copy, gone with this.
    Copied(tempfile::NamedTempFile),
}

impl LocalWheel {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::InPlace(path) => path,
            Self::Copied(copy) => copy.path(),
        }
    }
}

impl Blobs {
    /// What a part is called in messages.
    pub(super) fn name(&self, sha256: &Sha256, part: Part) -> PathBuf {
        match self {
            Self::Disk(disk) => disk.path(sha256, part),
            Self::S3(bucket) => bucket.path(sha256, part),
        }
    }

    /// Makes a place for the parts of a digest, where that has to be done.
    pub(super) fn prepare(&self, sha256: &Sha256) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.make_shard(sha256),
            Self::S3(_) => Ok(()),
        }
    }

    /// Takes in a wheel from the spool.
    pub(super) fn put_wheel(&self, sha256: &Sha256, spooled: tempfile::NamedTempFile) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.put_wheel(sha256, spooled),
            Self::S3(bucket) => bucket.put_wheel(sha256, &spooled),
        }
    }

    /// Takes in one of the small parts, in place of an older one.
    pub(super) fn put(&self, sha256: &Sha256, part: Part, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.put(sha256, part, bytes),
            Self::S3(bucket) => bucket.put(sha256, part, bytes),
        }
    }

    /// Makes what was put in or removed for a digest durable.
    pub(super) fn settle(&self, sha256: &Sha256) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.settle(sha256),
            Self::S3(_) => Ok(()),
        }
    }

    /// Looks for a part.
    pub(super) fn find(&self, sha256: &Sha256, part: Part) -> Result<Option<Found>, Error> {
        match self {
            Self::Disk(disk) => disk.find(sha256, part),
            Self::S3(bucket) => bucket.find(sha256, part),
        }
    }

    /// Reads one of the small parts whole, up to the longest that is written.
    pub(super) fn read(&self, sha256: &Sha256, part: Part) -> Result<Option<Vec<u8>>, Error> {
        let bytes = self.read_start(sha256, part, sidecar::LONGEST.saturating_add(1))?;
        if bytes.as_ref().is_some_and(|bytes| bytes.len() as u64 > sidecar::LONGEST) {
            let found = format!("is longer than {} bytes", sidecar::LONGEST);
            return Err(Error::Damaged { path: self.name(sha256, part), found });
        }
        Ok(bytes)
    }

    /// Reads the first bytes of a part.
    pub(super) fn read_start(&self, sha256: &Sha256, part: Part, len: u64) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Disk(disk) => disk.read_start(sha256, part, len),
            Self::S3(bucket) => bucket.read_start(sha256, part, len),
        }
    }

    /// Reads a wheel from its beginning.
    pub(super) fn open(&self, sha256: &Sha256) -> Result<Option<Box<dyn Read + Send>>, Error> {
        match self {
            Self::Disk(disk) => disk.open(sha256),
            Self::S3(bucket) => bucket.open(sha256),
        }
    }

    /// A file with the bytes of a wheel; where they lie elsewhere, a copy in the folder `spool`.
    pub(super) fn local_wheel(&self, sha256: &Sha256) -> Result<Option<LocalWheel>, Error> {
        match self {
            Self::Disk(disk) => {
                let found = disk.find(sha256, Part::Wheel)?;
                Ok(found.map(|_| LocalWheel::InPlace(disk.path(sha256, Part::Wheel))))
            }
            Self::S3(bucket) => Ok(bucket.copy(sha256)?.map(LocalWheel::Copied)),
        }
    }

    /// Reads a range of a wheel that is no file of this machine, as fast as it is taken.
    pub(super) fn pieces(&self, sha256: &Sha256, range: Range<u64>) -> Result<Option<Pieces>, Error> {
        match self {
            Self::Disk(_) => Ok(None),
            Self::S3(bucket) => bucket.pieces(sha256, range),
        }
    }

    /// An address at which a client can fetch a wheel by itself, where files are not to be sent through this process.
    pub(super) fn signed(&self, sha256: &Sha256) -> Result<Option<String>, Error> {
        match self {
            Self::Disk(_) => Ok(None),
            Self::S3(bucket) => bucket.signed(sha256),
        }
    }

    /// Sets how long calls wait for what is away.
    pub(super) fn set_patience(&self, patience: Duration) {
        if let Self::S3(bucket) = self {
            bucket.set_patience(patience);
        }
    }

    /// Lists a part of all digests, in no order. What is no part of a digest by its name is passed over.
    pub(super) fn list(
        &self,
        part: Part,
        visit: &mut dyn FnMut(Sha256, Found) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.list(part, visit),
            Self::S3(bucket) => bucket.list(part, visit),
        }
    }

    /// Removes a part; durable after [`Blobs::settle`].
    pub(super) fn remove(&self, sha256: &Sha256, part: Part) -> Result<(), Error> {
        match self {
            Self::Disk(disk) => disk.remove(sha256, part),
            Self::S3(bucket) => bucket.remove(sha256, part),
        }
    }

    /// Moves a part out of the way, where somebody can still look at it. Yields where it lies now.
    pub(super) fn set_aside(&self, sha256: &Sha256, part: Part) -> Result<Option<PathBuf>, Error> {
        match self {
            Self::Disk(disk) => disk.set_aside(sha256, part),
            Self::S3(bucket) => bucket.set_aside(sha256, part),
        }
    }
}
