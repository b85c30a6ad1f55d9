//! What wheels were compiled against: the C API of NumPy, and the C++ string ABI of PyTorch.

use pep440_rs::{Operator, Version, VersionSpecifier, VersionSpecifiers};

use super::{Entry, Need, Shelf};
use crate::policy::{Code, Note, NoteCode, Reason};
use crate::resolve::requirement::Requirement;
use crate::wheel::{Facts, ProjectName};

/// The project whose C API changed between its versions 1 and 2: what was compiled against 1 does not run with 2 (its release
/// notes, "ABI break").
pub(super) const NUMPY: &str = "numpy";

/// The project whose libraries are linked by C++ code of others, strings included.
pub(super) const TORCH: &str = "torch";

/// What a wheel that was compiled against NumPy 1 asks for, so that it can be told from a requirement of its METADATA.
pub(in crate::resolve) const NUMPY_1: &str = "numpy<2 (compiled against the C API of NumPy 1)";

/// Most versions that a wheel is kept from; an index has some fifty of torch for one device.
const MOST_EXCLUDED: usize = 200;

/// What a wheel was compiled against, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abi {
    /// Major version of the C API of `numpy`.
    pub numpy: Option<u32>,
    /// Whether `std::string` is that of the C++11 ABI.
    pub cxx11: Option<bool>,
    /// The very build that it was compiled against, where it states none in `Requires-Dist`.
    pub built_against: Option<Requirement>,
}

impl Abi {
    /// What the members of a wheel show. One that was compiled against NumPy 1 is enough to fail with NumPy 2; where members
    /// disagree on strings, nothing is known.
    pub fn of(facts: &Facts) -> Self {
        let is_numpy = facts.project.as_ref().is_some_and(|project| project.as_str() == NUMPY);
        let numpy = facts.members.iter().filter_map(|member| member.numpy_abi).min().filter(|_| !is_numpy);
        let mut strings = facts.members.iter().filter_map(|member| member.cxx11_abi);
        let first = strings.next();
        Self { numpy, cxx11: first.filter(|first| strings.all(|other| other == *first)), built_against: None }
    }

    /// Whether it runs with NumPy 1 alone.
    pub(super) fn is_of_numpy_1(&self) -> bool {
        self.numpy == Some(1)
    }

    /// The projects whose versions decide whether a wheel of `project` works, whether or not it names them.
    pub(super) fn partners(&self, project: Option<&ProjectName>) -> impl Iterator<Item = ProjectName> {
        let numpy = self.is_of_numpy_1().then_some(NUMPY);
        let torch = self.cxx11.map(|_| TORCH);
        let partners = numpy.into_iter().chain(torch).filter_map(|name| name.parse().ok());
        partners.filter(move |partner| Some(partner) != project)
    }

    /// What a wheel of `project` asks of others that are installed beside it, whatever its METADATA says. `torch` looks up the
    /// versions of PyTorch that the device can have, each with its string ABI.
    pub fn beside<E>(
        &self,
        project: &ProjectName,
        torch: impl FnOnce(&ProjectName) -> Result<Vec<(Version, Option<bool>)>, E>,
    ) -> Result<Vec<Requirement>, E> {
        let mut beside = Vec::new();
        if self.is_of_numpy_1()
            && let Ok(numpy) = "numpy<2".parse::<Requirement>()
        {
            beside.push(Requirement { text: NUMPY_1.to_owned(), ..numpy });
        }
        if let (Some(own), Ok(name)) = (self.cxx11, TORCH.parse::<ProjectName>())
            && *project != name
        {
            let known = torch(&name)?;
            // `!=2.6.0` is every build of 2.6.0: it is said only where none of them will do.
            let fails = |version: &Version| {
                let public = version.clone().without_local();
                known
                    .iter()
                    .filter(|(other, _)| other.clone().without_local() == public)
                    .all(|(_, cxx11)| cxx11.is_some_and(|cxx11| cxx11 != own))
            };
            let mut excluded: Vec<Version> = known
                .iter()
                .map(|(version, _)| version)
                .filter(|version| fails(version))
                .map(|version| version.clone().without_local())
                .collect();
            excluded.sort();
            excluded.dedup();
            excluded.truncate(MOST_EXCLUDED);
            beside.extend(without(&name, &excluded, own));
        }
        Ok(beside)
    }
}

/// A requirement that excludes versions.
fn without(project: &ProjectName, excluded: &[Version], own: bool) -> Option<Requirement> {
    let specifier = |version: &Version| VersionSpecifier::from_version(Operator::NotEqual, version.clone());
    let specifiers: Vec<VersionSpecifier> =
        excluded.iter().filter_map(|version| specifier(version).ok()).collect();
    let bare = project.as_str().parse::<Requirement>().ok().filter(|_| !specifiers.is_empty())?;
    let texts: Vec<String> = specifiers.iter().map(ToString::to_string).collect();
    let specifiers: VersionSpecifiers = specifiers.into_iter().collect();
    let text = format!("{project}{} (compiled with the {} C++ string ABI)", texts.join(","), name_of(own));
    Some(Requirement { text, specifiers, ..bare })
}

