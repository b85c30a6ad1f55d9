//! Files that go from the disk to the socket without passing through this process (sendfile).
//!
//! hyper takes bodies as buffers and writes them to an `AsyncWrite`. So the body of a file hands hyper slices of one shared
//! stand-in, which nobody ever reads, and notes in the connection's [`Outbox`] which piece of which file each one stands
//! for. Below hyper, [`super::watched::Watched`] knows a slice of the stand-in by its address and lets the kernel send the
//! piece instead. hyper's own work, framing, keep-alive, timeouts, is as with any other body.
//!
//! This holds for HTTP/1 alone, where hyper passes a body's buffers on as they are (its "queue" strategy). A connection that
//! does otherwise is caught by [`Outbox::check_empty`] and closed: the client would have got stand-ins.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

/// Size of the stand-in in bytes, and so of the largest piece. It takes address space alone: no page of it is ever touched.
pub(super) const LARGEST: usize = 4 << 20;

/// How much one call of sendfile may move, in bytes: it may wait for the disk, and holds up other requests on its thread.
const AT_ONCE: usize = 512 << 10;

/// How much may wait in the kernel before the network takes it, in bytes. Without a bound these are megabytes for a slow client,
/// which it takes in steps of a third: at 100 kB/s nothing seems to move for 15 s. With it the steps are half of this, at two to
/// four times the CPU for a GB where clients are fast.
const UNSENT: u32 = 512 << 10;

/// Keeps what the kernel holds for a connection small enough to tell a slow client from one that takes nothing.
pub(super) fn bound_unsent(socket: &tokio::net::TcpStream) -> io::Result<()> {
    socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT)
}

/// The shared stand-in.
fn stand_in() -> &'static Bytes {
    static STAND_IN: OnceLock<Bytes> = OnceLock::new();
    STAND_IN.get_or_init(|| Bytes::from(vec![0; LARGEST]))
}

/// Whether a slice is one of the stand-in.
pub(super) fn is_stand_in(slice: &[u8]) -> bool {
    stand_in().as_ptr_range().contains(&slice.as_ptr())
}

/// The pieces of files that a connection has still to send, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Outbox(Arc<Mutex<VecDeque<Piece>>>);

/// A piece of a file.
#[derive(Debug)]
struct Piece {
    file: Arc<File>,
    at: u64,
    left: usize,
}

impl Outbox {
    /// Puts a piece in, and yields what stands for it. `length` is at most [`LARGEST`].
    pub(super) fn put(&self, file: Arc<File>, at: u64, length: usize) -> Bytes {
        let bytes = stand_in().slice(..length.min(LARGEST));
        let piece = Piece { file, at, left: bytes.len() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(piece);
        bytes
    }

    /// Sends from the first piece, of which `length` bytes should be left; yields how many went out.
    ///
    /// The socket does not block; a disk may, within `AT_ONCE`.
    pub(super) fn send(&self, socket: impl std::os::fd::AsFd, length: usize) -> io::Result<usize> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = pieces.front_mut().filter(|piece| piece.left == length).ok_or_else(out_of_step)?;
        let mut at = piece.at;
        let count = rustix::fs::sendfile(socket, &piece.file, Some(&mut at), piece.left.min(AT_ONCE))?;
        if count == 0 {
            // The length was promised in a header: a file that was cut since then ends the connection.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        piece.at = at;
        piece.left = piece.left.saturating_sub(count);
        if piece.left == 0 {
            pieces.pop_front();
        }
        Ok(count)
    }

    /// Fails if a piece is left though hyper has written all that it had.
    pub(super) fn check_empty(&self) -> io::Result<()> {
        let pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pieces.is_empty() { Ok(()) } else { Err(out_of_step()) }
    }
}

fn out_of_step() -> io::Error {
    io::Error::other("the bytes of a file and what stood for them are out of step")
}
