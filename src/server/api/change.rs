//! What is changed, and noted in the audit log.

use std::sync::PoisonError;

use http::{Method, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    MOST_DEVICES, Path, SyncOrder, Wrong, advisories, evidence, json_bytes, made, reply, snapshots, tokens,
};
use crate::server::in_force::InForce;
use crate::server::refusal::Refusal;
use crate::server::reply::Reply;
use crate::server::state::State;
use crate::store::{self, AuditEntry};

/// A body of JSON; none at all is an empty object.
fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Wrong> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| Wrong::Asked(format!("the body is not what this takes: {error}")))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CreateSnapshot {
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Changes something, and notes who did. Blocks.
pub(super) fn change(
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

type Noted = Result<(), store::Error>;

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
    for id in &devices {
        snapshots::device(&in_force.policy, id)?;
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
pub(super) fn sync(state: &State, in_force: &InForce, who: &str, body: &[u8]) -> Result<Reply, Refusal> {
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