fn name_of(cxx11: bool) -> &'static str {
    if cxx11 { "C++11" } else { "old" }
}

/// Refuses a wheel that was compiled against NumPy 1 and needs it, where the device has NumPy 2 alone.
pub(super) fn judge_numpy(shelf: &Shelf<'_, '_>, entry: &Entry<'_>) -> Option<Reason> {
    if !entry.wheel.brief.abi.is_of_numpy_1() {
        return None;
    }
    let need = entry.needs.iter().find(|need| need.project.as_str() == NUMPY)?;
    let found = newest_numpy(shelf, need)?;
    if shelf.listed(&need.project)?.filter(|other| other.satisfies(need)).any(is_numpy_1) {
        return None;
    }
    Some(Reason {
        code: Code::NumpyAbi,
        member: entry.wheel.brief.numpy_1_member.clone(),
        found: vec![found.clone()],
        wanted: vec!["numpy<2".to_owned()],
        text: format!(
            "compiled against the C API of NumPy 1, with which NumPy 2 cannot load it; of what it asks for {} has {found} \
             and none below 2",
            shelf.device.id
        ),
        remedy: "bring in numpy<2, or look for a build made with NumPy 2, which runs with both".to_owned(),
    })
}

/// Says what to keep in mind of a wheel that was compiled against NumPy 1, or with another string ABI than some torch.
pub(super) fn notes(shelf: &Shelf<'_, '_>, entry: &Entry<'_>) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut say = |text: String| notes.push(Note { code: NoteCode::UnfitDependency, text });
    let abi = &entry.wheel.brief.abi;
    if abi.is_of_numpy_1()
        && let Ok(project) = NUMPY.parse::<ProjectName>()
    {
        let any = bare(&project).map(Need::of);
        let need = entry.needs.iter().find(|need| need.project == project).or(any.as_ref());
        if let Some(found) = need.and_then(|need| newest_numpy(shelf, need)) {
            say(format!(
                "compiled against the C API of NumPy 1: it does not load with {found}, which the index lists too, so ask \
                 for \"numpy<2\" beside it"
            ));
        }
    }
    if let Some((own, torch)) = linked_torch(entry) {
        let need = entry.needs.iter().find(|need| need.project == torch);
        let fits = |other: &&Entry<'_>| need.is_none_or(|need| other.satisfies(need));
        let newest = shelf
            .listed(&torch)
            .and_then(|listed| listed.filter(fits).max_by(|left, right| left.version.cmp(&right.version)));
        if let Some(newest) = newest.filter(|newest| newest.wheel.brief.abi.cxx11 == Some(!own)) {
            say(format!(
                "compiled with the {} C++ string ABI, {} with the {} one: take a version of {torch} that has the same",
                name_of(own),
                newest.name(),
                name_of(!own)
            ));
        }
    }
    notes
}

fn bare(project: &ProjectName) -> Option<Requirement> {
    project.as_str().parse().ok()
}

fn is_numpy_1(entry: &Entry<'_>) -> bool {
    entry.version.as_ref().is_some_and(|version| version.release().first().is_some_and(|major| *major < 2))
}

/// The newest NumPy that satisfies a need, if it is 2 or later.
fn newest_numpy(shelf: &Shelf<'_, '_>, need: &Need) -> Option<String> {
    let listed = shelf.listed(&need.project)?.filter(|other| other.satisfies(need));
    let newest = listed.max_by(|left, right| left.version.cmp(&right.version))?;
    (!is_numpy_1(newest)).then(|| newest.name())
}

/// The string ABI of a wheel that links PyTorch, with the name of that.
fn linked_torch(entry: &Entry<'_>) -> Option<(bool, ProjectName)> {
    let own = entry.wheel.brief.abi.cxx11?;
    let torch: ProjectName = TORCH.parse().ok()?;
    (entry.project != Some(&torch)).then_some((own, torch))
}

/// Refuses a wheel whose C++ ABI is that of none of the builds of PyTorch that it can be installed with.
pub(super) fn judge_cxx11(shelf: &Shelf<'_, '_>, entry: &Entry<'_>) -> Option<Reason> {
    let (own, torch) = linked_torch(entry)?;
    let need = entry.needs.iter().find(|need| need.project == torch);
    let mut partners =
        shelf.listed(&torch)?.filter(|other| need.is_none_or(|need| other.satisfies(need))).peekable();
    let first = partners.peek()?.name();
    if !partners.all(|other| other.wheel.brief.abi.cxx11 == Some(!own)) {
        return None;
    }
    Some(Reason {
        code: Code::AbiMismatch,
        member: entry.wheel.brief.cxx11_member.clone(),
        found: vec![format!("{} ABI", name_of(own))],
        wanted: vec![format!("{} ABI", name_of(!own))],
        text: format!(
            "compiled with the {} C++ string ABI, {first} with the {} one: symbols would be missing",
            name_of(own),
            name_of(!own)
        ),
        remedy: format!("look for a build made for {first}"),
    })
}
