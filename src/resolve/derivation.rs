//! pubgrub's derivation of "no set" as a list of facts, read from the request downwards.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use pubgrub::{DerivationTree, External};
use version_ranges::Ranges;

use super::Derivation;
use super::provider::{Package, Why};
use super::range::Pick;

/// Most nodes of a derivation that are read. What lies beyond would not be read by anyone.
const MOST_NODES: usize = 20_000;

/// One fact that a derivation rests on.
#[derive(Debug, Clone)]
pub(super) enum Fact {
    /// Wheels of a package need wheels of another.
    Needs { owner: Package, picks: Ranges<Pick>, needed: Package },
    /// No usable wheel of a package lies in a range.
    NoWheel { package: Package, range: Ranges<Pick> },
    /// Wheels of a package cannot be used.
    Unusable { package: Package, picks: Ranges<Pick>, why: Why },
}

/// The facts of a derivation, each project's together, those nearest to the request first.
pub(super) fn facts(derivation: &Derivation) -> Vec<Fact> {
    let mut by_package: BTreeMap<&Package, Vec<Fact>> = BTreeMap::new();
    let mut needed: BTreeMap<&Package, Vec<&Package>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut stack = vec![derivation];
    let mut visited = 0_usize;
    while let Some(tree) = stack.pop() {
        visited += 1;
        if visited > MOST_NODES {
            break;
        }
        match tree {
            DerivationTree::Derived(derived) => {
                if derived.shared_id.is_none_or(|id| seen.insert(id)) {
                    stack.push(&derived.cause2);
                    stack.push(&derived.cause1);
                }
            }
            DerivationTree::External(External::NotRoot(..)) => {}
            DerivationTree::External(External::NoVersions(package, range)) => {
                by_package
                    .entry(package)
                    .or_default()
                    .push(Fact::NoWheel { package: package.clone(), range: range.clone() });
            }
            DerivationTree::External(External::FromDependencyOf(owner, picks, package, _)) => {
                by_package.entry(owner).or_default().push(Fact::Needs {
                    owner: owner.clone(),
                    picks: picks.clone(),
                    needed: package.clone(),
                });
                needed.entry(owner).or_default().push(package);
            }
            DerivationTree::External(External::Custom(package, picks, why)) => {
                by_package.entry(package).or_default().push(Fact::Unusable {
                    package: package.clone(),
                    picks: picks.clone(),
                    why: why.clone(),
                });
            }
        }
    }
    let mut facts = Vec::new();
    let mut queue = VecDeque::from([&Package::Root]);
    let mut queued = BTreeSet::from([&Package::Root]);
    while let Some(package) = queue.pop_front() {
        facts.extend(by_package.remove(package).unwrap_or_default());
        for next in needed.get(package).into_iter().flatten() {
            if queued.insert(next) {
                queue.push_back(next);
            }
        }
    }
    facts.extend(by_package.into_values().flatten());
    facts
}

/// Takes a derivation apart node by node: dropping a deep one as it is would overflow the stack.
pub(super) fn dismantle(derivation: Derivation) {
    let mut stack = vec![Arc::new(derivation)];
    while let Some(tree) = stack.pop() {
        if let Ok(DerivationTree::Derived(derived)) = Arc::try_unwrap(tree) {
            stack.push(derived.cause1);
            stack.push(derived.cause2);
        }
    }
}
