//! What a handler answers.

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::ext::ReasonPhrase;

use super::arriving::Arriving;
use super::body::{Body, FileBody};

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
