//! `/api/v1`: the admin API. `openapi.json` tells programs what `docs/HTTP.md` tells people.
//!
//! What commands and the API both tell and do is in the modules of their nouns, whose values are the JSON of either.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::form_urlencoded;

use super::id::RequestId;
use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::request_body;
use super::state::State;
use crate::access::{Caller, Scope};
use crate::store::{AuditEntry, NewSnapshot};

pub(crate) mod advisories;
pub(crate) mod evidence;
pub(crate) mod jobs;
mod path;
pub(crate) mod projects;
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
    body: Incoming,
) -> Result<Reply, Refusal> {
    if let Err(refusal) = may(state, in_force, caller, (path, parts)) {
        request_body::discard(body).await;
        return Err(refusal);
    }
    if matches!(parts.method, Method::GET | Method::HEAD) {
        let query = Query::of(parts);
        return match path {
            Path::Document => document(&base_url?),
            _ => read(state, in_force, caller, path, query).await,
        };
    }
    let limit = if *path == Path::Sync { LARGEST_ORDER } else { LARGEST_BODY };
    let body = request_body::read(body, limit).await?;
    let who = format!("token:{}", caller.name.as_deref().unwrap_or_default());
    if *path == Path::Sync {
        return sync(state, in_force, &who, &body);
    }
    let (path, in_force, method) = (path.clone(), Arc::clone(in_force), parts.method.clone());
    state.blocking(move |state| change(state, &in_force, &who, (&path, &method), &body)).await
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
        Scope::Read => state.admit_to(caller, Scope::Read, None, in_force),
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

/// The parameters of a URL.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(parts: &Parts) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    fn all(&self, name: &str) -> Result<Vec<String>, Wrong> {
        let values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone());
        let values: Vec<String> = values.take(MOST_DEVICES.saturating_add(1)).collect();
        if values.len() > MOST_DEVICES {
            return Err(Wrong::Asked(format!("{name} is given more than {MOST_DEVICES} times")));
        }
        Ok(values)
    }

    fn one(&self, name: &str) -> Result<Option<String>, Wrong> {
        let mut values = self.all(name)?;
        let value = values.pop();
        if values.is_empty() {
            Ok(value)
        } else {
            Err(Wrong::Asked(format!("{name} is given more than once")))
        }
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Wrong> {
        let number = |text: String| {
            let number = text.parse().ok().and_then(|number: i64| u64::try_from(number).ok());
            number.ok_or_else(|| {
                Wrong::Asked(format!(
                    "{name} is {:?}, expected a number of at most 63 bits",
                    super::refusal::cut(&text)
                ))
            })
        };
        self.one(name)?.map(number).transpose()
    }
}

fn document(base_url: &str) -> Result<Reply, Refusal> {
    let url = serde_json::to_string(base_url).map_err(|error| Refusal::Defect(error.to_string()))?;
    let text = DOCUMENT.replacen(SERVER, &url, 1);
    let mut reply = Reply::bytes("application/json", Bytes::from(text));
    reply.set(header::CACHE_CONTROL, "no-cache");
    Ok(reply)
}

async fn read(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    caller: &Caller,
    path: &Path,
    query: Query,
) -> Result<Reply, Refusal> {
    if let Path::Project(project) = path {
        let named = query.all("device")?;
        let wanted = query.one("versions")?.map(|text| projects::specifiers(&text)).transpose()?;
        let mut views = Vec::new();
        for device in &named {
            let view = state.view(device).await?;
            in_force.device(&view.device)?;
            state.admit_to(caller, Scope::Read, Some(device.as_str()), in_force)?;
            views.push(view);
        }
        if named.is_empty() {
            for device in in_force.policy.devices() {
                if state.admit_to(caller, Scope::Read, Some(device.id.as_str()), in_force).is_ok() {
                    views.push(state.view(&device.id).await?);
                }
            }
        }
        let views = (views, !named.is_empty());
        return reply(&projects::told(state, in_force, project.clone(), views, wanted).await?);
    }
    let (path, in_force) = (path.clone(), Arc::clone(in_force));
    state.blocking(move |state| look(state, &in_force, &path, &query)).await
}

/// What is read, all but verdicts. Blocks.
fn look(state: &State, in_force: &InForce, path: &Path, query: &Query) -> Result<Reply, Refusal> {
    let store = &*state.store;
    match path {
        Path::Status => reply(&status::told(state, in_force, state.api.jobs.running())?),
        Path::Devices => reply(&json!({ "devices": in_force.policy.devices().collect::<Vec<_>>() })),
        Path::Projects => reply(&json!({ "projects": &*state.names()? })),
        Path::Snapshots => reply(&snapshots::list(store)),
        Path::Snapshot(selector) => {
            reply(&store.snapshot(&snapshots::find(store, selector)?).map_err(Wrong::from)?)
        }
        Path::Diff(from, to) => {
            let devices = query.all("device")?;
            reply(&snapshots::diff(store, (from, to), &devices, &in_force.policy)?)
        }
        Path::Advisories => {
            let device = query.one("device")?;
            let device = device.map(|id| snapshots::device(&in_force.policy, &id)).transpose()?;
            let all = in_force.policy.advisories().iter();
            let advisories =
                all.filter(|advisory| device.is_none_or(|device| advisory.concerns(device))).collect();
            reply(&advisories::List { advisories })
        }
        Path::Tokens => reply(&tokens::list(store)?),
        Path::Job(id) => {
            let from = query.number("from")?.unwrap_or(0);
            let unknown = || {
                Wrong::Unknown("there is no such job; the last 32 are remembered, until a restart".to_owned())
            };
            reply(&state.api.jobs.told(id, from).ok_or_else(unknown)?)
        }
        Path::Audit => {
            let mut entries = store.audit()?;
            let last =
                query.number("last")?.map_or(usize::MAX, |last| usize::try_from(last).unwrap_or(usize::MAX));
            let entries = entries.split_off(entries.len().saturating_sub(last));
            reply(&json!({ "changes": entries }))
        }
        _ => Err(Refusal::NoSuchPage),
    }
}

