//! What is read.

use std::sync::Arc;

use bytes::Bytes;
use http::header;
use serde_json::json;

use super::query::Query;
use super::{DOCUMENT, Path, SERVER, Wrong, advisories, projects, reply, snapshots, status, tokens};
use crate::access::{Caller, Scope};
use crate::server::in_force::InForce;
use crate::server::refusal::Refusal;
use crate::server::reply::Reply;
use crate::server::state::State;

/// The `OpenAPI` document of the mirror at that URL.
pub(super) fn document(base_url: &str) -> Result<Reply, Refusal> {
    let url = serde_json::to_string(base_url).map_err(|error| Refusal::Defect(error.to_string()))?;
    let text = DOCUMENT.replacen(SERVER, &url, 1);
    let mut reply = Reply::bytes("application/json", Bytes::from(text));
    reply.set(header::CACHE_CONTROL, "no-cache");
    Ok(reply)
}

/// Reads what a path names.
pub(super) async fn read(
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
                if state.may_read(caller, &device.id) {
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
            reply(&snapshots::diff(&state.store, (from, to), &devices, &in_force.policy)?)
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
