//! Bodies of answers: bytes at hand, or pieces of a file, as fast as the client takes them.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use rustix::io::ReadWriteFlags;
use tokio::task::JoinHandle;

use super::arriving::Arriving;
use super::outbox::{LARGEST, Outbox};
use crate::store::Pieces;

/// How much of a file is read at once for TLS and HTTP/2, in bytes; plain HTTP/1 has its files sent by the kernel. At most three
/// pieces are in memory for each answer: being sent, waiting, being read.
///
/// Of pieces of 64 KiB, 128 KiB, 256 KiB and 1 MiB, 2.1 GB over loopback took 1.8, 1.3, 1.0 and 0.8 s of processor time, and
/// 32 clients 30, 40, 53 and 148 MB.
const PIECE: usize = 128 * 1024;

/// How many bytes of pieces all answers may hold together before they make do with less: 170 answers under way, more than the cores
/// of a mirror can fill. Without a bound, clients that ask for files by HTTP/2 and take nothing of them would have it hold 1.2 GB.
const AMPLE: usize = 64 << 20;

/// As [`PIECE`], once that much is held; two are then in memory for each answer, so that all that 400
/// connections allow are another 100 MB.
const SCARCE_PIECE: usize = 16 << 10;

/// How many bytes of pieces all answers hold.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Body {
    /// None.
    Empty,
    /// Bytes at hand; empty once they were taken.
    Bytes(Bytes),
    /// A piece of a file.
    File(FileBody),
    /// What comes from elsewhere, with how many bytes are still to come.
    Pieces(Pieces, u64),
    /// A piece of a file that is still on its way.
    Arriving(Arriving),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Empty | Self::Pieces(_, 0) => Poll::Ready(None),
            Self::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Pieces(pieces, left) => Poll::Ready(Some(match ready!(pieces.poll_recv(context)) {
                Some(Ok(piece)) if piece.len() as u64 <= *left => {
                    *left = left.saturating_sub(piece.len() as u64);
                    Ok(Frame::data(piece))
                }
                Some(Err(error)) => Err(error),
                // More or less than was promised in a header ends the connection.
                Some(Ok(_)) | None => Err(io::ErrorKind::UnexpectedEof.into()),
            })),
            Self::File(file) => {
                file.poll_piece(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Arriving(file) => {
                file.poll_piece(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.left(),
            Self::Pieces(_, left) => *left,
            Self::Arriving(file) => file.left(),
        })
    }
}

/// A piece of a file: sent by the kernel where the connection allows that, else read, in the blocking pool unless the kernel
/// has it in memory.
pub(super) struct FileBody {
    file: Arc<File>,
    at: u64,
    end: u64,
    outbox: Option<Outbox>,
    reading: Option<JoinHandle<io::Result<Lent>>>,
    spare: Spare,
}

/// Buffers that were sent and can be filled again: at most two, since no more are ever out.
type Spare = Arc<Mutex<Vec<Buffer>>>;

impl fmt::Debug for FileBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FileBody {{ {}..{} }}", self.at, self.end)
    }
}

impl FileBody {
    /// The bytes from `start` to before `end`, which the caller has checked to be in the file.
    pub(super) fn new(file: Arc<File>, start: u64, end: u64) -> Self {
        Self { file, at: start, end, outbox: None, reading: None, spare: Spare::default() }
    }

    /// Lets the kernel send it, by the outbox of its connection.
    pub(super) fn send_by(&mut self, outbox: Outbox) {
        self.outbox = Some(outbox);
    }