/// A body of JSON; none at all is an empty object.
fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Wrong> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| Wrong::Asked(format!("the body is not what this takes: {error}")))
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CreateSnapshot {
    name: Option<String>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Promote {
    #[serde(default = "candidate")]
    snapshot: String,
    require_reports: Option<std::num::NonZeroU16>,
    #[serde(default)]
    devices: Vec<String>,
}

fn candidate() -> String {
    "candidate".to_owned()
}

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Changes something, and notes who did. Blocks.
fn change(
    state: &State,
    in_force: &InForce,
    who: &str,
    (path, method): (&Path, &Method),
    body: &[u8],
) -> Result<Reply, Refusal> {
    let store = &*state.store;
    let note = |action: &str, what| store.put_audit(&AuditEntry::now(who, action, what));
    match path {
        Path::Snapshots => {
            let CreateSnapshot { name } = parsed(body)?;
            let new = state.api.hands()?.new_snapshot("create", name).map_err(Wrong::Stands)?;
            let made_one = snapshots::create(store, &new)?;
            let made_one = made_one.ok_or_else(|| Refusal::Defect("no snapshot was made".to_owned()))?;
            note("snapshot create", json!({ "snapshot": made_one.head.id }))?;
            made(StatusCode::CREATED, &format!("snapshots/{}", made_one.head.id), &made_one)
        }
        Path::Snapshot(selector) => {
            let id = snapshots::remove(store, selector)?;
            note("snapshot remove", json!({ "snapshot": id }))?;
            reply(&json!({ "removed": id }))
        }
        Path::Channel(channel) => promote(state, in_force, channel, parsed(body)?, note),
        Path::Rollback(channel) => {
            let Nothing {} = parsed(body)?;
            moved(&snapshots::move_channel(store, channel, None)?, note)
        }
        Path::Advisory(id) => {
            let _turn = state.api.policy_turn.lock().unwrap_or_else(PoisonError::into_inner);
            if *method == Method::DELETE {
                let removed = advisories::remove(&state.policies, id)?;
                note("advisory remove", json!({ "id": id }))?;
                return reply(&removed);
            }
            let written = advisories::write(&state.policies, advisories::read(id, body)?)?;
            note("advisory write", json!(written))?;
            reply(&written)
        }
        Path::Tokens => {
            let told = tokens::create(store, parsed(body)?)?;
            note("token create", told.noted())?;
            made(StatusCode::CREATED, &format!("tokens/{}", told.name), &told)
        }
        Path::Token(name) => {
            let revoked = tokens::revoke(store, name)?;
            note("token revoke", json!({ "name": name }))?;
            reply(&revoked)
        }
        _ => Err(Refusal::NoSuchPage),
    }
}

type Noted = Result<(), crate::store::Error>;

fn promote(
    state: &State,
    in_force: &InForce,
    channel: &str,
    asked: Promote,
    note: impl FnOnce(&str, serde_json::Value) -> Noted,
) -> Result<Reply, Refusal> {
    let store = &*state.store;
    let Promote { snapshot, require_reports, devices } = asked;
    if devices.len() > MOST_DEVICES {
        return Err(Wrong::Asked(format!("devices are more than {MOST_DEVICES}")).into());
    }
    let id = snapshots::find(store, &snapshot)?;
    if let Some(required) = require_reports {
        let frozen = store.snapshot(&id).map_err(Wrong::from)?;
        let required = usize::from(required.get());
        let lacking = evidence::lacking(store, &in_force.policy, &frozen, &devices, required)?;
        if !lacking.is_empty() {
            let status = StatusCode::CONFLICT;
            let body = json!({
                "type": "about:blank", "title": "Conflict", "status": status.as_u16(), "kind": "too-few-reports",
                "detail": format!("{channel} stays as it is: {id} has too few reports"),
                "channel": channel, "snapshot": id, "lacking": lacking,
            });
            let mut reply = Reply::bytes("application/problem+json", json_bytes(&body)?);
            reply.status = status;
            reply.set(header::CACHE_CONTROL, "no-store");
            return Ok(reply);
        }
    }
    moved(&snapshots::move_channel(store, channel, Some(id))?, note)
}

fn moved(
    moved: &snapshots::Moved,
    note: impl FnOnce(&str, serde_json::Value) -> Noted,
) -> Result<Reply, Refusal> {
    note("snapshot channel", json!(moved))?;
    reply(moved)
}

/// Starts a sync.
fn sync(state: &State, in_force: &InForce, who: &str, body: &[u8]) -> Result<Reply, Refusal> {
    let order: SyncOrder = parsed(body)?;
    if order.devices.is_empty() || order.devices.len() > MOST_DEVICES {
        return Err(Wrong::Asked(format!("devices are to be between 1 and {MOST_DEVICES}")).into());
    }
    for id in &order.devices {
        snapshots::device(&in_force.policy, id)?;
    }
    if order.requirements.is_empty() && !order.all {
        return Err(Wrong::Asked("nothing is asked for: name requirements, or say all".to_owned()).into());
    }
    let hands = state.api.hands()?;
    let name = who.to_owned();
    let told = state.api.jobs.start(who, move |say| hands.sync(order, &name, say))?;
    made(StatusCode::ACCEPTED, &format!("jobs/{}", told.id), &told)
}
