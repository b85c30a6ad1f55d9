//! The index pages of a pass, each asked for once, whichever device needs it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OnceCell, Semaphore};

use super::report::Event;
use crate::policy::DeviceProfile;
use crate::upstream::{Listing, Source};
use crate::wheel::ProjectName;
use crate::wording::with_causes;

/// Pages that are asked for at the same time.
const PAGES_AT_ONCE: usize = 16;

/// What an upstream answered for a project: what it lists, none if it does not know the project; or why it was not reached.
pub(crate) type Answer = Arc<Result<Option<Listing>, Event>>;

/// Answers by upstream and project; one that is waited for is an empty cell.
type Answers = HashMap<(usize, ProjectName), Arc<OnceCell<Answer>>>;

/// The upstreams of a pass, and what they answered.
pub(crate) struct Pages {
    /// Each with the ids of the devices that it serves, best first.
    pub(crate) sources: Vec<(Source, Vec<String>)>,
    answers: Mutex<Answers>,
    permits: Semaphore,
}

impl Pages {
    /// Over upstreams in the order of priority, each with the ids of the devices that it serves.
    pub(crate) fn new(sources: Vec<(Source, Vec<String>)>) -> Self {
        Self { sources, answers: Mutex::default(), permits: Semaphore::new(PAGES_AT_ONCE) }
    }

    /// Places of the upstreams that serve a device.
    pub(crate) fn serving(&self, device: &DeviceProfile) -> Vec<usize> {
        let serves = |(order, (_, devices)): (usize, &(Source, Vec<String>))| {
            devices.contains(&device.id).then_some(order)
        };
        self.sources.iter().enumerate().filter_map(serves).collect()
    }

    /// The name of an upstream.
    pub(crate) fn name(&self, order: usize) -> &str {
        self.sources.get(order).map_or("", |(source, _)| source.upstream.name.as_str())
    }

    /// Asks one upstream for a project's page.
    pub(crate) async fn ask(&self, order: usize, project: &ProjectName) -> Answer {
        let cell = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry((order, project.clone())).or_default())
        };
        let answer = cell.get_or_init(|| async {
            let Some((source, _)) = self.sources.get(order) else { return Arc::new(Ok(None)) };
            let _permit = self.permits.acquire().await;
            Arc::new(source.project(project).await.map_err(|error| Event {
                kind: "page",
                upstream: source.upstream.name.clone(),
                name: project.to_string(),
                text: with_causes(&error),
            }))
        });
        Arc::clone(answer.await)
    }

    /// Asks all upstreams for a project's page.
    pub(crate) async fn ask_all(&self, project: &ProjectName) -> Vec<Answer> {
        futures_util::future::join_all((0..self.sources.len()).map(|order| self.ask(order, project))).await
    }
}
