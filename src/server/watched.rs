//! A connection that ends when nothing moves on it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::outbox::{Outbox, is_stand_in};
use super::pace::Pace;

/// A TCP connection with a limit on how long nothing may move on it, in either direction.
///
/// It bounds what no other limit does: a client that opens a connection and says nothing, one that stops in the middle of a
/// body that it asked for, and one that is gone without a word. Slices of the stand-in are sent as the files of the outbox. Below
/// TLS it sees what TLS makes of them, and nothing is put into the outbox.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    outbox: Outbox,
    pace: Pace,
    limit: Duration,
    stall: Duration,
    moved: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Watched {
    /// Watches a connection. Its first byte may take as long as `first`; only then does hyper count the time of a head.
    pub(super) fn new(
        stream: TcpStream,
        outbox: Outbox,
        pace: Pace,
        first: Duration,
        stall: Duration,
    ) -> Self {
        let (moved, limit) = (Instant::now(), first.min(stall));
        Self { stream, outbox, pace, limit, stall, moved, timer: Box::pin(tokio::time::sleep(limit)) }
    }

    /// Counts anew: the next byte may take as long as `first`. For a connection that has begun TLS.
    pub(super) fn await_first(&mut self, first: Duration) {
        self.limit = first.min(self.stall);
        self.moved = Instant::now();
        self.timer.as_mut().reset(self.moved + self.limit);
    }

    /// Writes the slices up to the next file, or sends from that file.
    fn poll_write_any(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().take_while(|slice| !is_stand_in(slice)).count();
        let poll = match slices.get(bytes) {
            Some(file) if bytes == 0 => self.poll_send(context, file.len()),
            _ => {
                let slices = slices.get(..bytes).unwrap_or_default();
                Pin::new(&mut self.stream).poll_write_vectored(context, slices)
            }
        };
        if let Poll::Ready(Ok(count)) = poll {
            self.pace.moved(count);
        }
        self.watch(context, poll)
    }

    fn poll_send(&mut self, context: &mut Context<'_>, length: usize) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_io(Interest::WRITABLE, || self.outbox.send(&self.stream, length)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    /// Notes progress, or fails if there was none for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.moved = Instant::now();
            return poll;
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.pace.works() {
                self.moved = Instant::now();
            }
            let deadline = self.moved + self.limit;
            if deadline <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if poll.is_ready() {
            self.limit = self.stall;
            self.pace.moved(buffer.filled().len().saturating_sub(before));
        }
        self.watch(context, poll)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_any(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_any(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outbox.check_empty()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
