//! Wheels that go with one version of another GPU project.

use pep440_rs::Operator;

use super::{Entry, Need, Shelf};
use crate::policy::{Code, Reason};

/// Refuses a wheel that pins another GPU project to a version of which the device has none.
///
/// Where the device has other versions of that project, any requirement counts. Where it has none at all, only a pin to wheels
/// that are known and refused does: any other may be met by the next wheel that comes in.
pub(super) fn judge(shelf: &Shelf<'_, '_>, entry: &Entry<'_>) -> Option<Reason> {
    let need = entry.needs.iter().find(|need| mismatches(shelf, entry, need))?;
    let mut there: Vec<_> = shelf.listed(&need.project)?.collect();
    there.sort_by(|left, right| right.version.cmp(&left.version));
    let mut versions: Vec<String> =
        there.iter().filter_map(|other| other.wheel.brief.facts.version.clone()).collect();
    versions.dedup();
    let has = match versions.as_slice() {
        [] => "it has none".to_owned(),
        [one] => format!("it has {one}"),
        [first, rest @ ..] => format!("it has {first} and {} more", rest.len()),
    };
    Some(Reason {
        code: Code::PairMismatch,
        member: None,
        found: vec![need.requirement.short()],
        text: format!(
            "goes with {}, which {} cannot have: of {} {has}",
            need.requirement.short(),
            shelf.device.id,
            need.project
        ),
        wanted: versions,
        remedy: String::new(),
    })
}

fn mismatches(shelf: &Shelf<'_, '_>, entry: &Entry<'_>, need: &Need) -> bool {
    if entry.project == Some(&need.project) || !(shelf.rules.requires_gpu)(&need.project) {
        return false;
    }
    let Some(listed) = shelf.listed(&need.project) else { return false };
    let mut any = false;
    for other in listed {
        if other.satisfies(need) {
            return false;
        }
        any = true;
    }
    any || (is_pin(need) && shelf.known(&need.project).any(|other| other.satisfies(need)))
}

fn is_pin(need: &Need) -> bool {
    need.requirement.specifiers.iter().any(|specifier| {
        matches!(
            specifier.operator(),
            Operator::Equal | Operator::ExactEqual | Operator::EqualStar | Operator::TildeEqual
        )
    })
}

/// What to use instead of a wheel without its pair.
pub(super) fn remedy(shelf: &Shelf<'_, '_>, entry: &Entry<'_>) -> String {
    let Some(need) = entry.needs.iter().find(|need| mismatches(shelf, entry, need)) else {
        return String::new();
    };
    let best = |project| {
        shelf.listed(project).and_then(|listed| listed.max_by(|left, right| left.version.cmp(&right.version)))
    };
    let mut instead = entry.project.and_then(|project| shelf.listed(project));
    let instead =
        instead.as_mut().and_then(|listed| listed.max_by(|left, right| left.version.cmp(&right.version)));
    match (instead, best(&need.project)) {
        (Some(instead), Some(partner)) => {
            format!("use {} with {}", instead.name(), partner.name())
        }
        (None, Some(partner)) => format!("look for a build that was made for {}", partner.name()),
        (_, None) => format!(
            "bring in a build of {} for {}, and one of {} that goes with it",
            need.project,
            shelf.device.id,
            entry.project.map_or("this", |project| project.as_str())
        ),
    }
}
