//! What a handler answers.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::ext::ReasonPhrase;

use super::arriving::Arriving;
use super::body::{Body, FileBody};
use crate::store::Pieces;

/// An answer, before it is known whether the request was a HEAD.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) phrase: Option<ReasonPhrase>,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

impl Reply {
    /// A status with nothing but headers.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self { status, phrase: None, headers: HeaderMap::new(), body: Body::Empty }
    }

    /// Bytes that are at hand as a whole.
    pub(super) fn bytes(content_type: &'static str, bytes: Bytes) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        reply.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        reply.body = Body::Bytes(bytes);
        reply
    }

    /// A text for people.
    pub(super) fn text(status: StatusCode, text: Bytes) -> Self {
        Self { status, ..Self::bytes("text/plain; charset=utf-8", text) }
    }

    /// A piece of a file.
    pub(super) fn file(content_type: &'static str, body: FileBody) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        reply.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.left()));
        reply.body = Body::File(body);
        reply
    }

    /// The headers of a file, for a HEAD.
    pub(super) fn headers_of(content_type: &'static str, length: u64) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        reply.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        reply
    }

    /// A piece of a file that comes from elsewhere.
    pub(super) fn pieces(content_type: &'static str, pieces: Pieces, length: u64) -> Self {
        Self { body: Body::Pieces(pieces, length), ..Self::headers_of(content_type, length) }
    }

    /// Leads to where the file can be fetched for a while. Not to be kept: the address ends, and so may the right to it.
    pub(super) fn found(at: &str) -> Self {
        let mut reply = Self::empty(StatusCode::FOUND);
        reply.set(header::LOCATION, at);
        reply.set(header::CACHE_CONTROL, "no-store");
        reply.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        reply
    }

    /// A piece of a file that is still on its way.
    pub(super) fn arriving(content_type: &'static str, body: Arriving) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        reply.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.left()));
        reply.body = Body::Arriving(body);
        reply
    }

    /// Leads to another spelling of the path, by a relative reference.
    pub(super) fn moved(to: &str) -> Self {
        let mut reply = Self::text(StatusCode::MOVED_PERMANENTLY, Bytes::from(format!("{to}\n")));
        reply.set(header::LOCATION, to);
        reply
    }

    /// Sets a header. The values are our own or made of digits, digests and normalized names; any other is left out.
    pub(super) fn set(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }
}
