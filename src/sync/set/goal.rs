//! What is to be found for one device, and what came of it.

use std::collections::BTreeSet;

use super::super::report::Event;
use super::super::view::{Excluded, Pick};
use crate::resolve::{Cause, CauseKind, Explanation, Request};
use crate::wheel::ProjectName;

/// What is to be found for one device.
pub(super) struct Goal {
    pub(super) device: usize,
    pub(super) request: Request,
    /// What was asked for, as the report names it.
    pub(super) label: String,
    /// How it stands to what was asked for.
    pub(super) role: Role,
    pub(super) excluded: Excluded,
    pub(super) reached: BTreeSet<ProjectName>,
    pub(super) notes: Vec<String>,
    pub(super) refusals: usize,
    pub(super) outcome: Outcome,
}

/// How a goal stands to what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// All of it.
    Whole,
    /// An older set beside the first one.
    Older,
    /// One requirement, with what it needs, where all of them do not go together.
    Apart,
    /// One requirement without what it needs, where the upstreams lack that.
    Alone,
}

/// What came of looking for it.
pub(super) enum Outcome {
    /// Not looked for yet.
    Open,
    /// A set, as far as it is known.
    Set(Vec<Pick>),
    /// A set whose wheels are all in the store.
    Whole(Vec<Pick>),
    /// There is none.
    None(Box<Explanation>),
    /// None was found.
    Failed(String),
    /// Its wheels are not known for an outage.
    Unreached(Event),
}

impl Goal {
    /// One that nothing is known of yet.
    pub(super) fn new(device: usize, request: Request, label: String, role: Role) -> Self {
        Self {
            device,
            request,
            label,
            role,
            excluded: Excluded::new(),
            reached: BTreeSet::new(),
            notes: Vec::new(),
            refusals: 0,
            outcome: Outcome::Open,
        }
    }

    /// The wheels of the set that was found last; none where there is none.
    pub(super) fn picks(&self) -> &[Pick] {
        match &self.outcome {
            Outcome::Set(picks) | Outcome::Whole(picks) => picks,
            _ => &[],
        }
    }

    /// Whether it fails since something is not there at all, rather than refused.
    pub(super) fn lacks(&self) -> bool {
        let absent =
            |cause: &Cause| matches!(cause.kind, CauseKind::NoSuchProject | CauseKind::NoSuchVersion);
        matches!(&self.outcome, Outcome::None(explanation) if explanation.causes.iter().any(absent))
    }

    /// Whether there is something to do for it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Open | Outcome::Set(_))
    }
}
