//! Every route, and the only place that sees a request: handlers take parsed values.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use http::header::{self, HeaderName};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Version};
use hyper::body::Incoming;

use super::api;
use super::body::Body;
use super::clients::Origin;
use super::id::{self, RequestId};
use super::log::{Line, Logged};
use super::outbox::Outbox;
use super::pace::Pace;
use super::path::{self, Route};
use super::refusal::Refusal;
use super::reply::Reply;
use super::request_body::Received;
use super::state::State;
use super::{
    accept, device, explain, files, forwarded, health, pages, request_body, resolve, simple, upload,
};

/// Answers one request, whatever happens.
pub(super) async fn respond(
    state: Arc<State>,
    request: Request<Incoming>,
    from: SocketAddr,
    outbox: &Outbox,
    pace: &Pace,
) -> Response<Logged> {
    let _working = pace.request();
    // The kernel sends files where nothing lies between it and HTTP/1.
    let by_kernel =
        request.version() <= Version::HTTP_11 && request.extensions().get::<forwarded::Secure>().is_none();
    let head = request.method() == Method::HEAD;
    let id = RequestId::of(request.headers());
    let path = forwarded::own_path(request.uri().path(), request.headers(), prefix_of(&state));
    let (route, problem) = (path::parse(path), api::is_below(path));
    let name = route.as_ref().map_or("none", Route::name);
    let request = request.map(|body| Received::new(body, pace.clone()));
    let origin = state.clients.origin(from, request.headers());
    let line = Line::begin(&request, name, id, origin, Arc::clone(&state));
    let reply = match AssertUnwindSafe(answer(&state, route, request, origin)).catch_unwind().await {
        Ok(answered) => answered,
        Err(_) => Err(Refusal::Defect(format!("panic at {line:?}"))),
    };
    let reply = reply.unwrap_or_else(|refusal| {
        refusal.log(line.id());
        if let Refusal::NotForDevice(why) = &refusal {
            state.metrics.refused(why.code.clone());
        }
        if problem { api::problem(refusal, line.id()) } else { refusal.into_reply() }
    });
    let Reply { status, phrase, headers, mut body } = reply;
    if by_kernel {
        match &mut body {
            Body::File(file) => file.send_by(outbox.clone()),
            Body::Arriving(file) => file.send_by(outbox.clone()),
            Body::Empty | Body::Bytes(_) | Body::Pieces(..) => {}
        }
    }
    let body = if head { Body::Empty } else { body };
    let id_value = line.id().value();
    let mut response = Response::new(Logged::new(body, line, status, pace.clone()));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response.headers_mut().insert(id::HEADER, id_value);
    if let Some(phrase) = phrase {
        response.extensions_mut().insert(phrase);
    }
    response
}

/// Where a proxy has the mirror, as the configuration says.
fn prefix_of(state: &State) -> &str {
    state.prefix.get().map_or("", String::as_str)
}

async fn answer(
    state: &Arc<State>,
    route: Result<Route, Refusal>,
    request: Request<Received>,
    origin: Origin,
) -> Result<Reply, Refusal> {
    let (parts, body) = request.into_parts();
    // Whoever asks whether the mirror lives is not counted.
    if !matches!(route, Ok(Route::Health | Route::Ready))
        && let Err(seconds) = state.clients.request(origin)
    {
        request_body::discard(body).await;
        return Err(Refusal::TooMany { seconds });
    }
    if !has_one_host(&parts) {
        return Err(Refusal::Malformed(
            "a request has one Host field, and that names the host of its URL".to_owned(),
        ));
    }
    let prefix = prefix_of(state);
    let base_url = |parts: &Parts| base_url(parts, prefix);
    let is_page = matches!(parts.method, Method::GET | Method::HEAD);
    let route = match route {
        Ok(route) if is_page || route.takes_a_body() => route,
        route => {
            request_body::discard(body).await;
            let uploads = base_url(&parts).map(|base| format!("{base}/legacy/")).ok();
            return Err(route.err().unwrap_or(Refusal::ReadOnly { uploads }));
        }
    };
    let caller = state.caller(&parts.headers)?;
    let in_force = &state.in_force().await?;
    if route == Route::Upload && parts.method != Method::POST {
        return Err(Refusal::UploadsOnly);
    }
    if let Err(refusal) = state.admit(&caller, &route, in_force) {
        match route {
            Route::Upload => request_body::discard_upload(body).await,
            _ => request_body::discard(body).await,
        }
        return Err(refusal);
    }
    let headers = &parts.headers;
    match route {
        Route::Resolve { device } => {
            let body = posted(&parts, body).await?;
            let view = state.view(&device).await?;
            resolve::resolve(state, in_force, view, &base_url(&parts)?, body).await
        }
        Route::Api(path) => {
            let base_url = base_url(&parts);
            api::answer(state, in_force, &caller, (&path, &parts), base_url, body).await
        }
        Route::Upload => upload::upload(state, &caller, headers, body).await,
        Route::Reports { device } => {
            let body = posted(&parts, body).await?;
            let view = state.view(&device).await?;
            device::report(state, in_force, &view.device, body).await
        }
        Route::People(place) => {
            let posted = match parts.method {
                Method::GET | Method::HEAD => None,
                Method::POST => Some(request_body::read(body, pages::LARGEST_FORM).await?),
                _ => {
                    request_body::discard(body).await;
                    return Err(Refusal::ReadOnly { uploads: None });
                }
            };
            let asked = pages::Asked {
                base: base_url(&parts).unwrap_or_else(|_| "http://localhost".to_owned()),
                json: accept::json_over_html(list(headers, &header::ACCEPT).as_deref()),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                posted,
            };
            pages::answer(state, in_force, caller, place, asked).await
        }
        Route::Health => Ok(health::alive()),
        Route::Ready => health::ready(state, in_force).await,
        Route::Metrics => health::metrics(state, in_force).await,
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
    }
}

/// Whether a request is for one host: two mean that someone on the way reads another request than we do (RFC 9112, section 3.2;
/// RFC 9113, section 8.3.1, of a Host beside `:authority`).
fn has_one_host(parts: &Parts) -> bool {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => false,
        (None, None) => parts.version != Version::HTTP_11,
        (Some(host), None) => {
            let authority = parts.uri.authority().filter(|_| parts.version == Version::HTTP_2);
            authority
                .is_none_or(|authority| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()))
        }
    }
}

/// The body of a POST of JSON, still to be read; otherwise it is dropped and the request refused.
async fn posted(parts: &Parts, body: Received) -> Result<Received, Refusal> {
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
fn base_url(parts: &Parts, prefix: &str) -> Result<String, Refusal> {
    forwarded::base_url(parts, prefix).ok_or_else(|| {
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
        if_none_match: list(headers, &header::IF_NONE_MATCH).map(Cow::into_owned),
    })
}

/// A range is defined for GET alone.
fn file_asked(method: &Method, headers: &HeaderMap) -> files::Asked {
    let owned = |name| list(headers, name).map(Cow::into_owned);
    files::Asked {
        range: owned(&header::RANGE).filter(|_| method == Method::GET),
        if_range: owned(&header::IF_RANGE),
        if_none_match: owned(&header::IF_NONE_MATCH),
        head: method == Method::HEAD,
    }
}

/// The values of a header as one list; those that are not ASCII are left out.
fn list<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, str>> {
    let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut list = Cow::Borrowed(values.next()?);
    for value in values {
        let list = list.to_mut();
        list.push_str(", ");
        list.push_str(value);
    }
    Some(list)
}
