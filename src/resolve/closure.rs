//! Which wheels of a device's index cannot work beside the others that it lists.
//!
//! Judging looks at one wheel alone. Here all known wheels of a device are looked at together: a wheel that pins another GPU
//! project to a version of which the device has none is refused (`pair-mismatch`), so is one that links a CUDA library which
//! nothing it asks for brings (`soname-missing`), one whose C++ ABI is not that of the torch it links (`abi-mismatch`), or one that
//! was compiled against NumPy 1 where there is NumPy 2 alone (`numpy-abi`). Refusing one can be the reason to refuse another, so this goes on until nothing changes; each round judges all wheels
//! before it takes any away, so their order plays no part.
//!
//! What is not known proves nothing: a project of which no wheel is known, or none that fits, might bring anything.

mod abi;
mod brief;
mod connected;
mod pairs;
mod sonames;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub use abi::Abi;
pub(super) use abi::NUMPY_1;
pub use brief::Brief;
pub use connected::Connected;

use pep440_rs::Version;

use super::range::{Pick, range_of};
use super::requirement::Requirement;
use super::target::Target;
use crate::policy::{Code, DeviceProfile, Judgement, Note, NoteCode, Policy, Reason, Verdict};
use crate::wheel::ProjectName;

/// Most rounds; each refuses at least one wheel, and a real chain of pins is some five long.
const MOST_ROUNDS: usize = 64;

/// A known wheel with its verdict for the device.
#[derive(Debug, Clone)]
pub struct Wheel {
    /// What the rules need of its facts.
    pub brief: Arc<Brief>,
    /// What judging it alone said.
    pub verdict: Verdict,
}

/// What policy says of projects.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Whether a project must hold GPU code.
    pub requires_gpu: &'a dyn Fn(&ProjectName) -> bool,
    /// Whether its dependants can do without it.
    pub is_auxiliary: &'a dyn Fn(&ProjectName) -> bool,
    /// Whether an index lists a wheel of that project with that verdict.
    pub lists: &'a dyn Fn(&ProjectName, Verdict) -> bool,
}

impl std::fmt::Debug for Rules<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Rules")
    }
}

/// What looking at a wheel together with the others adds to its judgement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Why it is refused; empty if it is not.
    pub refusals: Vec<Reason>,
    /// What to know of it.
    pub notes: Vec<Note>,
}

impl Change {
    /// Adds it to a judgement of the wheel alone.
    pub fn apply(&self, judgement: &mut Judgement) {
        if !self.refusals.is_empty() {
            judgement.verdict = Verdict::Refuse;
            judgement.notes.retain(|note| !matches!(note.code, NoteCode::JitOnly | NoteCode::SameMajorOnly));
            judgement.reasons.extend(self.refusals.iter().cloned());
            judgement.reasons.sort_by_key(|reason| reason.code);
        }
        judgement.notes.extend(self.notes.iter().cloned());
    }
}

/// [`closure`] by the rules of a policy.
pub fn closure_by(wheels: &[Wheel], device: &DeviceProfile, policy: &Policy) -> Vec<(usize, Change)> {
    closure(
        wheels,
        device,
        Rules {
            requires_gpu: &|project| policy.requires_gpu(project),
            is_auxiliary: &|project| policy.is_auxiliary(project),
            lists: &|project, verdict| policy.lists(project, verdict),
        },
    )
}

/// What changes when all known wheels of a device are looked at together, by place in `wheels`.
pub fn closure(wheels: &[Wheel], device: &DeviceProfile, rules: Rules<'_>) -> Vec<(usize, Change)> {
    let mut shelf = Shelf::new(wheels, device, rules);
    let mut refused: Vec<(usize, Vec<Reason>)> = Vec::new();
    let mut pending: BTreeSet<usize> = (0..wheels.len()).filter(|&at| shelf.entries[at].listed).collect();
    for _ in 0..MOST_ROUNDS {
        let found: Vec<(usize, Vec<Reason>)> = pending
            .iter()
            .map(|&at| (at, shelf.refusals(at)))
            .filter(|(_, reasons)| !reasons.is_empty())
            .collect();
        if found.is_empty() {
            break;
        }
        pending.clear();
        for (at, _) in &found {
            shelf.entries[*at].listed = false;
        }
        shelf.forget_reach();
        for (at, _) in &found {
            pending.extend(shelf.affected_by(*at));
        }
        refused.extend(found);
    }
    let mut changed = Vec::new();
    for (at, mut refusals) in refused {
        shelf.add_remedies(at, &mut refusals);
        changed.push((at, Change { refusals, notes: Vec::new() }));
    }
    for (at, entry) in shelf.entries.iter().enumerate().filter(|(_, entry)| entry.listed) {
        let notes = shelf.notes(entry);
        if !notes.is_empty() {
            changed.push((at, Change { refusals: Vec::new(), notes }));
        }
    }
    changed.sort_by_key(|(at, _)| *at);
    changed
}

/// A requirement that applies on the device.
#[derive(Debug, Clone)]
struct Need {
    project: ProjectName,
    requirement: Arc<Requirement>,
    range: version_ranges::Ranges<Pick>,
}

/// One wheel, read as far as the rules need it.
#[derive(Debug)]
struct Entry<'w> {
    wheel: &'w Wheel,
    project: Option<&'w ProjectName>,
    version: Option<Version>,
    needs: Vec<Need>,
    listed: bool,
}

