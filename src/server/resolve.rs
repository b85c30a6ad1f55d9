//! A consistent set of wheels for a device, over HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::request_body;
use super::state::State;
use super::verdicts::Terms;
use super::view::View;
use crate::policy::DeviceProfile;
use crate::resolve::{
    Failure, Lock, LockError, MOST_REQUESTED, Request, Requirement, Resolution, Stop, Target,
    json as set_json, pylock, requirements_txt,
};

/// The largest body, in bytes: 5,000 requirements of 200 letters.
const LARGEST_BODY: usize = 1 << 20;

/// How long one request may be worked on. One of 300 projects takes below a second.
const WORK_TIME: Duration = Duration::from_secs(20);

/// How many requests may be at it or wait for their turn; more are told to come again.
const WAITING: usize = 32;

/// How many are worked on at once: pages and files should not have to wait for them.
const AT_ONCE: usize = 2;

/// What bounds the requests that are resolved.
#[derive(Debug)]
pub(super) struct Resolving {
    places: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

impl Default for Resolving {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(WAITING)), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// The body of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    requirements: Vec<String>,
    #[serde(default)]
    constraints: Vec<String>,
    /// A `pylock.toml` whose pins are required as well.
    lock: Option<String>,
    #[serde(default)]
    prereleases: bool,
    #[serde(default)]
    output: Output,
}

/// Forms of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Output {
    #[default]
    Json,
    Pylock,
    Requirements,
}

/// What is asked for, or the refusal of a lock that was made for another device.
#[derive(Debug)]
enum Asked {
    Request(Box<Request>, Output),
    OtherDevice(String),
}

/// `POST /{device}/resolve`: a set, or 409 with why there is none.
pub(super) async fn resolve(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: View,
    base_url: &str,
    body: request_body::Received,
) -> Result<Reply, Refusal> {
    let id = in_force.device(&view.device)?.id.clone();
    // What is answered leads back to where it was asked for: to the same snapshot, or the same channel.
    let device_url = format!("{base_url}/{}", view.segment(&id));
    let _place = Arc::clone(&state.resolving.places).try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let (request, output) = match asked(&request_body::read(body, LARGEST_BODY).await?, &id)? {
        Asked::Request(request, output) => (*request, output),
        Asked::OtherDevice(text) => return no_set(&id, &json!({"text": text, "causes": []})),
    };
    let turn = Arc::clone(&state.resolving.turns).acquire_owned().await.map_err(|_| Refusal::Busy)?;
    // Work ends with whoever waits for it: after the time limit, and when the client goes.
    let stop = Stopper(request.stop.clone());
    let in_force = Arc::clone(in_force);
    let work = state.blocking(move |state| {
        let _turn = turn;
        let terms = Terms { device: in_force.device(&id)?, in_force: &in_force, scope: &view.scope };
        match state.verdicts.resolve(&request, terms, &device_url) {
            Ok(resolution) => set(&resolution, terms.device, output, &device_url),
            Err(Failure::Unsatisfiable(explanation)) => no_set(&id, &*explanation),
            Err(Failure::Limit(limit)) => no_set(&id, &json!({"text": limit.to_string(), "causes": []})),
            Err(Failure::Request(error)) => {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                Err(Refusal::Malformed(format!("{error}{}", source.unwrap_or_default())))
            }
            Err(Failure::Index(error)) => Err(error.into()),
        }
    });
    tokio::pin!(work);
    if let Ok(reply) = tokio::time::timeout(WORK_TIME, &mut work).await {
        return reply;
    }
    stop.0.stop();
    work.await
}

/// Stops the work when it is dropped.
struct Stopper(Stop);

impl Drop for Stopper {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn asked(body: &[u8], device: &str) -> Result<Asked, Refusal> {
    let body: Body = serde_json::from_slice(body).map_err(|error| {
        Refusal::Malformed(format!(
            "the body is not what resolve takes, such as {{\"requirements\": [\"torch>=2.4\"], \"constraints\": [], \
             \"output\": \"json\"}}: {error}"
        ))
    })?;
    let mut request = Request { prereleases: body.prereleases, ..Request::default() };
    let mut texts = body.requirements;
    if let Some(lock) = &body.lock {
        match Lock::read(lock, device) {
            Ok(lock) => texts.extend(lock.pins),
            Err(error @ LockError::OtherDevice { .. }) => return Ok(Asked::OtherDevice(error.to_string())),
            Err(error) => {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                return Err(Refusal::Malformed(format!("lock: {error}{}", source.unwrap_or_default())));
            }
        }
    }
    let count = texts.len().saturating_add(body.constraints.len());
    if count > MOST_REQUESTED {
        return Err(Refusal::Malformed(format!(
            "{count} requirements and constraints are too many: at most {MOST_REQUESTED} are taken"
        )));
    }
    for (name, texts, into) in [
        ("requirements", &texts, &mut request.requirements),
        ("constraints", &body.constraints, &mut request.constraints),
    ] {
        for (at, text) in texts.iter().enumerate() {
            let requirement: Requirement =
                text.parse().map_err(|error| Refusal::Malformed(format!("{name}[{at}]: {error}")))?;
            into.push(requirement);
        }
    }
    if request.requirements.is_empty() {
        return Err(Refusal::Malformed("requirements is empty: name at least one project".to_owned()));
    }
    Ok(Asked::Request(Box::new(request), body.output))
}

fn set(
    resolution: &Resolution,
    device: &DeviceProfile,
    output: Output,
    device_url: &str,
) -> Result<Reply, Refusal> {
    let index_url = format!("{device_url}/simple/");
    let target = Target::of(device);
    let mut reply = match output {
        Output::Json => json_reply(&set_json(resolution, &device.id))?,
        Output::Pylock => {
            Reply::bytes("application/toml", Bytes::from(pylock(resolution, &target, &index_url)))
        }
        Output::Requirements => {
            let text = requirements_txt(resolution, &target, &index_url);
            Reply::bytes("text/plain; charset=utf-8", Bytes::from(text))
        }
    };
    reply.set(header::CACHE_CONTROL, "no-store");
    Ok(reply)
}

fn no_set(device: &str, error: &impl serde::Serialize) -> Result<Reply, Refusal> {
    let mut reply = json_reply(&json!({"device": device, "error": error}))?;
    reply.status = StatusCode::CONFLICT;
    reply.set(header::CACHE_CONTROL, "no-store");
    Ok(reply)
}

fn json_reply(value: &serde_json::Value) -> Result<Reply, Refusal> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| Refusal::Defect(error.to_string()))?;
    bytes.push(b'\n');
    Ok(Reply::bytes("application/json", Bytes::from(bytes)))
}
