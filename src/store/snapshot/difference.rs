//! What is in one list of files and not in another.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::SnapshotFile;
use crate::digest::Sha256;
use crate::wheel::ProjectName;

/// The difference of two lists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Difference {
    /// Files of the second alone.
    pub added: Vec<SnapshotFile>,
    /// Files of the first alone.
    pub gone: Vec<SnapshotFile>,
    /// Files whose bytes differ.
    pub changed: Vec<ChangedFile>,
}

/// A name that stands for other bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its project.
    pub project: ProjectName,
    /// File name.
    pub file: String,
    /// Digest in the first list.
    pub from: Sha256,
    /// Digest in the second.
    pub to: Sha256,
}

impl Difference {
    /// Compares two lists.
    pub fn between(from: &BTreeSet<SnapshotFile>, to: &BTreeSet<SnapshotFile>) -> Self {
        let mut difference = Self::default();
        let mut gone: BTreeMap<(ProjectName, String), Vec<SnapshotFile>> = BTreeMap::new();
        for file in from.difference(to) {
            gone.entry((file.project.clone(), file.file.clone())).or_default().push(file.clone());
        }
        for file in to.difference(from) {
            let same = gone.get_mut(&(file.project.clone(), file.file.clone())).and_then(Vec::pop);
            match same {
                Some(old) => difference.changed.push(ChangedFile {
                    project: file.project.clone(),
                    file: file.file.clone(),
                    from: old.sha256,
                    to: file.sha256,
                }),
                None => difference.added.push(file.clone()),
            }
        }
        difference.gone = gone.into_values().flatten().collect();
        difference
    }
}
