//! Bodies of requests: the few routes that take one read it here, within limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

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

/// Reads a body of at most `limit` bytes.
pub(super) async fn read(body: Incoming, limit: usize) -> Result<Bytes, Refusal> {
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
pub(super) async fn discard(body: Incoming) {
    drop_body(body, UNWANTED, UNWANTED_TIME).await;
}

/// As [`discard`], of a body as large as uploads are.
pub(super) async fn discard_upload(body: Incoming) {
    drop_body(body, UNWANTED_UPLOAD, UNWANTED_UPLOAD_TIME).await;
}

async fn drop_body(mut body: Incoming, most: usize, time: Duration) {
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
