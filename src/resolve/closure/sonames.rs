//! Shared libraries that a wheel links, against what comes with it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::{Brief, Shelf};
use crate::policy::{Code, DeviceProfile, Reason};
use crate::wheel::ProjectName;

/// Libraries without which a wheel does not load: name without `lib`, up to `.so`; a `*` stands for any letters.
///
/// Not among them: what programs load if it is there (NCCL, NVSHMEM, cuFile, CUPTI, MPI, UCX, libfabric, ibverbs), and system
/// libraries that no table of profiles lists (BLAS, OpenGL), whose absence nothing here could show.
const CHECKED: [&str; 18] = [
    "cudart",
    "cublas",
    "cublasLt",
    "cufft",
    "cufftw",
    "curand",
    "cusolver",
    "cusolverMg",
    "cusparse",
    "cusparseLt",
    "cudnn*",
    "nvrtc",
    "nvJitLink",
    "cudss",
    "nvpl_*",
    "torch*",
    "c10*",
    "nvinfer*",
];

/// The projects that other tools bring these libraries with, where none of the known wheels does.
const USUAL_PROVIDERS: [(&str, &str); 2] = [("cudss", "nvidia-cudss-cu"), ("nvpl_", "nvpl-")];

/// What the projects reach by their requirements, each looked up once.
#[derive(Debug, Default)]
pub(super) struct Reach(HashMap<ProjectName, Arc<Brought>>);

/// What installing a project brings, over all wheels of it and of what it needs.
#[derive(Debug, Default)]
struct Brought {
    sonames: HashSet<String>,
    /// Whether something in it is not known.
    unknown: bool,
}

/// The sonames that a wheel needs and does not have, nor the system.
pub(super) fn open(brief: &Brief, device: &DeviceProfile) -> BTreeSet<String> {
    // The CUDA libraries of a server are not in its profile, so there they prove nothing.
    let knows_cuda = device.sonames.iter().any(|known| known.starts_with("libcudart.so."));
    let counts = |soname: &&str| (knows_cuda || !is_cuda(soname)) && !device.sonames.contains(*soname);
    let linked = brief.linked.iter().map(|(soname, _)| soname.as_str());
    let mut open: BTreeSet<String> = linked.filter(counts).map(ToOwned::to_owned).collect();
    // A name that is opened may be one of several that are tried: it counts if no version of the library is there.
    let opened = brief.opened.iter().map(String::as_str).filter(counts);
    let is_there = |soname: &str| device.sonames.iter().any(|other| stem(other) == stem(soname));
    open.extend(opened.filter(|soname| !is_there(soname)).map(ToOwned::to_owned));
    for soname in &brief.brought {
        open.remove(soname);
    }
    open
}

/// Whether a library is one whose absence is judged.
pub(super) fn is_checked(soname: &str) -> bool {
    let Some(stem) = stem(soname) else { return false };
    CHECKED.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => stem.starts_with(start),
        None => stem == *pattern,
    })
}

fn is_cuda(soname: &str) -> bool {
    stem(soname).is_some_and(|stem| !stem.starts_with("torch") && !stem.starts_with("c10"))
}

fn stem(soname: &str) -> Option<&str> {
    soname.strip_prefix("lib")?.split_once(".so").map(|(stem, _)| stem)
}

/// Refuses a wheel that links a library which nothing brings.
pub(super) fn judge(shelf: &Shelf<'_, '_>, at: usize) -> Option<Reason> {
    if !shelf.linking.contains(&at) {
        return None;
    }
    let entry = &shelf.entries[at];
    let mut missing = open(&entry.wheel.brief, shelf.device);
    for need in &entry.needs {
        let brought = reached(shelf, &need.project);
        // An extra may bring what the project alone does not: what it adds is not followed.
        if brought.unknown || !need.requirement.extras.is_empty() {
            return None;
        }
        missing.retain(|soname| !brought.sonames.contains(soname));
        if missing.is_empty() {
            return None;
        }
    }
    let first = missing.first()?;
    let member = entry.wheel.brief.linked.iter().find(|(soname, _)| soname == first);
    let names: Vec<String> = missing.iter().cloned().collect();
    Some(Reason {
        code: Code::SonameMissing,
        member: member.map(|(_, member)| member.clone()),
        found: Vec::new(),
        text: format!(
            "links {}, which neither the wheel, nor what it requires, nor {} brings",
            names.join(", "),
            shelf.device.id
        ),
        wanted: names,
        remedy: String::new(),
    })
}

/// What a project brings with all that it needs; looked up once until something is refused.
fn reached(shelf: &Shelf<'_, '_>, project: &ProjectName) -> Arc<Brought> {
    if let Some(known) = shelf.reach.borrow().0.get(project) {
        return Arc::clone(known);
    }
    let mut brought = Brought::default();
    let mut seen: HashSet<&ProjectName> = HashSet::from([project]);
    let mut stack = vec![project];
    while let Some(next) = stack.pop() {
        // A project of which nothing fits yet might bring anything with the next wheel that comes in.
        let mut listed = shelf.listed(next).into_iter().flatten().peekable();
        brought.unknown |= listed.peek().is_none();
        for entry in listed {
            brought.sonames.extend(entry.wheel.brief.brought.iter().cloned());
            for need in &entry.needs {
                brought.unknown |= !need.requirement.extras.is_empty();
                if let Some((known, _)) = shelf.by_project.get_key_value(&need.project) {
                    if seen.insert(known) {
                        stack.push(known);
                    }
                } else {
                    brought.unknown = true;
                }
            }
        }
    }
    let brought = Arc::new(brought);
    shelf.reach.borrow_mut().0.insert(project.clone(), Arc::clone(&brought));
    brought
}

/// Names the projects that would bring the missing libraries.
pub(super) fn remedy(shelf: &Shelf<'_, '_>, reason: &Reason) -> String {
    let mut providers: BTreeSet<String> = BTreeSet::new();
    for soname in &reason.wanted {
        let found = shelf
            .entries
            .iter()
            .filter(|entry| entry.listed)
            .find(|entry| entry.wheel.brief.brought.contains(soname));
        match found.and_then(|entry| entry.project) {
            Some(project) => {
                providers.insert(project.to_string());
            }
            None => providers.extend(usual_provider(soname, shelf.device)),
        }
    }
    let system = "where the devices have it, say so by sonames_add in devices.toml";
    if providers.is_empty() {
        return format!("look for a build that carries or requires {}; {system}", reason.wanted.join(", "));
    }
    let providers: Vec<String> = providers.into_iter().collect();
    format!("its Requires-Dist names none of them, so install {} beside it; {system}", providers.join(", "))
}

fn usual_provider(soname: &str, device: &DeviceProfile) -> Option<String> {
    let stem = stem(soname)?;
    let (start, provider) = USUAL_PROVIDERS.iter().find(|(start, _)| stem.starts_with(start))?;
    let rest = stem.strip_prefix(start).unwrap_or_default();
    Some(match rest.split('_').next() {
        Some(library) if !library.is_empty() => format!("{provider}{library}"),
        _ => format!("{provider}{}", device.driver_cuda.major()),
    })
}
