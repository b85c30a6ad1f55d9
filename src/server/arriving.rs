//! The body of a file that is still on its way from an upstream.

use std::fmt;
use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::watch;

use super::body::FileBody;
use super::outbox::Outbox;
use super::pull::Stage;

/// A piece of a file that grows: sent as its bytes arrive. The last byte of the file is kept back until all bytes are known to
/// have the right digest, so that no client ever has a whole file that is not the one it asked for.
pub(super) struct Arriving {
    file: Arc<File>,
    size: u64,
    at: u64,
    end: u64,
    outbox: Option<Outbox>,
    /// What is being sent.
    piece: Option<FileBody>,
    progress: Progress,
}

enum Progress {
    Known(watch::Receiver<Stage>),
    Awaited(Pin<Box<dyn Future<Output = (watch::Receiver<Stage>, bool)> + Send>>),
    Ended,
}

impl fmt::Debug for Arriving {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Arriving {{ {}..{} of {} }}", self.at, self.end, self.size)
    }
}

/// How far a file of a known size can be read at a stage; none if it cannot any more.
pub(super) fn readable(stage: &Stage, size: u64) -> Option<u64> {
    match stage {
        Stage::Waiting(..) => Some(0),
        Stage::Arriving(_, reached) => Some((*reached).min(size.saturating_sub(1))),
        Stage::Whole(_) | Stage::Kept => Some(size),
        Stage::Failed(_) => None,
    }
}

impl Arriving {
    /// The bytes from `start` to before `end` of a file of that size.
    pub(super) fn new(
        file: Arc<File>,
        (start, end, size): (u64, u64, u64),
        stages: watch::Receiver<Stage>,
    ) -> Self {
        let progress = Progress::Known(stages);
        Self { file, size, at: start, end, outbox: None, piece: None, progress }
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
        loop {
            if let Some(piece) = &mut self.piece {
                match ready!(piece.poll_piece(context)) {
                    Some(Ok(bytes)) => {
                        self.at = self.at.saturating_add(bytes.len() as u64);
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                    Some(Err(error)) => return self.broken(error),
                    None => self.piece = None,
                }
            }
            if self.left() == 0 {
                return Poll::Ready(None);
            }
            match std::mem::replace(&mut self.progress, Progress::Ended) {
                Progress::Known(mut stages) => {
                    let readable = readable(&stages.borrow_and_update(), self.size);
                    let Some(readable) = readable else {
                        return self.broken(io::Error::other("the file did not come whole"));
                    };
                    if readable > self.at {
                        let mut piece =
                            FileBody::new(Arc::clone(&self.file), self.at, readable.min(self.end));
                        if let Some(outbox) = &self.outbox {
                            piece.send_by(outbox.clone());
                        }
                        self.piece = Some(piece);
                        self.progress = Progress::Known(stages);
                    } else {
                        self.progress = Progress::Awaited(Box::pin(async move {
                            let goes_on = stages.changed().await.is_ok();
                            (stages, goes_on)
                        }));
                    }
                }
                Progress::Awaited(mut awaited) => match awaited.as_mut().poll(context) {
                    Poll::Pending => {
                        self.progress = Progress::Awaited(awaited);
                        return Poll::Pending;
                    }
                    Poll::Ready((stages, true)) => self.progress = Progress::Known(stages),
                    Poll::Ready((_, false)) => {
                        return self.broken(io::Error::other("nobody fetches the file any more"));
                    }
                },
                Progress::Ended => return Poll::Ready(None),
            }
        }
    }

    /// Ends the connection without the bytes that its head promised.
    fn broken(&mut self, error: io::Error) -> Poll<Option<io::Result<Bytes>>> {
        self.progress = Progress::Ended;
        self.piece = None;
        Poll::Ready(Some(Err(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::body::Body;
    use crate::server::pull::{Failure, FailureKind};
    use http_body_util::BodyExt as _;
    use std::io::Write as _;

    #[tokio::test]
    async fn the_last_byte_waits_for_the_digest() {
        let mut spool = tempfile::NamedTempFile::new().unwrap();
        spool.write_all(b"0123456789").unwrap();
        let file = Arc::new(spool.reopen().unwrap());
        for right in [true, false] {
            let (tell, stages) = watch::channel(Stage::Waiting(0, None));
            let body = Arriving::new(Arc::clone(&file), (2, 10, 10), stages);
            let reading = tokio::spawn(async move {
                let mut body = Body::Arriving(body);
                let mut all = Vec::new();
                while let Some(frame) = body.frame().await {
                    match frame {
                        Ok(frame) => all.extend_from_slice(frame.data_ref().unwrap()),
                        Err(_broken) => return (all, false),
                    }
                }
                (all, true)
            });
            tell.send_replace(Stage::Arriving(Arc::clone(&file), 4));
            tokio::task::yield_now().await;
            tell.send_replace(Stage::Arriving(Arc::clone(&file), 10));
            tokio::task::yield_now().await;
            if right {
                tell.send_replace(Stage::Whole(Arc::clone(&file)));
                assert_eq!(reading.await.unwrap(), (b"23456789".to_vec(), true));
            } else {
                let failure = Failure { kind: FailureKind::Lied, text: String::new() };
                tell.send_replace(Stage::Failed(failure));
                let (all, whole) = reading.await.unwrap();
                assert!(!whole && all.len() < 8, "{all:?}");
            }
        }
    }
}
