//! The verdicts of a project's files, for several devices at once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::wrong::Wrong;
use crate::policy::{ExplainedFile, Explanation, code_name};
use crate::server::in_force::InForce;
use crate::server::refusal::Refusal;
use crate::server::state::State;
use crate::server::verdicts::Terms;
use crate::server::view::View;
use crate::wheel::ProjectName;

/// A file as the API tells of it: all that `explain` says, and what the CLI shows besides.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct File {
    #[serde(flatten)]
    explained: ExplainedFile,
    version: String,
    listed: bool,
}

/// The files of a project for one device.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfDevice<F> {
    pub(crate) device: String,
    pub(crate) files: Vec<F>,
}

/// The files of a project for devices.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told<F> {
    pub(crate) project: String,
    pub(crate) devices: Vec<OfDevice<F>>,
}

/// A file in short, where no device was named.
#[derive(Debug, Serialize)]
pub(super) struct Brief {
    file: String,
    sha256: String,
    version: String,
    listed: bool,
    verdict: crate::policy::Verdict,
    /// Codes of the reasons.
    codes: Vec<String>,
}

impl From<Told<File>> for Vec<Explanation> {
    fn from(told: Told<File>) -> Self {
        let explanation = |of: OfDevice<File>| Explanation {
            project: told.project.clone(),
            device: of.device,
            files: of
                .files
                .into_iter()
                .map(|File { explained, version, listed }| ExplainedFile { version, listed, ..explained })
                .collect(),
        };
        told.devices.into_iter().map(explanation).collect()
    }
}

fn whole(file: ExplainedFile) -> File {
    File { version: file.version.clone(), listed: file.listed, explained: file }
}

fn brief(file: ExplainedFile) -> Brief {
    Brief {
        codes: file.reasons.iter().map(|reason| code_name(&reason.code)).collect(),
        file: file.file,
        sha256: file.sha256,
        version: file.version,
        listed: file.listed,
        verdict: file.verdict,
    }
}

/// Every known file of a project for the views that were asked for: in full where they were named, else in short.
pub(super) async fn told(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    project: ProjectName,
    (views, named): (Vec<View>, bool),
    wanted: Option<pep440_rs::VersionSpecifiers>,
) -> Result<serde_json::Value, Refusal> {
    if named {
        for view in &views {
            // What upstreams list may have facts that are known.
            state.offered(in_force, view, &project).await?;
        }
    }
    let in_force = Arc::clone(in_force);
    let turn = state.api.explaining().await?;
    state
        .blocking(move |state| {
            let _turn = turn;
            let mut explanations: Vec<Explanation> = Vec::new();
            for view in &views {
                let device = in_force.device(&view.device)?;
                let terms = Terms { device, in_force: &in_force, scope: &view.scope };
                let Some(explanation) = state.verdicts.explain(&project, terms, wanted.as_ref())? else {
                    return Err(state.no_such_project(&project, &view.scope)?);
                };
                explanations.push(explanation);
            }
            let project = project.to_string();
            let told = if named {
                serde_json::to_value(Told { project, devices: of_devices(explanations, whole) })
            } else {
                serde_json::to_value(Told { project, devices: of_devices(explanations, brief) })
            };
            told.map_err(|error| Refusal::Defect(error.to_string()))
        })
        .await
}

fn of_devices<F>(explanations: Vec<Explanation>, file: fn(ExplainedFile) -> F) -> Vec<OfDevice<F>> {
    let of = |explanation: Explanation| OfDevice {
        device: explanation.device,
        files: explanation.files.into_iter().map(file).collect(),
    };
    explanations.into_iter().map(of).collect()
}

/// Reads version specifiers such as `>=2.5,<2.9`.
pub(super) fn specifiers(text: &str) -> Result<pep440_rs::VersionSpecifiers, Wrong> {
    text.parse()
        .map_err(|error| Wrong::Asked(format!("versions are no specifiers such as >=2.5,<2.9: {error}")))
}
