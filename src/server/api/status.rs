//! How the mirror stands.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::server::in_force::InForce;
use crate::server::refusal::Refusal;
use crate::server::state::State;
use crate::store::{Channel, Reached, Recovery};

/// How the mirror stands.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    version: &'static str,
    store: Store,
    channels: BTreeMap<&'static str, Channel>,
    upstreams: BTreeMap<String, Reached>,
    policy: Policy,
    /// Whether pages and files come from upstreams as well.
    pull: bool,
    /// Id of the sync that runs by the API.
    job: Option<String>,
}

#[derive(Debug, Serialize)]
struct Store {
    revision: u64,
    wheels: u64,
    bytes: u64,
    free_bytes: u64,
    snapshots: usize,
    /// What had to be done to get the catalogue back, since the start.
    recovery: Option<Recovery>,
}

#[derive(Debug, Serialize)]
struct Policy {
    generation: u64,
    /// Why the policy folder cannot be used as it is.
    error: Option<String>,
}

/// Tells. Blocks.
pub(super) fn told(state: &State, in_force: &InForce, job: Option<String>) -> Result<Told, Refusal> {
    let held = state.held()?;
    Ok(Told {
        version: env!("CARGO_PKG_VERSION"),
        store: Store {
            revision: state.store.revision(),
            wheels: held.wheels,
            bytes: held.bytes,
            free_bytes: state.store.free_bytes()?,
            snapshots: state.store.snapshots().len(),
            recovery: state.store.recovery(),
        },
        channels: state.store.channels().into_iter().collect(),
        upstreams: state.store.reached()?,
        policy: Policy { generation: in_force.generation, error: in_force.broken.clone() },
        pull: state.pull.get().is_some(),
        job,
    })
}
