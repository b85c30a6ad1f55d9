//! Every route, and the only place that sees a request: handlers take parsed values.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Version};
use hyper::body::Incoming;

use super::body::Body;
use super::log::{Line, Logged};
use super::outbox::Outbox;
use super::path::{self, Route};
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::State;
use super::{accept, device, explain, files, forwarded, health, pages, request_body, resolve, simple};

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
    match path::parse(parts.uri.path()) {
        Ok(Route::Resolve { device }) => {
            let body = posted(&parts, body).await?;
            let in_force = &state.in_force().await?;
            let view = state.view(&device).await?;
            return resolve::resolve(state, in_force, view, &base_url(&parts)?, body).await;
        }
        Ok(Route::Reports { device }) => {
            let body = posted(&parts, body).await?;
            let in_force = &state.in_force().await?;
            let view = state.view(&device).await?;
            return device::report(state, in_force, &view.device, body).await;
        }
        route if parts.method != Method::GET && parts.method != Method::HEAD => {
            request_body::discard(body).await;
            return Err(route.err().unwrap_or(Refusal::ReadOnly));
        }
        _ => {}
    }
    let headers = &parts.headers;
    let in_force = &state.in_force().await?;
    match path::parse(parts.uri.path())? {
        Route::Home => Ok(pages::home(in_force, &base(headers))),
        Route::Health => Ok(health::alive()),
        Route::Ready => health::ready(state, in_force).await,
        Route::Moved(to) => Ok(Reply::moved(&to)),
        Route::Projects { device } => {
            let view = &state.view(&device).await?;
            simple::projects(state, in_force, view, page_asked(headers)?).await
        }
        Route::Project { device, project } => {
            let view = &state.view(&device).await?;
            simple::project(state, in_force, view, project, page_asked(headers)?).await
        }
        Route::Wheel { device, sha256, filename } => {
            let asked = file_asked(&parts.method, headers);
            let view = &state.view(&device).await?;
            files::wheel(state, in_force, view, sha256, filename, asked).await
        }
        Route::Metadata { device, sha256, filename } => {
            let asked = file_asked(&parts.method, headers);
            let view = &state.view(&device).await?;
            files::metadata(state, in_force, view, sha256, filename, asked).await
        }
        Route::Explain { device, project } => {
            let view = &state.view(&device).await?;
            explain::project(state, in_force, view, project).await
        }
        Route::Setup { device } => device::setup(in_force, &state.view(&device).await?, &base_url(&parts)?),
        Route::Check { device } => device::check(in_force, &state.view(&device).await?, &base_url(&parts)?),
        Route::Resolve { .. } | Route::Reports { .. } => Err(Refusal::PostOnly),
    }
}

/// The body of a POST of JSON, still to be read; otherwise it is dropped and the request refused.
async fn posted(parts: &Parts, body: Incoming) -> Result<Incoming, Refusal> {
    let refusal =
        if parts.method == Method::POST { not_json(&parts.headers) } else { Some(Refusal::PostOnly) };
    match refusal {
        None => Ok(body),
        Some(refusal) => {
            request_body::discard(body).await;
            Err(refusal)
        }
    }
}

/// How the client reached the mirror.
fn base_url(parts: &Parts) -> Result<String, Refusal> {
    forwarded::base_url(parts).ok_or_else(|| {
        Refusal::Malformed(
            "the Host or X-Forwarded-* headers do not tell how this mirror is reached".to_owned(),
        )
    })
}

/// Why a body of that type is not taken. None at all, and the one that curl claims for any body, are taken for JSON.
fn not_json(headers: &HeaderMap) -> Option<Refusal> {
    let value = headers.get(header::CONTENT_TYPE)?;
    let text = value.to_str().unwrap_or("not text").to_ascii_lowercase();
    let kind = text.split(';').next().unwrap_or_default().trim();
    let taken = kind == "application/json"
        || kind == "application/x-www-form-urlencoded"
        || (kind.starts_with("application/") && kind.ends_with("+json"));
    (!taken).then(|| Refusal::NotJson(super::refusal::cut(&text)))
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
        head: method == Method::HEAD,
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
