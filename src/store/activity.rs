//! What the syncs of this process do, for people who watch: in memory alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::Serialize;

use super::{Store, locked};

/// How many syncs are remembered, running ones among them.
const MOST_PASSES: usize = 8;

/// How many files of one sync are remembered after they ended.
const MOST_ENDED: usize = 100;

/// How many downloads at once are shown; a sync has a handful of them.
const MOST_OPEN: usize = 64;

/// How many requirements are named; a sync of all projects has thousands.
const MOST_NAMED: usize = 50;

/// The syncs of this process, newest last.
#[derive(Debug, Default)]
pub(super) struct Activity {
    passes: Mutex<VecDeque<Arc<Mutex<Pass>>>>,
}

/// One sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pass {
    /// For which devices.
    pub devices: Vec<String>,
    /// What is asked for; the first of them.
    pub requirements: Vec<String>,
    /// How many requirements there are.
    pub asked: usize,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// When it ended.
    pub ended: Option<String>,
    /// How it ended, in a few words.
    pub outcome: Option<String>,
    /// The project whose pages were asked for last.
    pub project: Option<String>,
    /// How many times a project's pages were asked for.
    pub projects: u64,
    /// What is being fetched or inspected now.
    pub open: Vec<OpenFile>,
    /// What is done, newest last.
    pub done: VecDeque<DoneFile>,
    /// How many files are done.
    pub files: u64,
    /// How many bytes came.
    pub bytes: u64,
}

/// A file that is being fetched or inspected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenFile {
    /// File name.
    pub file: String,
    /// Size in bytes, where it is known.
    pub size: Option<u64>,
    /// Bytes so far.
    pub bytes: u64,
    /// Whether all of it is there, and is being inspected.
    pub inspecting: bool,
}

/// A file that is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoneFile {
    /// File name.
    pub file: String,
    /// What became of it.
    pub outcome: String,
}

/// The hold of a running sync on what is shown of it. When it is dropped, the sync has ended.
#[derive(Debug)]
pub struct Watched(Arc<Mutex<Pass>>);

impl Watched {
    /// A project's pages are asked for.
    pub fn project(&self, project: String) {
        let mut pass = locked(&self.0);
        pass.project = Some(project);
        pass.projects = pass.projects.saturating_add(1);
    }

    /// A download begins.
    pub fn begins(&self, file: String, size: Option<u64>) {
        let mut pass = locked(&self.0);
        if pass.open.len() < MOST_OPEN {
            pass.open.push(OpenFile { file, size, bytes: 0, inspecting: false });
        }
    }

    /// A download has come so far.
    pub fn reached(&self, file: &str, bytes: u64) {
        if let Some(open) = locked(&self.0).open.iter_mut().find(|open| open.file == file) {
            open.bytes = bytes;
        }
    }

    /// A download is whole.
    pub fn inspecting(&self, file: &str) {
        if let Some(open) = locked(&self.0).open.iter_mut().find(|open| open.file == file) {
            open.inspecting = true;
        }
    }

    /// All is done about a file.
    pub fn ends(&self, file: String, outcome: String) {
        let mut pass = locked(&self.0);
        if let Some(at) = pass.open.iter().position(|open| open.file == file) {
            let open = pass.open.swap_remove(at);
            pass.bytes = pass.bytes.saturating_add(open.bytes);
        }
        pass.files = pass.files.saturating_add(1);
        if pass.done.len() >= MOST_ENDED {
            pass.done.pop_front();
        }
        pass.done.push_back(DoneFile { file, outcome });
    }

    /// How it ended.
    pub fn outcome(&self, outcome: String) {
        locked(&self.0).outcome = Some(outcome);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut pass = locked(&self.0);
        pass.ended = Some(jiff::Timestamp::now().to_string());
        pass.open.clear();
        pass.outcome.get_or_insert_with(|| "broke off".to_owned());
    }
}

impl Store {
    /// Begins to show a sync to whoever watches.
    pub fn watch_pass(&self, devices: Vec<String>, requirements: Vec<String>) -> Watched {
        let asked = requirements.len();
        let requirements = requirements.into_iter().take(MOST_NAMED).collect();
        let pass = Arc::new(Mutex::new(Pass {
            devices,
            requirements,
            asked,
            started: jiff::Timestamp::now().to_string(),
            ended: None,
            outcome: None,
            project: None,
            projects: 0,
            open: Vec::new(),
            done: VecDeque::new(),
            files: 0,
            bytes: 0,
        }));
        let mut passes = locked(&self.activity.passes);
        if passes.len() >= MOST_PASSES {
            let ended = passes.iter().position(|pass| locked(pass).ended.is_some());
            passes.remove(ended.unwrap_or(0));
        }
        passes.push_back(Arc::clone(&pass));
        Watched(pass)
    }

    /// The syncs of this process, newest first; those that ended as well, as far as they are remembered.
    pub fn passes(&self) -> Vec<Pass> {
        locked(&self.activity.passes).iter().rev().map(|pass| locked(pass).clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_a_pass_while_it_runs_and_after_it_and_forgets_the_oldest_that_ended() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let running = store.watch_pass(vec!["orin-jp6.2".to_owned()], vec!["demo".to_owned(); 99]);
        running.begins("a.whl".to_owned(), Some(10));
        running.reached("a.whl", 7);
        let seen = store.passes();
        assert_eq!((seen[0].open[0].bytes, seen[0].asked, seen[0].requirements.len()), (7, 99, MOST_NAMED));
        running.inspecting("a.whl");
        running.ends("a.whl".to_owned(), "kept".to_owned());
        for _ in 0..2 * MOST_ENDED {
            running.ends("b.whl".to_owned(), "kept".to_owned());
        }
        for _ in 0..2 * MOST_PASSES {
            store.watch_pass(Vec::new(), Vec::new()).outcome("complete".to_owned());
        }
        let seen = store.passes();
        assert_eq!(seen.len(), MOST_PASSES);
        assert_eq!(seen[0].outcome.as_deref(), Some("complete"));
        let first = seen.last().unwrap();
        assert!(first.ended.is_none() && first.open.is_empty(), "{first:?}");
        assert_eq!((first.done.len(), first.bytes), (MOST_ENDED, 7));
        drop(running);
        assert_eq!(store.passes().last().unwrap().outcome.as_deref(), Some("broke off"));
    }
}
