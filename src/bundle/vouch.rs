//! Who vouches for a bundle: the signature over its manifest, and the one over all of its bytes.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::parts::{self, PartReader};
use super::sign;
use super::stage::{self, Stage, Start};
use super::{Error, PublicKey};

/// The signature over the whole bundle, which is verified while the bundle is read.
pub(super) struct OverAll<'t> {
    pub(super) key: &'t PublicKey,
    path: PathBuf,
    text: String,
}

impl OverAll<'_> {
    /// Verifies it. Reading ends early once `stop` is set.
    pub(super) fn verify(&self, bundle: &Path, stop: &AtomicBool) -> Result<(), Error> {
        self.key.verify(&self.text, &self.path, Halting { inner: PartReader::open(bundle)?, stop })
    }
}

/// A reader that fails once it is told to stop.
struct Halting<'s> {
    inner: PartReader,
    stop: &'s AtomicBool,
}

impl Read for Halting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody asks any more"));
        }
        self.inner.read(buffer)
    }
}

impl Seek for Halting<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Reads the manifest of a bundle, which the key's signature vouches for. Where none does, what differs is looked for.
///
/// The signature inside the bundle stands over the manifest, and so over each digest in it. With it the one over all bytes
/// can wait until they are read anyway; without it, all bytes are read for it first.
pub(super) fn verified_start<'k>(
    bundle: &Path,
    key: Option<&'k PublicKey>,
) -> Result<(Start, Option<OverAll<'k>>), Error> {
    let Some(key) = key else { return Ok((stage::start(bundle)?, None)) };
    let path = parts::signature(bundle);
    if path.exists() {
        let text = sign::read_text(&path)?;
        let over_all = OverAll { key, path, text };
        if let Ok(start) = stage::start(bundle)
            && verify_manifest(&start, key).is_ok_and(|there| there)
        {
            return Ok((start, Some(over_all)));
        }
        match over_all.verify(bundle, &AtomicBool::new(false)) {
            Ok(()) => return Ok((stage::start(bundle)?, None)),
            Err(Error::Tampered { .. }) => return Err(diagnosis(bundle, key)),
            Err(error) => return Err(error),
        }
    }
    // Only the archive was carried over: the manifest's own signature stands for all whose digests it states.
    let start = stage::start(bundle)?;
    if verify_manifest(&start, key)? { Ok((start, None)) } else { Err(Error::Unsigned { expected: path }) }
}

/// Verifies the signature inside the bundle; yields whether there is one.
fn verify_manifest(start: &Start, key: &PublicKey) -> Result<bool, Error> {
    let Some(signature) = &start.signature else { return Ok(false) };
    let name = Path::new("manifest.json.minisig");
    match key.verify(signature, name, io::Cursor::new(&start.text)) {
        Ok(()) => Ok(true),
        Err(Error::Tampered { .. }) => {
            Err(Error::Tampered { item: Some("manifest.json differs".to_owned()) })
        }
        Err(error) => Err(error),
    }
}

/// Why the signature over the whole bundle is wrong: the first thing in it that is not as it was signed.
pub(super) fn diagnosis(bundle: &Path, key: &PublicKey) -> Error {
    let look = || {
        let start = stage::start(bundle)?;
        verify_manifest(&start, key)?;
        let mut stage =
            Stage { folder: None, held: &|_| true, progress: &mut |_| {}, found: &mut |_| Ok(()) };
        stage::wheels(bundle, &start.manifest, &mut stage)
    };
    match look() {
        Ok(()) => Error::Tampered { item: None },
        Err(error @ (Error::Cut { .. } | Error::PartMissing { .. } | Error::Tampered { .. })) => error,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            Error::Tampered { item: Some(format!("{error}{}", cause.unwrap_or_default())) }
        }
    }
}