    /// How many bytes are still to come.
    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }

    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left() == 0 {
            return Poll::Ready(None);
        }
        if let Some(outbox) = &self.outbox {
            let length = usize::try_from(self.left()).unwrap_or(LARGEST).min(LARGEST);
            let stand_in = outbox.put(Arc::clone(&self.file), self.at, length);
            self.at = self.at.saturating_add(length as u64);
            return Poll::Ready(Some(Ok(stand_in)));
        }
        let reading = if let Some(reading) = &mut self.reading {
            reading
        } else {
            let mut piece = Lent::new(&self.spare, self.left());
            if let Some(count) = read_from_memory(&self.file, piece.as_mut(), self.at) {
                piece.buffer.0.truncate(count);
                return Poll::Ready(Some(Ok(self.advance(piece))));
            }
            self.reading.insert(start_reading(&self.file, piece, self.at))
        };
        let read = ready!(Pin::new(reading).poll(context));
        self.reading = None;
        Poll::Ready(Some(match read.map_err(io::Error::other).and_then(|read| read) {
            Ok(piece) => Ok(self.advance(piece)),
            Err(error) => {
                self.end = self.at;
                Err(error)
            }
        }))
    }

    fn advance(&mut self, piece: Lent) -> Bytes {
        self.at = self.at.saturating_add(piece.as_ref().len() as u64);
        Bytes::from_owner(piece)
    }
}

/// Reads what the kernel has in memory, without waiting for the disk; `None` where it has nothing, or the file system cannot
/// tell. A hop to the blocking pool and back costs more than copying a piece.
fn read_from_memory(file: &File, buffer: &mut [u8], at: u64) -> Option<usize> {
    let mut slices = [IoSliceMut::new(buffer)];
    rustix::io::preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT).ok().filter(|count| *count > 0)
}

fn start_reading(file: &Arc<File>, mut piece: Lent, at: u64) -> JoinHandle<io::Result<Lent>> {
    let file = Arc::clone(file);
    tokio::task::spawn_blocking(move || {
        // The length was promised in a header: a file that was cut since then ends the connection.
        file.read_exact_at(piece.as_mut(), at)?;
        Ok(piece)
    })
}

fn is_ample() -> bool {
    HELD.load(Ordering::Relaxed) < AMPLE
}

/// A buffer that counts as held; it never grows.
#[derive(Default)]
struct Buffer(Vec<u8>);

impl Buffer {
    fn new(length: usize) -> Self {
        let bytes = Vec::with_capacity(length);
        HELD.fetch_add(bytes.capacity(), Ordering::Relaxed);
        Self(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0.capacity(), Ordering::Relaxed);
    }
}

/// A buffer on its way to a client.
struct Lent {
    buffer: Buffer,
    spare: Spare,
}

impl Lent {
    /// One for the next piece, of which there are at most `left` bytes.
    fn new(spare: &Spare, left: u64) -> Self {
        let most = if is_ample() { PIECE } else { SCARCE_PIECE };
        let length = usize::try_from(left).unwrap_or(most).min(most);
        let kept = spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fits = |buffer: &Buffer| (length..=most).contains(&buffer.0.capacity());
        let mut buffer = kept.filter(fits).unwrap_or_else(|| Buffer::new(length));
        buffer.0.resize(length, 0);
        Self { buffer, spare: Arc::clone(spare) }
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer.0
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ample() && spare.len() < 2 {
            spare.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    async fn collect(body: FileBody) -> io::Result<Bytes> {
        Ok(Body::File(body).collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn yields_the_bytes_of_the_piece() {
        let content: Vec<u8> = (0..=250).cycle().take(PIECE * 3 + 17).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blob");
        fs_err::write(&path, &content).unwrap();
        let open = || Arc::new(fs_err::File::open(&path).unwrap().into_file());
        let size = content.len() as u64;
        assert_eq!(collect(FileBody::new(open(), 0, size)).await.unwrap(), content);
        // From the disk, or in part, where the file system can let go of what is in memory.
        let file = open();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, PIECE as u64, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(collect(FileBody::new(file, 0, size)).await.unwrap(), content);
        assert_eq!(collect(FileBody::new(open(), 5, 8)).await.unwrap(), content[5..8]);
        assert_eq!(collect(FileBody::new(open(), 0, 0)).await.unwrap(), Bytes::new());
        let error = collect(FileBody::new(open(), 0, size + 1)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
