//! Resolving over files that are known already: the catalogue's, with their verdicts.

use std::collections::HashMap;
use std::sync::Arc;

use pep440_rs::Version;

use super::candidate::{Candidate, Index, Lookup, Metadata};
use super::closure::{Abi, NUMPY_1};
use super::range::{Pick, range_of};
use super::requirement::Requirement;
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
    /// What it was compiled against.
    pub abi: Abi,
    /// Whether, and why, it was yanked.
    pub yanked: Option<String>,
    /// Name of the upstream.
    pub upstream: String,
    /// RFC 3339 time of upload.
    pub upload_time: Option<String>,
}

/// Resolves over the known files that a function looks up. URLs begin with `device_url`, the device's part of a mirror, such as
/// `http://mirror/orin-jp6.2`; it ends without a slash.
pub fn resolve_rows<E: std::error::Error + 'static>(
    request: &Request,
    device: &DeviceProfile,
    device_url: &str,
    lookup: impl FnMut(&ProjectName) -> Result<Vec<KnownFile>, E>,
) -> Result<Resolution, Failure<E>> {
    let number = |part: u32| u16::try_from(part).unwrap_or(u16::MAX);
    let python = (number(device.python.major()), number(device.python.minor()));
    let mut rows = Rows {
        lookup,
        tags: SupportedTags::new(python, &device.platform_tags),
        files_url: format!("{device_url}/files"),
        files: HashMap::new(),
        torch: None,
    };
    resolve(request, &Target::of(device), &mut rows)
}

/// What is kept of a file until its metadata is asked for.
struct Kept {
    facts: Arc<Facts>,
    held: bool,
    abi: Abi,
}

struct Rows<F> {
    lookup: F,
    tags: SupportedTags,
    files_url: String,
    files: HashMap<(String, Option<Sha256>), Kept>,
    /// The versions of PyTorch that the device can have, with their string ABI.
    torch: Option<Vec<(Version, Option<bool>)>>,
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
        let Some(Kept { facts, held, abi }) = self.files.get(&(candidate.file.clone(), candidate.sha256))
        else {
            return Ok(Lookup::Unusable("it is not known any more".to_owned()));
        };
        if !held {
            return Ok(Lookup::Unusable(
                "its bytes are not in this mirror; a sync would fetch them".to_owned(),
            ));
        }
        let (facts, abi) = (Arc::clone(facts), abi.clone());
        let beside = abi.beside(&candidate.project, |torch| self.torch(torch))?;
        let requires_python = facts.requires_python.as_deref();
        Ok(match Metadata::parse(&facts.requires_dist, requires_python, &facts.provides_extra) {
            Ok(mut metadata) => {
                metadata.requires_dist.extend(abi.built_against);
                metadata.beside = beside;
                Lookup::Metadata(Arc::new(metadata))
            }
            Err(error) => Lookup::Unusable(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        })
    }
}

impl<F> Rows<F> {
    fn torch<E>(&mut self, name: &ProjectName) -> Result<Vec<(Version, Option<bool>)>, E>
    where
        F: FnMut(&ProjectName) -> Result<Vec<KnownFile>, E>,
    {
        if let Some(torch) = &self.torch {
            return Ok(torch.clone());
        }
        let files = (self.lookup)(name)?.into_iter().filter(|file| file.listed);
        let torch: Vec<(Version, Option<bool>)> = files
            .filter_map(|file| {
                let name: WheelFilename = file.facts.file.parse().ok()?;
                Some((name.version, file.abi.cxx11))
            })
            .collect();
        Ok(self.torch.insert(torch).clone())
    }

    /// A file as a candidate; none if its name is no wheel's.
    fn candidate(&mut self, project: &ProjectName, file: KnownFile) -> Option<Candidate> {
        let name: WheelFilename = file.facts.file.parse().ok()?;
        let refused = (!file.listed).then(|| match file.judgement.reasons.into_iter().next() {
            Some(reason) => reason,
            None => not_listed(&file.judgement.verdict.to_string()),
        });
        let facts = file.facts;
        let kept = Kept { facts: Arc::clone(&facts), held: file.held, abi: file.abi };
        self.files.insert((facts.file.clone(), Some(facts.sha256)), kept);
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

/// Why files that fit the device do not fit a request: by place in `files`.
///
/// A file fits if it satisfies what the request and the wheels of its answer ask of the project. Files of projects that the
/// answer does not hold are not looked at.
pub fn request_conflicts(
    request: &Request,
    resolution: Option<&Resolution>,
    device: &DeviceProfile,
    files: &[KnownFile],
) -> Vec<(usize, Reason)> {
    let target = Target::of(device);
    let chosen = resolution.into_iter().flat_map(|resolution| &resolution.packages);
    let asked: Vec<(String, &Requirement)> = request
        .requirements
        .iter()
        .chain(&request.constraints)
        .map(|requirement| ("the request".to_owned(), requirement))
        .chain(chosen.flat_map(|package| {
            let owner = format!("{} {}", package.candidate.project, package.candidate.version_text);
            let Metadata { requires_dist, beside, .. } = &*package.metadata;
            requires_dist.iter().chain(beside).map(move |requirement| (owner.clone(), requirement))
        }))
        .filter(|(_, requirement)| requirement.applies(&target.environment, None) == Ok(true))
        .collect();
    let mut conflicts = Vec::new();
    for (at, file) in files.iter().enumerate().filter(|(_, file)| file.listed) {
        let Some(project) = &file.facts.project else { continue };
        let Ok(name) = file.facts.file.parse::<WheelFilename>() else { continue };
        let pick = Pick::wheel(&name.version, 0);
        let broken = asked.iter().find(|(_, requirement)| {
            requirement.project == *project && !range_of(&requirement.specifiers).contains(&pick)
        });
        let Some((owner, requirement)) = broken else { continue };
        let numpy = requirement.text == NUMPY_1;
        conflicts.push((
            at,
            Reason {
                code: if numpy { Code::NumpyAbi } else { Code::SpecConflict },
                member: None,
                found: vec![format!("{project} {}", name.version_text())],
                wanted: vec![requirement.short()],
                text: if numpy {
                    format!("{owner} was compiled against the C API of NumPy 1, which NumPy 2 does not have")
                } else {
                    format!("fits the device, but {owner} asks for {}", requirement.short())
                },
                remedy: format!("use {}", requirement.short()),
            },
        ));
    }
    conflicts
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
