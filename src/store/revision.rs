//! Which state of the rows a page was made from.

use std::collections::HashMap;
use std::sync::Mutex;

use super::locked;
use crate::wheel::ProjectName;

/// The number of the newest change, overall and by project.
///
/// The first number is the time of the start in microseconds, so that no number returns after a restart, unless the
/// clock was set back.
#[derive(Debug)]
pub(super) struct Revisions(Mutex<State>);

#[derive(Debug)]
struct State {
    newest: u64,
    /// That of every project which is not in `projects`.
    base: u64,
    projects: HashMap<ProjectName, u64>,
}

impl Revisions {
    /// Begins at the microseconds since 1970, so that a later start of the store has a later one.
    pub(super) fn starting_now() -> Self {
        let now = jiff::Timestamp::now().as_microsecond();
        let start = u64::try_from(now).unwrap_or(0);
        Self(Mutex::new(State { newest: start, base: start, projects: HashMap::new() }))
    }

    /// That of the latest change of any row.
    pub(super) fn newest(&self) -> u64 {
        locked(&self.0).newest
    }

    /// That of the latest change of a row of a project.
    pub(super) fn of(&self, project: &ProjectName) -> u64 {
        let state = locked(&self.0);
        state.projects.get(project).copied().unwrap_or(state.base)
    }

    /// Notes a change of rows of these projects.
    pub(super) fn bump<'a>(&self, projects: impl IntoIterator<Item = &'a ProjectName>) {
        let mut state = locked(&self.0);
        state.newest += 1;
        let newest = state.newest;
        for project in projects {
            state.projects.insert(project.clone(), newest);
        }
    }

    /// Notes that any row may have changed.
    pub(super) fn bump_all(&self) {
        let mut state = locked(&self.0);
        state.newest += 1;
        state.base = state.newest;
        state.projects.clear();
    }
}
