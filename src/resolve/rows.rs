//! Resolving over files that are known already: the catalogue's, with their verdicts.

use std::collections::HashMap;
use std::sync::Arc;

use super::candidate::{Candidate, Index, Lookup, Metadata};
use super::target::Target;
use super::{Failure, Request, Resolution, resolve};
use crate::digest::Sha256;
use crate::policy::{Code, DeviceProfile, Judgement, Reason};
use crate::wheel::{Facts, ProjectName, SupportedTags, WheelFilename};

/// A known file, with what a device profile and the policy say of it.
#[derive(Debug, Clone)]
pub struct KnownFile {
    /// What it contains.
    pub facts: Arc<Facts>,
    /// Its judgement for the device.
    pub judgement: Judgement,
    /// Whether the device's index lists it.
    pub listed: bool,
    /// Whether its bytes are there.
    pub held: bool,
    /// Whether, and why, it was yanked.
    pub yanked: Option<String>,
    /// Name of the upstream.
    pub upstream: String,
    /// RFC 3339 time of upload.
    pub upload_time: Option<String>,
}

/// Resolves over the known files that a function looks up. URLs begin with `base_url`, which ends without a slash.
pub fn resolve_rows<E: std::error::Error + 'static>(
    request: &Request,
    device: &DeviceProfile,
    base_url: &str,
    lookup: impl FnMut(&ProjectName) -> Result<Vec<KnownFile>, E>,
) -> Result<Resolution, Failure<E>> {
    let number = |part: u32| u16::try_from(part).unwrap_or(u16::MAX);
    let python = (number(device.python.major()), number(device.python.minor()));
    let mut rows = Rows {
        lookup,
        tags: SupportedTags::new(python, &device.platform_tags),
        files_url: format!("{base_url}/{}/files", device.id),
        facts: HashMap::new(),
    };
    resolve(request, &Target::of(device), &mut rows)
}

struct Rows<F> {
    lookup: F,
    tags: SupportedTags,
    files_url: String,
    facts: HashMap<(String, Option<Sha256>), (Arc<Facts>, bool)>,
}

impl<F, E> Index for Rows<F>
where
    F: FnMut(&ProjectName) -> Result<Vec<KnownFile>, E>,
    E: std::error::Error + 'static,
{
    type Error = E;

    fn candidates(&mut self, project: &ProjectName) -> Result<Vec<Candidate>, E> {
        let files = (self.lookup)(project)?;
        Ok(files.into_iter().filter_map(|file| self.candidate(project, file)).collect())
    }

    fn metadata(&mut self, candidate: &Candidate) -> Result<Lookup, E> {
        let Some((facts, held)) = self.facts.get(&(candidate.file.clone(), candidate.sha256)) else {
            return Ok(Lookup::Unusable("it is not known any more".to_owned()));
        };
        if !held {
            return Ok(Lookup::Unusable("its bytes are not in this mirror; a sync would fetch them".to_owned()));
        }
        let requires_python = facts.requires_python.as_deref();
        Ok(match Metadata::parse(&facts.requires_dist, requires_python, &facts.provides_extra) {
            Ok(metadata) => Lookup::Metadata(Arc::new(metadata)),
            Err(error) => Lookup::Unusable(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        })
    }
}

impl<F> Rows<F> {
    /// A file as a candidate; none if its name is no wheel's.
    fn candidate(&mut self, project: &ProjectName, file: KnownFile) -> Option<Candidate> {
        let name: WheelFilename = file.facts.file.parse().ok()?;
        let refused = (!file.listed).then(|| match file.judgement.reasons.into_iter().next() {
            Some(reason) => reason,
            None => not_listed(&file.judgement.verdict.to_string()),
        });
        let facts = file.facts;
        self.facts.insert((facts.file.clone(), Some(facts.sha256)), (Arc::clone(&facts), file.held));
        Some(Candidate {
            project: project.clone(),
            version_text: facts.version.clone().unwrap_or_else(|| name.version_text().to_owned()),
            file: facts.file.clone(),
            sha256: Some(facts.sha256),
            size: Some(facts.size),
            url: format!("{}/{}/{}", self.files_url, facts.sha256, facts.file),
            upload_time: file.upload_time,
            tag_priority: self.tags.priority(&name),
            version: name.version,
            build: name.build,
            requires_python: facts.requires_python.clone(),
            yanked: file.yanked,
            upstream: file.upstream,
            refused,
        })
    }
}

/// A verdict that the index does not list, though no reason was given with it.
fn not_listed(verdict: &str) -> Reason {
    Reason {
        code: Code::PartialKernels,
        member: None,
        found: Vec::new(),
        wanted: Vec::new(),
        text: format!("its verdict is {verdict}, which the policy does not list"),
        remedy: String::new(),
    }
}
