//! A request near to one that has no answer, which has one.

use pep440_rs::VersionSpecifiers;

use super::candidate::Index;
use super::derivation::dismantle;
use super::known::Known;
use super::provider::Asked;
use super::{Resolution, solve};

/// Most requests that are tried. Each costs a run of the solver over what is known already, and may read more.
const MOST_TRIES: usize = 12;

/// How a request was relaxed, where that does not show in the pins; and pins of the requested projects that work together.
///
/// Tried in turn: the versions of one requirement left open, the constraints on one project dropped, all versions left open,
/// one requirement left out. The first that has an answer is given.
pub(super) fn nearest<I: Index>(known: &Known<'_, I>, asked: &Asked) -> Option<(String, Vec<String>)> {
    for (how, relaxed) in relaxations(asked).take(MOST_TRIES) {
        // A limit or a failed lookup ends the search for advice, not the answer.
        match solve(known, &relaxed) {
            Ok(Ok(resolution)) => return Some((how, pins(&resolution))),
            Ok(Err(derivation)) => dismantle(*derivation),
            Err(_) => return None,
        }
    }
    None
}

/// Each is made when it is tried: a large request weighs a lot.
fn relaxations(asked: &Asked) -> impl Iterator<Item = (String, Asked)> {
    let open = |indices: &[usize]| {
        let mut other = asked.clone();
        for &index in indices {
            other.requirements[index].specifiers = VersionSpecifiers::empty();
        }
        (String::new(), other)
    };
    let is_limited = |index: &usize| !asked.requirements[*index].specifiers.is_empty();
    let limited: Vec<usize> = (0..asked.requirements.len()).filter(is_limited).collect();
    let all = (limited.len() > 1).then(|| limited.clone());
    let one_open = limited.into_iter().map(move |index| open(&[index]));
    let without_constraint = asked.constraints.keys().map(|name| {
        let mut other = asked.clone();
        other.constraints.remove(name);
        (format!(" without the constraint on {name}"), other)
    });
    let all_open = all.into_iter().map(move |indices| open(&indices));
    let several = asked.requirements.len() > 1;
    let left_out = (0..asked.requirements.len()).filter(move |_| several).map(|index| {
        let mut other = asked.clone();
        let left_out = other.requirements.remove(index);
        (format!(" without {}", left_out.project), other)
    });
    one_open.chain(without_constraint).chain(all_open).chain(left_out)
}

fn pins(resolution: &Resolution) -> Vec<String> {
    resolution
        .packages
        .iter()
        .filter(|package| package.requested)
        .map(|package| format!("{}=={}", package.candidate.project, package.candidate.version_text))
        .collect()
}
