//! Where the bytes of an uploaded file go: the store's spool, hashed on the way.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::Arc;

use blake2::Blake2b256;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use tempfile::NamedTempFile;

use crate::digest::Hasher;
use crate::server::refusal::Refusal;
use crate::server::state::State;

/// How much is gathered before it is written, in bytes: each write is one turn of a thread that may block.
const GATHERED: usize = 1 << 20;

/// A file that is being written. It is gone when this is dropped.
pub(super) struct Sink {
    file: NamedTempFile,
    sha256: Hasher,
    md5: Md5,
    blake2: Blake2b256,
    waiting: Vec<Bytes>,
    waiting_size: usize,
    size: u64,
}

/// Digests in hexadecimal letters.
#[derive(Debug)]
pub(super) struct Digests {
    pub(super) sha256: String,
    pub(super) md5: String,
    pub(super) blake2_256: String,
}

impl fmt::Debug for Sink {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Sink {{ {} }}", self.file.path().display())
    }
}

impl Sink {
    /// Writes to that file.
    pub(super) fn new(file: NamedTempFile) -> Self {
        Self {
            file,
            sha256: Hasher::default(),
            md5: Md5::new(),
            blake2: Blake2b256::new(),
            waiting: Vec::new(),
            waiting_size: 0,
            size: 0,
        }
    }

    /// How many bytes came.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Takes a piece.
    pub(super) async fn take(mut self, state: &Arc<State>, piece: Bytes) -> Result<Self, Refusal> {
        self.waiting_size = self.waiting_size.saturating_add(piece.len());
        self.size = self.size.saturating_add(piece.len() as u64);
        self.waiting.push(piece);
        if self.waiting_size < GATHERED { Ok(self) } else { self.finish(state).await }
    }

    /// Writes what is waiting.
    pub(super) async fn finish(self, state: &Arc<State>) -> Result<Self, Refusal> {
        state
            .blocking(move |state| {
                state.store.check_room(self.waiting_size as u64)?;
                Ok(self.write()?)
            })
            .await
    }

    fn write(mut self) -> io::Result<Self> {
        for piece in std::mem::take(&mut self.waiting) {
            self.file.write_all(&piece)?;
            self.sha256.update(&piece);
            self.md5.update(&piece);
            self.blake2.update(&piece);
        }
        self.waiting_size = 0;
        Ok(self)
    }

    /// The digests of all that was written.
    pub(super) fn digests(&self) -> Digests {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _infallible = write!(text, "{byte:02x}");
                text
            })
        };
        Digests {
            sha256: self.sha256.clone().finish().to_string(),
            md5: hex(&self.md5.clone().finalize()),
            blake2_256: hex(&self.blake2.clone().finalize()),
        }
    }

    /// The file, to be read from its start.
    pub(super) fn into_file(mut self) -> io::Result<NamedTempFile> {
        io::Seek::rewind(&mut self.file)?;
        Ok(self.file)
    }
}
