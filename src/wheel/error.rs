//! Why a file could not be inspected at all.

use std::io;

use super::NotAWheelFilename;
use super::archive::{DIRECTORY_CAP, MOST_MEMBERS};

/// Why a file could not be inspected at all. What can be read but is wrong is [`super::Damage`] in the facts instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file's name is no wheel's.
    #[error("the file name is not a wheel's")]
    Filename(#[from] NotAWheelFilename),
    /// The file cannot be opened or read.
    #[error("{file}: cannot be read")]
    Io {
        /// The file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The file is no zip archive, or is cut off.
    #[error("{file}: not a whole zip archive")]
    Zip {
        /// The file.
        file: String,
        /// Why.
        source: zip::result::ZipError,
    },
    /// The file's zip directory is larger than what is read.
    #[error("{file}: the zip directory is larger than {DIRECTORY_CAP} bytes")]
    DirectoryTooLarge {
        /// The file.
        file: String,
    },
    /// The file has more members than are taken.
    #[error("{file}: {count} members, expected at most {MOST_MEMBERS}")]
    TooManyMembers {
        /// The file.
        file: String,
        /// How many.
        count: usize,
    },
}
