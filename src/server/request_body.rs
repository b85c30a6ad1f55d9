//! Bodies of requests: the few routes that take one read it here, within limits.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::pace::{Pace, Waiting};
use super::refusal::Refusal;

/// How long a body may take.
const TIME: Duration = Duration::from_secs(20);

/// How much of a body that nobody wants is read before the answer, in bytes, so that a client that only reads once it has
/// sent everything sees the answer. Past it the connection is closed.
const UNWANTED: usize = 16 << 20;

/// How long such a body may take.
const UNWANTED_TIME: Duration = Duration::from_secs(10);

/// As [`UNWANTED`], of uploads: twine shows no answer that comes before it has sent everything.
const UNWANTED_UPLOAD: usize = 4 << 30;

/// How long such an upload may take.
const UNWANTED_UPLOAD_TIME: Duration = Duration::from_mins(1);

/// The body of a request, as it comes.
#[derive(Debug)]
pub(super) struct Received {
    body: Incoming,
    pace: Pace,
    /// While the client has not sent the next piece.
    waiting: Option<Waiting>,
}

impl Received {
    /// The body of a request that the mirror works on.
    pub(super) const fn new(body: Incoming, pace: Pace) -> Self {
        Self { body, pace, waiting: None }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.waiting = match self.waiting.take() {
            _ if frame.is_ready() => None,
            waiting => waiting.or_else(|| Some(self.pace.wait())),
        };
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(body: Received, limit: usize) -> Result<Bytes, Refusal> {
    let gather = async {
        let mut body = body;
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Refusal::Malformed("the body broke off".to_owned()))?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len().saturating_add(data.len()) > limit {
                discard(body).await;
                return Err(Refusal::TooLarge { limit });
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes.freeze())
    };
    match tokio::time::timeout(TIME, gather).await {
        Ok(read) => read,
        Err(_) => Err(Refusal::SlowBody { limit_s: TIME.as_secs() }),
    }
}

/// Reads a body and drops it.
pub(super) async fn discard(body: Received) {
    drop_body(body, UNWANTED, UNWANTED_TIME).await;
}

/// As [`discard`], of a body as large as uploads are.
pub(super) async fn discard_upload(body: Received) {
    drop_body(body, UNWANTED_UPLOAD, UNWANTED_UPLOAD_TIME).await;
}

async fn drop_body(mut body: Received, most: usize, time: Duration) {
    let read = async {
        let mut count = 0_usize;
        while let Some(Ok(frame)) = body.frame().await {
            count = count.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            if count > most {
                break;
            }
        }
    };
    let _whether_it_ended = tokio::time::timeout(time, read).await;
}
