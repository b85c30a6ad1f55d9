//! What the resolver cannot know of a request without an answer.

use std::fmt::Write as _;
use std::sync::Arc;

use super::super::Error;
use super::super::plan::Knowledge;
use super::super::view::{Excluded, Found};
use super::Sets;
use super::goal::{Goal, Outcome, Role};
use crate::policy::{self, DeviceProfile};
use crate::wheel::ProjectName;

/// Other profiles that are tried where a request has no answer.
const MOST_ELSEWHERE: usize = 8;

impl Sets {
    /// Adds to explanations what the resolver cannot know: other devices, and what nobody has inspected yet.
    pub(super) async fn explain(&self, goals: &mut [Goal]) -> Result<(), Error> {
        for goal in goals.iter_mut().filter(|goal| goal.role == Role::Whole) {
            let (Outcome::None(explanation), Some(device)) =
                (&mut goal.outcome, self.devices.get(goal.device))
            else {
                continue;
            };
            let open: Vec<String> =
                explanation.instead.iter().filter(|pin| !self.is_admitted(pin, device)).cloned().collect();
            if !open.is_empty() {
                let _infallible = write!(
                    explanation.text,
                    "\nNobody has inspected {} here yet: names and pins rule nothing out, the content may.",
                    open.join(", ")
                );
            }
            let mut elsewhere = Vec::new();
            let policy = Arc::clone(&self.shelf.taker.means.policy);
            let others = policy.devices().filter(|other| other.soc == device.soc && other.id != device.id);
            // The newest releases first: what is missing on an old one is mostly there.
            let others: Vec<&DeviceProfile> = others.collect();
            for other in others.into_iter().rev().take(MOST_ELSEWHERE) {
                let solved = self
                    .solve((other.clone(), device.clone()), goal.request.clone(), Excluded::new(), false)
                    .await?;
                if let (Found::Set(..), _) = solved {
                    elsewhere.push(other.id.clone());
                }
            }
            explanation.offer_elsewhere(elsewhere);
        }
        Ok(())
    }

    /// Whether a version is known to run, by facts of one of its wheels.
    fn is_admitted(&self, pin: &str, device: &DeviceProfile) -> bool {
        let policy = &self.shelf.taker.means.policy;
        let known = pin.split_once("==").and_then(|(project, version)| {
            let project: ProjectName = project.parse().ok()?;
            let version: pep440_rs::Version = version.parse().ok()?;
            let entry = self.shelf.seen(&project)?;
            let gathered = entry.gathered();
            Some(gathered.candidates.iter().any(|candidate| match &candidate.knowledge {
                Knowledge::Facts { facts, .. } if candidate.name.version == version => {
                    policy.lists(&project, policy::judge(facts, device, policy).verdict)
                }
                _ => false,
            }))
        });
        known.unwrap_or(false)
    }
}
