//! What the rules need of a wheel, kept small: facts of a large wheel have some hundred kilobytes, their brief below one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Abi;
use super::sonames::is_checked;
use crate::wheel::{Facts, Member};

/// What the rules need of a wheel.
#[derive(Debug, Clone)]
pub struct Brief {
    /// Its facts without members, compilers and images.
    pub facts: Arc<Facts>,
    /// What it was compiled against.
    pub abi: Abi,
    /// Libraries that it links, of those whose absence is judged, each with the first member that does.
    pub(super) linked: Vec<(String, String)>,
    /// Libraries that it opens by name, of those.
    pub(super) opened: Vec<String>,
    /// A member that was compiled against NumPy 1.
    pub(super) numpy_1_member: Option<String>,
    /// A member that shows the C++ string ABI.
    pub(super) cxx11_member: Option<String>,
    /// Libraries of that kind in it, by soname and by file name.
    pub(super) brought: BTreeSet<String>,
}

impl Brief {
    /// What the rules need of those facts.
    pub fn of(facts: &Facts) -> Self {
        let mut linked: Vec<(String, String)> = Vec::new();
        let mut brought = BTreeSet::new();
        for member in &facts.members {
            for soname in member.needed.iter().filter(|soname| is_checked(soname)) {
                if linked.iter().all(|(known, _)| known != soname) {
                    linked.push((soname.clone(), member.path.clone()));
                }
            }
            let file = member.path.rsplit('/').next();
            let names = file.into_iter().chain(member.soname.as_deref());
            brought.extend(names.filter(|name| is_checked(name)).map(ToOwned::to_owned));
        }
        let path = |shows: &dyn Fn(&Member) -> bool| {
            facts.members.iter().find(|member| shows(member)).map(|member| member.path.clone())
        };
        let facts_alone = Facts {
            file: facts.file.clone(),
            sha256: facts.sha256,
            size: facts.size,
            project: facts.project.clone(),
            version: facts.version.clone(),
            tags: Vec::new(),
            requires_python: facts.requires_python.clone(),
            requires_dist: facts.requires_dist.clone(),
            provides_extra: facts.provides_extra.clone(),
            metadata_sha256: facts.metadata_sha256,
            gpu: facts.gpu,
            members: Vec::new(),
            compilers: Vec::new(),
            images: BTreeMap::new(),
            cuda_sources: facts.cuda_sources,
            inspector: facts.inspector,
            needed_dlopen: Vec::new(),
            damage: Vec::new(),
        };
        Self {
            facts: Arc::new(facts_alone),
            abi: Abi::of(facts),
            numpy_1_member: path(&|member| member.numpy_abi == Some(1)),
            cxx11_member: path(&|member| member.cxx11_abi.is_some()),
            linked,
            opened: facts.needed_dlopen.iter().filter(|soname| is_checked(soname)).cloned().collect(),
            brought,
        }
    }

    /// The same, with what the wheel was compiled against.
    #[must_use]
    pub fn with_abi(self, abi: Abi) -> Self {
        Self { abi, ..self }
    }

    /// About how many bytes it takes.
    pub fn weight(&self) -> usize {
        let facts = &self.facts;
        let texts = facts.requires_dist.iter().chain(&facts.provides_extra).chain(&self.opened);
        let texts =
            texts.chain(&self.brought).chain(self.linked.iter().flat_map(|(left, right)| [left, right]));
        texts.map(|text| text.len().saturating_add(32)).sum::<usize>().saturating_add(facts.file.len() + 600)
    }
}
