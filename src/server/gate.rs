//! Who may come in: the token of a request against what its route needs.

use std::sync::Arc;

use http::{HeaderMap, header};
use jiff::Timestamp;

use super::in_force::InForce;
use super::pages::Place;
use super::path::Route;
use super::refusal::Refusal;
use super::state::State;
use crate::access::{Caller, Presented, Reading, Scope};

impl State {
    /// Who asks. Blocks the first time alone, when the tokens are read.
    pub(super) fn caller(self: &Arc<Self>, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let Some(authorization) = headers.get(header::AUTHORIZATION) else { return Ok(Caller::default()) };
        let presented = Presented::parse(authorization.as_bytes());
        let tokens = self.store.tokens()?;
        let caller = Caller::of(&presented, &tokens, Timestamp::now());
        if caller.name.is_some()
            && let Presented::Secret(secret) = &presented
            && let Some(token) = tokens.find(secret)
            && self.store.note_use(token)
        {
            let state = Arc::clone(self);
            tokio::task::spawn_blocking(move || {
                if let Err(error) = state.store.write_uses() {
                    tracing::warn!(%error, "the last uses of tokens could not be noted");
                }
            });
        }
        Ok(caller)
    }

    /// Whether the caller may have what a route yields.
    pub(super) fn admit(&self, caller: &Caller, route: &Route, in_force: &InForce) -> Result<(), Refusal> {
        let (scope, device) = match route {
            // The API asks by method, once it knows the caller. Neither do style and script tell anything of the mirror.
            Route::Health
            | Route::Ready
            | Route::Moved(_)
            | Route::Api(_)
            | Route::People(Place::Static { .. }) => return Ok(()),
            // Whatever changes the mirror needs a token, wherever it comes from.
            Route::Upload => return Ok(caller.check(Scope::Upload, &[])?),
            Route::People(Place::Device { id }) => (Scope::Read, Some(id)),
            Route::People(_) | Route::Metrics => (Scope::Read, None),
            Route::Projects { device }
            | Route::Project { device, .. }
            | Route::Wheel { device, .. }
            | Route::Metadata { device, .. }
            | Route::Explain { device, .. }
            | Route::Resolve { device }
            | Route::Setup { device }
            | Route::Check { device } => (Scope::Read, Some(device)),
            Route::Reports { device } => (Scope::Report, Some(device)),
        };
        let known = self.admit_to(caller, scope, device.map(String::as_str), in_force)?;
        if let (Some(known), false) = (known, matches!(route, Route::People(_))) {
            self.used.note(known);
        }
        Ok(())
    }

    /// Whether the caller may have what is of a device, or what is of none; yields the id that the policy calls the device.
    pub(super) fn admit_to<'p>(
        &self,
        caller: &Caller,
        scope: Scope,
        device: Option<&str>,
        in_force: &'p InForce,
    ) -> Result<Option<&'p str>, Refusal> {
        // As the URL has it, without a snapshot, and as the policy calls the same device: a rule may name either.
        let asked = device.map(|device| device.split_once('@').map_or(device, |(device, _)| device));
        let known = asked.and_then(|asked| in_force.policy.device(asked)).map(|device| device.id.as_str());
        let names: Vec<&str> = asked.into_iter().chain(known).collect();
        if self.rules.reading(&names) != Reading::Open {
            caller.check(scope, &names)?;
        }
        Ok(known)
    }

    /// Whether the caller may read what is there for a device, by the id that the policy calls it.
    pub(super) fn may_read(&self, caller: &Caller, device: &str) -> bool {
        self.rules.reading(&[device]) == Reading::Open || caller.check(Scope::Read, &[device]).is_ok()
    }
}
