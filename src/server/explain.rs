//! Why a device gets which files of a project.

use std::sync::Arc;

use bytes::Bytes;
use http::header;

use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::State;
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
    let (in_force, view) = (Arc::clone(in_force), view.clone());
    let json = state
        .blocking(move |state| {
            let device = in_force.device(&id)?;
            let explanation = state.verdicts.explain(&project, device, &in_force, None)?;
            let Some(mut explanation) = explanation else {
                return Err(state.no_such_project(&project)?);
            };
            explanation.files.retain(|file| {
                file.sha256.parse().is_ok_and(|sha256| view.shows(&project, &file.file, &sha256))
            });
            if explanation.files.is_empty() {
                return Err(state.no_such_project(&project)?);
            }
            serde_json::to_vec(&explanation).map_err(|error| Refusal::Defect(error.to_string()))
        })
        .await?;
    let mut reply = Reply::bytes("application/json", Bytes::from(json));
    // It explains what a page shows now.
    reply.set(header::CACHE_CONTROL, "no-cache");
    Ok(reply)
}
