//! `/api/v1`: the admin API. `openapi.json` tells programs what `docs/HTTP.md` tells people.
//!
//! What commands and the API both tell and do is in the modules of their nouns, whose values are the JSON of either.

use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::id::RequestId;
use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::request_body;
use super::state::State;
use crate::access::{Caller, Scope};
use crate::store::NewSnapshot;

pub(crate) mod advisories;
mod change;
pub(crate) mod evidence;
pub(crate) mod jobs;
mod look;
mod path;
pub(crate) mod projects;
mod query;
pub(crate) mod snapshots;
mod status;
pub(crate) mod tokens;
mod wrong;

pub use jobs::{Say, SyncEnd, SyncOrder};
pub(super) use path::Path;
pub(crate) use wrong::Wrong;

/// The `OpenAPI` document, with a place for the URL of the mirror.
const DOCUMENT: &str = include_str!("openapi.json");

/// The URL in it.
const SERVER: &str = "\"http://127.0.0.1:8080\"";

/// The largest body of a change, in bytes.
const LARGEST_BODY: usize = 64 << 10;

/// The largest order of a sync, in bytes: 5,000 requirements of 200 letters.
const LARGEST_ORDER: usize = 1 << 20;

/// The most devices that one request names.
const MOST_DEVICES: usize = 64;

/// How many requests for verdicts of projects are worked on at once: pages and files should not have to wait for them.
const EXPLAINED_AT_ONCE: usize = 2;

/// What the server itself cannot do: it has neither upstreams nor the files of the policy. `cli` wires it.
pub trait Hands: fmt::Debug + Send + Sync {
    /// What a new snapshot says of itself. An error is a sentence. Blocks.
    fn new_snapshot(&self, reason: &str, name: Option<String>) -> Result<NewSnapshot, String>;

    /// Does what `jetwheel sync` does, in the name of somebody. Blocks until it is done.
    fn sync(&self, order: SyncOrder, who: &str, say: Say) -> SyncEnd;
}

/// What requests of the API share.
#[derive(Debug)]
pub(super) struct Api {
    /// None where nobody wired any.
    pub(super) hands: Option<Arc<dyn Hands>>,
    jobs: jobs::Jobs,
    explained: Arc<Semaphore>,
    policy_turn: Mutex<()>,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            hands: None,
            jobs: jobs::Jobs::default(),
            explained: Arc::new(Semaphore::new(EXPLAINED_AT_ONCE)),
            policy_turn: Mutex::new(()),
        }
    }
}

impl Api {
    fn hands(&self) -> Result<Arc<dyn Hands>, Wrong> {
        let hands = self.hands.as_ref().map(Arc::clone);
        hands.ok_or_else(|| Wrong::Stands("this server only reads its store".to_owned()))
    }

    async fn explaining(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.explained).acquire_owned().await.map_err(|_| Refusal::Busy)
    }
}

/// Whether a raw path is one of the API, known or not: errors are then problem details.
pub(super) fn is_below(path: &str) -> bool {
    path.starts_with("/api/")
}

/// The problem details of RFC 9457.
pub(super) fn problem(refusal: Refusal, id: &RequestId) -> Reply {
    let status = refusal.status();
    let mut body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("refused"),
        "status": status.as_u16(),
        "detail": refusal.to_string().trim_end(),
        "request_id": id.to_string(),
    });
    if let Some(kind) = refusal.kind() {
        body["kind"] = kind.into();
    }
    let mut reply = refusal.into_reply();
    let whole = json_bytes(&body).map(|bytes| Reply::bytes("application/problem+json", bytes));
    if let Ok(whole) = whole {
        for (name, value) in &whole.headers {
            reply.headers.insert(name, value.clone());
        }
        reply.body = whole.body;
    }
    reply
}

fn json_bytes(value: &impl Serialize) -> Result<Bytes, Refusal> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| Refusal::Defect(error.to_string()))?;
    bytes.push(b'\n');
    Ok(Bytes::from(bytes))
}

fn reply(value: &impl Serialize) -> Result<Reply, Refusal> {
    let mut reply = Reply::bytes("application/json", json_bytes(value)?);
    reply.set(header::CACHE_CONTROL, "no-store");
    Ok(reply)
}

/// An answer with a status and the place of what was made, relative to the request's URL.
fn made(status: StatusCode, place: &str, value: &impl Serialize) -> Result<Reply, Refusal> {
    let mut reply = reply(value)?;
    reply.status = status;
    reply.set(header::LOCATION, place);
    Ok(reply)
}

/// Answers a request of the API.
pub(super) async fn answer(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    caller: &Caller,
    (path, parts): (&Path, &Parts),
    base_url: Result<String, Refusal>,
    body: request_body::Received,
) -> Result<Reply, Refusal> {
    if let Err(refusal) = may(state, in_force, caller, (path, parts)) {
        request_body::discard(body).await;
        return Err(refusal);
    }
    if matches!(parts.method, Method::GET | Method::HEAD) {
        let query = query::Query::of(parts);
        return match path {
            Path::Document => look::document(&base_url?),
            _ => look::read(state, in_force, caller, path, query).await,
        };
    }
    let limit = if *path == Path::Sync { LARGEST_ORDER } else { LARGEST_BODY };
    let body = request_body::read(body, limit).await?;
    let who = format!("token:{}", caller.name.as_deref().unwrap_or_default());
    if *path == Path::Sync {
        return change::sync(state, in_force, &who, &body);
    }
    let (path, in_force, method) = (path.clone(), Arc::clone(in_force), parts.method.clone());
    state.blocking(move |state| change::change(state, &in_force, &who, (&path, &method), &body)).await
}

/// Whether the method is one of the resource's, and the caller may.
fn may(
    state: &State,
    in_force: &InForce,
    caller: &Caller,
    (path, parts): (&Path, &Parts),
) -> Result<(), Refusal> {
    let method = &parts.method;
    if !path.allows(method) {
        return Err(Refusal::Method(path.allow()));
    }
    match path.needs(method) {
        // So that a program learns how to ask.
        Scope::Read if *path == Path::Document => Ok(()),
        Scope::Read => state.admit_to(caller, Scope::Read, None, in_force).map(drop),
        scope => {
            if !matches!(*method, Method::GET | Method::HEAD) {
                of_this_site(&parts.headers)?;
            }
            Ok(caller.check(scope, &[])?)
        }
    }
}

/// A browser remembers a token that its user typed in, and sends it along with what a page of another site makes it ask for:
/// with a `Sec-Fetch-Site` that says so, and as a form, whose type is never JSON.
fn of_this_site(headers: &HeaderMap) -> Result<(), Refusal> {
    let site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or("other"));
    if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(Refusal::OtherSite);
    }
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = kind.to_str().unwrap_or("not text").to_ascii_lowercase();
    let kind = text.split(';').next().unwrap_or_default().trim();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    Err(Refusal::NotJson(super::refusal::cut(&text)))
}
