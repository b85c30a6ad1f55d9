//! An index in memory.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use jetwheel::policy::Reason;
use jetwheel::resolve::{Candidate, Index, Lookup, Metadata, Requirement, Target};
use jetwheel::wheel::ProjectName;

/// Wheels by project, with their metadata by file name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalogue {
    candidates: BTreeMap<ProjectName, Vec<Candidate>>,
    metadata: BTreeMap<String, Arc<Metadata>>,
    /// How many metadata were looked up.
    pub(crate) looked_up: usize,
}

impl Catalogue {
    /// Adds a wheel that fits, with its requirements.
    pub(crate) fn add(&mut self, project: &str, version: &str, requires: &[&str]) -> &mut Candidate {
        let requires: Vec<String> = requires.iter().map(ToString::to_string).collect();
        let file = format!("{}-{version}-py3-none-any.whl", project.replace('-', "_"));
        self.add_file(project, version, &file, Metadata::parse(&requires, None, &[]).unwrap())
    }

    /// Adds a wheel by its file name.
    pub(crate) fn add_file(
        &mut self,
        project: &str,
        version: &str,
        file: &str,
        metadata: Metadata,
    ) -> &mut Candidate {
        let project: ProjectName = project.parse().unwrap();
        self.metadata.insert(file.to_owned(), Arc::new(metadata));
        let candidates = self.candidates.entry(project.clone()).or_default();
        candidates.push(Candidate {
            project,
            version: version.parse().unwrap(),
            version_text: version.to_owned(),
            file: file.to_owned(),
            sha256: None,
            size: None,
            url: format!("files/{file}"),
            upload_time: None,
            tag_priority: Some(0),
            build: None,
            requires_python: None,
            yanked: None,
            upstream: "test".to_owned(),
            refused: None,
        });
        candidates.last_mut().unwrap()
    }
}

impl Index for Catalogue {
    type Error = Infallible;

    fn candidates(&mut self, project: &ProjectName) -> Result<Vec<Candidate>, Infallible> {
        Ok(self.candidates.get(project).cloned().unwrap_or_default())
    }

    fn metadata(&mut self, candidate: &Candidate) -> Result<Lookup, Infallible> {
        self.looked_up += 1;
        Ok(Lookup::Metadata(Arc::clone(&self.metadata[&candidate.file])))
    }
}

/// Reads requirements.
pub(crate) fn requirements(texts: &[&str]) -> Vec<Requirement> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A device with that Python, and CUDA 12.6.
pub(crate) fn target(python: &str) -> Target {
    let mut target = Target::new("orin-jp6.2", &python.parse().unwrap());
    target.cuda = Some("12.6".parse().unwrap());
    target
}

/// A reason by its JSON.
pub(crate) fn reason(code: &str, text: &str, remedy: &str) -> Reason {
    serde_json::from_value(serde_json::json!({"code": code, "text": text, "remedy": remedy})).unwrap()
}
