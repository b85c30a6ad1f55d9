//! Why a bundle was not made or not taken.

use std::io;
use std::path::{Path, PathBuf};

use crate::digest::Sha256;
use crate::store::{self, SnapshotId};

/// Why a bundle was not made or not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be read or written.
    #[error("the store cannot go on")]
    Store(#[from] store::Error),
    /// The file system refused.
    #[error("{}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A key or signature file is none.
    #[error("{}: {found}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// A signature is demanded, and there is none.
    #[error("the bundle is not signed: neither is there {}, nor a signature in it", .expected.display())]
    Unsigned {
        /// The file that was looked for.
        expected: PathBuf,
    },
    /// Another key signed it.
    #[error(
        "the bundle is signed by the key {found}, and not by {expected}: whoever sent it has another key"
    )]
    WrongKey {
        /// The key id of the signature.
        found: String,
        /// That of the key.
        expected: String,
    },
    /// The signature is not that of these bytes.
    #[error("the signature is not that of these bytes: the bundle was changed after it was signed{}", told_item(.item.as_deref()))]
    Tampered {
        /// What differs, where that could be found out.
        item: Option<String>,
    },
    /// The archive ends too early.
    #[error("the bundle is cut short: it ends in {item}{}", told_part(.part.as_deref()))]
    Cut {
        /// What was being read.
        item: String,
        /// The part that should come next, where it was split.
        part: Option<PathBuf>,
    },
    /// Parts of a split bundle are missing.
    #[error("{}: this part of the bundle is missing", .part.display())]
    PartMissing {
        /// The first of them.
        part: PathBuf,
    },
    /// The manifest cannot be used.
    #[error("manifest.json: {found}")]
    Manifest {
        /// What is wrong.
        found: String,
    },
    /// Something that the manifest does not speak of.
    #[error("{name:?} in the bundle: {found}")]
    Stranger {
        /// Name of the member, cut after 80 characters.
        name: String,
        /// What is wrong with it.
        found: &'static str,
    },
    /// A wheel's bytes are not those of the manifest.
    #[error("{file}: its bytes have the sha256 {found}, and the manifest states {stated}")]
    Hash {
        /// The wheel.
        file: String,
        /// The digest that was found.
        found: Sha256,
        /// That of the manifest.
        stated: Sha256,
    },
    /// A wheel that the bundle builds on, or promises, is nowhere.
    #[error(
        "{file} (sha256 {sha256}) is on the bundle's list, and neither in it nor here{}",
        if *.delta { ": it is a delta for another state of this site; export one with this site's inventory, or a whole one" } else { "" }
    )]
    Missing {
        /// The wheel.
        file: String,
        /// Its digest.
        sha256: Sha256,
        /// Whether the bundle is a delta.
        delta: bool,
    },
    /// The wheel is damaged, although its bytes are those of the manifest.
    #[error("{file}: {found}")]
    Damaged {
        /// The wheel.
        file: String,
        /// What is wrong with it.
        found: String,
    },
    /// A bundle that is older than one that was taken.
    #[error(
        "the bundle is older than what this site has: it carries snapshot {found} of site {site}, and {newest} was taken before; --allow-older takes it all the same"
    )]
    Older {
        /// The site that made it.
        site: String,
        /// Its snapshot.
        found: SnapshotId,
        /// The newest that was taken.
        newest: SnapshotId,
    },
}

impl Error {
    /// Names the file or folder of an error of the file system.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    /// Whether the bundle is whole but not wanted; else it is damaged, or something failed.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Unsigned { .. } | Self::WrongKey { .. } | Self::Tampered { .. } | Self::Older { .. }
        )
    }
}

fn told_item(item: Option<&str>) -> String {
    item.map(|item| format!("; {item}")).unwrap_or_default()
}

fn told_part(part: Option<&Path>) -> String {
    part.map(|part| format!("; if it was split, {} is missing", part.display())).unwrap_or_default()
}
