//! Why a device gets which files of a project.

use std::sync::Arc;

use bytes::Bytes;
use http::header;

use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::State;
use super::verdicts::Terms;
use super::view::View;
use crate::wheel::ProjectName;

/// `GET /{device}/explain/{project}`: the verdicts of every known file, newest version first, as JSON.
pub(super) async fn project(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    project: ProjectName,
) -> Result<Reply, Refusal> {
    let id = in_force.device(&view.device)?.id.clone();
    // What upstreams list may have facts that are known.
    state.offered(in_force, view, &project).await?;
    let (in_force, scope) = (Arc::clone(in_force), view.scope.clone());
    let json = state
        .blocking(move |state| {
            let terms = Terms { device: in_force.device(&id)?, in_force: &in_force, scope: &scope };
            let Some(explanation) = state.verdicts.explain(&project, terms, None)? else {
                return Err(state.no_such_project(&project, &scope)?);
            };
            serde_json::to_vec(&explanation).map_err(|error| Refusal::Defect(error.to_string()))
        })
        .await?;
    let mut reply = Reply::bytes("application/json", Bytes::from(json));
    // It explains what a page shows now.
    reply.set(header::CACHE_CONTROL, "no-cache");
    Ok(reply)
}
