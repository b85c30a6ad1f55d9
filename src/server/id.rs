//! What a request is called: the `X-Request-Id` that a proxy gave it, or one of our own.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

/// The header, of a request as of its answer.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken over, in bytes; a UUID has 36.
const LONGEST: usize = 64;

/// The name of one request in the log. It has no character that could forge a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestId {
    Given(HeaderValue),
    Ours(u64),
}

impl RequestId {
    /// Takes over what a proxy wrote, where that is letters, digits, `.`, `_` and `-` alone, or makes one.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let given = headers.get(HEADER).filter(|value| {
            let bytes = value.as_bytes();
            !bytes.is_empty() && bytes.len() <= LONGEST && bytes.iter().all(plain)
        });
        given.map_or_else(Self::next, |value| Self::Given(value.clone()))
    }

    /// Counts on from a number that no other start of the program is likely to have.
    fn next() -> Self {
        static NEXT: OnceLock<AtomicU64> = OnceLock::new();
        let next = NEXT.get_or_init(|| AtomicU64::new(RandomState::new().hash_one(std::process::id())));
        Self::Ours(next.fetch_add(1, Ordering::Relaxed))
    }

    /// For the answer.
    pub(super) fn value(&self) -> HeaderValue {
        match self {
            Self::Given(value) => value.clone(),
            Self::Ours(_) => HeaderValue::from_str(&self.to_string())
                .unwrap_or_else(|_| HeaderValue::from_static("unknown")),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(value) => out.write_str(value.to_str().unwrap_or_default()),
            Self::Ours(number) => write!(out, "{number:016x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_over_what_cannot_forge_a_line() {
        let of = |value: &'static [u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
            RequestId::of(&headers).to_string()
        };
        assert_eq!(of(b"7f3a-1.b_c"), "7f3a-1.b_c");
        for value in [b"a b".as_slice(), b"", b"\xff", b"a\tb", &[b'a'; 65]] {
            let ours = of(value);
            assert!(ours.len() == 16 && ours.bytes().all(|byte| byte.is_ascii_hexdigit()), "{ours}");
        }
        assert_ne!(RequestId::next(), RequestId::next());
    }
}
