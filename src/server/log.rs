//! The access log: one line for each request, when its answer has been sent or given up.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use hyper::body::{Body as _, Frame, SizeHint};

use super::body::Body;
use super::clients::Origin;
use super::id::RequestId;
use super::pace::{Pace, Working};
use super::state::State;

/// The longest path in a line, in bytes.
const LONGEST_PATH: usize = 512;

/// The longest method in a line, in bytes: a request may have one as long as its head.
const LONGEST_METHOD: usize = 16;

/// What is known of a request when it arrives.
#[derive(Debug)]
pub(super) struct Line {
    method: Method,
    path: String,
    route: &'static str,
    id: RequestId,
    from: Origin,
    began: Instant,
    state: Arc<State>,
}

impl Line {
    /// Begins the line of a request. The path loses its query, which may hold secrets, and cannot forge a line: control
    /// characters are escaped when it is written.
    pub(super) fn begin<B>(
        request: &Request<B>,
        route: &'static str,
        id: RequestId,
        from: Origin,
        state: Arc<State>,
    ) -> Self {
        let path = request.uri().path();
        let path = path.get(..path.floor_char_boundary(LONGEST_PATH)).unwrap_or_default().to_owned();
        Self { method: request.method().clone(), path, route, id, from, began: Instant::now(), state }
    }

    /// What the request is called, in the log and in the answer.
    pub(super) const fn id(&self) -> &RequestId {
        &self.id
    }
}

/// A body whose end, whatever it is, writes the line.
#[derive(Debug)]
pub(super) struct Logged {
    body: Body,
    line: Line,
    status: StatusCode,
    sent: u64,
    pace: Pace,
    /// While the next piece is not there.
    working: Option<Working>,
}

impl Logged {
    pub(super) const fn new(body: Body, line: Line, status: StatusCode, pace: Pace) -> Self {
        Self { body, line, status, sent: 0, pace, working: None }
    }
}

impl hyper::body::Body for Logged {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len);
            self.sent = self.sent.saturating_add(length as u64);
        }
        self.working = match self.working.take() {
            _ if frame.is_ready() => None,
            working => working.or_else(|| Some(self.pace.work())),
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

impl Drop for Logged {
    fn drop(&mut self) {
        let Line { method, path, route, id, from, began, state } = &self.line;
        let unsent = self.body.size_hint().exact().unwrap_or(0);
        let elapsed = began.elapsed();
        let elapsed_ms = elapsed.as_secs_f64() * 1000.0;
        state.metrics.answered(route, method, self.status, self.sent, elapsed);
        tracing::info!(
            method = format_args!("{method:.LONGEST_METHOD$}", method = method.as_str()),
            path = %path.escape_debug(),
            status = self.status.as_u16(),
            sent_bytes = self.sent,
            unsent_bytes = unsent,
            elapsed_ms = format_args!("{elapsed_ms:.2}"),
            %from,
            request_id = %id,
            "request"
        );
    }
}
