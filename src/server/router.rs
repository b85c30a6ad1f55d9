//! Every route, and the only place that sees a request: handlers take parsed values.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::body::Body;
use super::log::{Line, Logged};
use super::outbox::Outbox;
use super::path::{self, Route};
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::State;
use super::{accept, explain, files, health, pages, simple};

/// How much of a body that nobody wants is read before the answer, in bytes, so that a client that only reads once it has
/// sent everything sees the answer. Past it the connection is closed.
const UNWANTED_BODY: usize = 16 << 20;

/// How long such a body may take.
const UNWANTED_BODY_TIME: Duration = Duration::from_secs(10);

/// Answers one request, whatever happens.
pub(super) async fn respond(
    state: Arc<State>,
    request: Request<Incoming>,
    from: SocketAddr,
    outbox: &Outbox,
) -> Response<Logged> {
    let version = request.version();
    let line = Line::begin(request.method().clone(), request.uri().path(), from);
    let head = request.method() == Method::HEAD;
    let reply = match AssertUnwindSafe(route(&state, request)).catch_unwind().await {
        Ok(Ok(reply)) => reply,
        Ok(Err(refusal)) => {
            refusal.log();
            refusal.into_reply()
        }
        Err(_) => {
            let refusal = Refusal::Defect(format!("panic at {line:?}"));
            refusal.log();
            refusal.into_reply()
        }
    };
    let Reply { status, phrase, headers, mut body } = reply;
    if let Body::File(file) = &mut body
        && version <= Version::HTTP_11
    {
        file.send_by(outbox.clone());
    }
    let body = if head { Body::Empty } else { body };
    let mut response = Response::new(Logged::new(body, line, status));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(phrase) = phrase {
        response.extensions_mut().insert(phrase);
    }
    response
}

async fn route(state: &Arc<State>, request: Request<Incoming>) -> Result<Reply, Refusal> {
    let (parts, body) = request.into_parts();
    // RFC 9112, section 3.2: two hosts mean that someone on the way reads another request than we do.
    if parts.version == Version::HTTP_11 && parts.headers.get_all(header::HOST).iter().count() != 1 {
        return Err(Refusal::Malformed("a request has one Host field".to_owned()));
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        discard(body).await;
        return Err(path::parse(parts.uri.path()).err().unwrap_or(Refusal::ReadOnly));
    }
    let headers = &parts.headers;
    let in_force = &state.in_force().await?;
    match path::parse(parts.uri.path())? {
        Route::Home => Ok(pages::home(in_force, &base(headers))),
        Route::Health => Ok(health::alive()),
        Route::Ready => health::ready(state, in_force).await,
        Route::Moved(to) => Ok(Reply::moved(&to)),
        Route::Projects { device } => simple::projects(state, in_force, &device, page_asked(headers)?).await,
        Route::Project { device, project } => {
            simple::project(state, in_force, &device, project, page_asked(headers)?).await
        }
        Route::Wheel { device, sha256, filename } => {
            let asked = file_asked(&parts.method, headers);
            files::wheel(state, in_force, &device, sha256, filename, asked).await
        }
        Route::Metadata { device, sha256, filename } => {
            let asked = file_asked(&parts.method, headers);
            files::metadata(state, in_force, &device, sha256, filename, asked).await
        }
        Route::Explain { device, project } => explain::project(state, in_force, &device, project).await,
    }
}

/// Reads a body and drops it, within limits.
async fn discard(mut body: Incoming) {
    let read = async {
        let mut count = 0_usize;
        while let Some(Ok(frame)) = body.frame().await {
            count = count.saturating_add(frame.data_ref().map_or(0, bytes::Bytes::len));
            if count > UNWANTED_BODY {
                break;
            }
        }
    };
    let _whether_it_ended = tokio::time::timeout(UNWANTED_BODY_TIME, read).await;
}

fn page_asked(headers: &HeaderMap) -> Result<simple::Asked, Refusal> {
    Ok(simple::Asked {
        form: accept::form(list(headers, &header::ACCEPT).as_deref()).ok_or(Refusal::NotAcceptable)?,
        gzip: accept::gzip(list(headers, &header::ACCEPT_ENCODING).as_deref()),
        if_none_match: list(headers, &header::IF_NONE_MATCH),
    })
}

/// A range is defined for GET alone.
fn file_asked(method: &Method, headers: &HeaderMap) -> files::Asked {
    files::Asked {
        range: list(headers, &header::RANGE).filter(|_| method == Method::GET),
        if_range: list(headers, &header::IF_RANGE),
        if_none_match: list(headers, &header::IF_NONE_MATCH),
    }
}

/// The values of a header as one list; those that are not ASCII are left out.
fn list(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut list = values.next()?.to_owned();
    for value in values {
        list.push_str(", ");
        list.push_str(value);
    }
    Some(list)
}

/// How the client reached the mirror: scheme and host, as far as it and a proxy say. Only for texts that people copy.
fn base(headers: &HeaderMap) -> String {
    let host = list(headers, &header::HOST).unwrap_or_else(|| "localhost".to_owned());
    let forwarded = list(headers, &HeaderName::from_static("x-forwarded-proto"));
    let scheme = if forwarded.as_deref() == Some("https") { "https" } else { "http" };
    format!("{scheme}://{host}")
}
