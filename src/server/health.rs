//! Whether the mirror lives, and whether it serves what it should.

use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, header};
use serde_json::json;

use super::in_force::InForce;
use super::metrics;
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::State;

/// `GET /healthz`: the process answers.
pub(super) fn alive() -> Reply {
    let mut reply = Reply::text(StatusCode::OK, Bytes::from_static(b"ok\n"));
    reply.set(header::CACHE_CONTROL, "no-store");
    reply
}

/// `GET /metrics`, for Prometheus.
pub(super) async fn metrics(state: &Arc<State>, in_force: &Arc<InForce>) -> Result<Reply, Refusal> {
    let in_force = Arc::clone(in_force);
    let text = state.blocking(move |state| metrics::render(state, &in_force)).await?;
    let mut reply = Reply::bytes(metrics::CONTENT_TYPE, Bytes::from(text));
    reply.set(header::CACHE_CONTROL, "no-store");
    Ok(reply)
}

/// `GET /readyz`: the store answers, and how old is what it has of each upstream. A policy folder that cannot be used is told but does not make the mirror unready, for it
/// serves by the last good one.
pub(super) async fn ready(state: &Arc<State>, in_force: &InForce) -> Result<Reply, Refusal> {
    let (revision, upstreams) =
        state.blocking(|state| Ok((state.store.revision(), state.store.reached()?))).await?;
    let text = json!({
        "ready": true,
        "store": {"revision": revision},
        "upstreams": upstreams,
        "policy": {"generation": in_force.generation, "error": in_force.broken},
    });
    let mut reply = Reply::bytes("application/json", Bytes::from(format!("{text}\n")));
    reply.set(header::CACHE_CONTROL, "no-store");
    Ok(reply)
}
