//! Why a device gets which files of a project.

use std::sync::Arc;

use bytes::Bytes;
use http::header;

use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::State;
use super::view::View;
use crate::policy::{Candidate, explain, judge};
use crate::wheel::ProjectName;

/// `GET /{device}/explain/{project}`: the verdicts of every known file, newest version first, as JSON.
pub(super) async fn project(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    project: ProjectName,
) -> Result<Reply, Refusal> {
    let id = in_force.device(&view.device)?.id.clone();
    let (in_force, view) = (Arc::clone(in_force), view.clone());
    let json = state
        .blocking(move |state| {
            let mut rows = state.store.rows(&project)?;
            rows.retain(|row| view.shows(&project, &row.facts.file, &row.facts.sha256));
            if rows.is_empty() {
                return Err(state.no_such_project(&project)?);
            }
            let device = in_force.device(&id)?;
            let candidates: Vec<Candidate> = rows
                .into_iter()
                .map(|row| {
                    let judgement = judge(&row.facts, device, &in_force.policy);
                    let listed = in_force.policy.lists(&project, judgement.verdict);
                    Candidate { facts: row.facts, held: row.held, judgement, listed }
                })
                .collect();
            let explanation = explain(&project, &device.id, &candidates, None);
            serde_json::to_vec(&explanation).map_err(|error| Refusal::Defect(error.to_string()))
        })
        .await?;
    let mut reply = Reply::bytes("application/json", Bytes::from(json));
    // It explains what a page shows now.
    reply.set(header::CACHE_CONTROL, "no-cache");
    Ok(reply)
}
