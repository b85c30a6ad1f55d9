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
    for (how, relaxed) in relaxations(asked).into_iter().take(MOST_TRIES) {
        // A limit or a failed lookup ends the search for advice, not the answer.
        match solve(known, &relaxed) {
            Ok(Ok(resolution)) => return Some((how, pins(&resolution))),
            Ok(Err(derivation)) => dismantle(*derivation),
            Err(_) => return None,
        }
    }
    None
}

fn relaxations(asked: &Asked) -> Vec<(String, Asked)> {
    let mut relaxed = Vec::new();
    let open = |indices: &[usize]| {
        let mut other = asked.clone();
        for &index in indices {
            other.requirements[index].specifiers = VersionSpecifiers::empty();
        }
        (String::new(), other)
    };
    let is_limited = |index: &usize| !asked.requirements[*index].specifiers.is_empty();
    let limited: Vec<usize> = (0..asked.requirements.len()).filter(is_limited).collect();
    relaxed.extend(limited.iter().map(|&index| open(&[index])));
    for name in asked.constraints.keys() {
        let mut other = asked.clone();
        other.constraints.remove(name);
        relaxed.push((format!(" without the constraint on {name}"), other));
    }
    if limited.len() > 1 {
        relaxed.push(open(&limited));
    }
    if asked.requirements.len() > 1 {
        for index in 0..asked.requirements.len() {
            let mut other = asked.clone();
            let left_out = other.requirements.remove(index);
            relaxed.push((format!(" without {}", left_out.project), other));
        }
    }
    relaxed
}

fn pins(resolution: &Resolution) -> Vec<String> {
    resolution
        .packages
        .iter()
        .filter(|package| package.requested)
        .map(|package| format!("{}=={}", package.candidate.project, package.candidate.version_text))
        .collect()
}