/// All wheels, found by project.
struct Shelf<'w, 'r> {
    device: &'w DeviceProfile,
    rules: Rules<'r>,
    entries: Vec<Entry<'w>>,
    by_project: HashMap<&'w ProjectName, Vec<usize>>,
    /// Wheels that need a project.
    dependants: HashMap<ProjectName, Vec<usize>>,
    /// Wheels that link something which they do not hold, nor the system.
    linking: BTreeSet<usize>,
    reach: std::cell::RefCell<sonames::Reach>,
}

impl<'w, 'r> Shelf<'w, 'r> {
    fn new(wheels: &'w [Wheel], device: &'w DeviceProfile, rules: Rules<'r>) -> Self {
        let target = Target::of(device);
        let mut parsed: HashMap<&'w str, Option<Need>> = HashMap::new();
        let mut shelf = Self {
            device,
            rules,
            entries: Vec::with_capacity(wheels.len()),
            by_project: HashMap::new(),
            dependants: HashMap::new(),
            linking: BTreeSet::new(),
            reach: std::cell::RefCell::default(),
        };
        for (at, wheel) in wheels.iter().enumerate() {
            let facts = &wheel.brief.facts;
            let project = facts.project.as_ref();
            let listed = project.is_some_and(|project| (rules.lists)(project, wheel.verdict));
            let mut needs: Vec<Need> = Vec::new();
            if listed {
                for text in &facts.requires_dist {
                    needs.extend(parsed.entry(text).or_insert_with(|| need(text, &target)).clone());
                }
                needs.extend(wheel.brief.abi.built_against.clone().map(Need::of));
                if !sonames::open(&wheel.brief, device).is_empty() {
                    shelf.linking.insert(at);
                }
            }
            for need in &needs {
                shelf.dependants.entry(need.project.clone()).or_default().push(at);
            }
            if listed {
                for partner in wheel.brief.abi.partners(project) {
                    shelf.dependants.entry(partner).or_default().push(at);
                }
            }
            if let Some(project) = project {
                shelf.by_project.entry(project).or_default().push(at);
            }
            let version = facts.version.as_deref().and_then(|text| text.parse().ok());
            shelf.entries.push(Entry { wheel, project, version, needs, listed });
        }
        shelf
    }

    fn refusals(&self, at: usize) -> Vec<Reason> {
        let entry = &self.entries[at];
        let mut reasons = Vec::new();
        reasons.extend(sonames::judge(self, at));
        reasons.extend(pairs::judge(self, entry));
        reasons.extend(abi::judge_cxx11(self, entry));
        reasons.extend(abi::judge_numpy(self, entry));
        reasons
    }

    /// Wheels whose judgement may change when one is taken away.
    fn affected_by(&self, at: usize) -> BTreeSet<usize> {
        let dependants = self.entries[at].project.and_then(|project| self.dependants.get(project));
        dependants
            .into_iter()
            .flatten()
            .chain(&self.linking)
            .copied()
            .filter(|&other| self.entries[other].listed)
            .collect()
    }

    fn forget_reach(&mut self) {
        self.reach = std::cell::RefCell::default();
    }

    /// The listed wheels of a project; none if no wheel of it is known at all.
    fn listed(&self, project: &ProjectName) -> Option<impl Iterator<Item = &Entry<'w>>> {
        let places = self.by_project.get(project)?;
        Some(places.iter().map(|&at| &self.entries[at]).filter(|entry| entry.listed))
    }

    /// All known wheels of a project.
    fn known(&self, project: &ProjectName) -> impl Iterator<Item = &Entry<'w>> {
        self.by_project.get(project).into_iter().flatten().map(|&at| &self.entries[at])
    }

    fn add_remedies(&self, at: usize, reasons: &mut [Reason]) {
        for reason in reasons {
            match reason.code {
                Code::PairMismatch => reason.remedy = pairs::remedy(self, &self.entries[at]),
                Code::SonameMissing => reason.remedy = sonames::remedy(self, reason),
                _ => {}
            }
        }
    }

    /// Needs of which no listed wheel is there, though the project is known.
    fn notes(&self, entry: &Entry<'_>) -> Vec<Note> {
        let mut notes: Vec<Note> = abi::notes(self, entry);
        for need in &entry.needs {
            let Some(mut listed) = self.listed(&need.project) else { continue };
            if listed.any(|other| other.satisfies(need)) {
                continue;
            }
            let auxiliary =
                if (self.rules.is_auxiliary)(&need.project) { "; one GPU can do without it" } else { "" };
            let text = format!(
                "needs {}, of which no known wheel fits {}{auxiliary}",
                need.requirement.short(),
                self.device.id
            );
            if notes.iter().all(|note| note.text != text) {
                notes.push(Note { code: NoteCode::UnfitDependency, text });
            }
        }
        notes
    }
}

impl Entry<'_> {
    fn satisfies(&self, need: &Need) -> bool {
        self.version.as_ref().is_some_and(|version| need.range.contains(&Pick::wheel(version, 0)))
    }

    fn name(&self) -> String {
        let facts = &self.wheel.brief.facts;
        let version = facts.version.as_deref().unwrap_or_default();
        self.project.map_or_else(|| facts.file.clone(), |project| format!("{project} {version}"))
    }
}

impl Need {
    fn of(requirement: Requirement) -> Self {
        Self {
            project: requirement.project.clone(),
            range: range_of(&requirement.specifiers),
            requirement: Arc::new(requirement),
        }
    }
}

/// A requirement, if it can be read and applies on the device without any extra.
fn need(text: &str, target: &Target) -> Option<Need> {
    let requirement: Requirement = text.parse().ok()?;
    let applies = requirement.url.is_none() && requirement.applies(&target.environment, None) == Ok(true);
    applies.then(|| Need::of(requirement))
}
