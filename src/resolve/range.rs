//! Version specifiers of PEP 440 as ranges over the wheels of a project.
//!
//! `pep440_rs` has a conversion of its own, from which this one differs where the specification asks for it: `==2.4.0` takes
//! `2.4.0+cu126`, `<=2.4.0` too ("Local version identifiers": ignored unless the specifier has one), and `>1.0.post0` takes
//! `1.0.post1.dev0` but not `1.0.post0+local`.

use std::fmt;

use pep440_rs::{LocalSegment, Operator, Version, VersionSpecifier, VersionSpecifiers};
use version_ranges::Ranges;

/// A value, or a bound below or above all values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Edge<T> {
    /// Below all.
    Low,
    /// One.
    At(T),
    /// Above all.
    High,
}

/// What the solver picks: one wheel of a project, by its version and its place in the project's list.
///
/// The order is that of versions; between the wheels of one version it has no meaning (which of them is preferred, the list
/// says).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pick {
    version: Version,
    local: Edge<Vec<LocalSegment>>,
    wheel: Edge<u32>,
}

impl Pick {
    /// The wheel at a place of the project's list.
    pub(super) fn wheel(version: &Version, place: u32) -> Self {
        Self {
            version: version.clone().without_local(),
            local: Edge::At(version.local().to_vec()),
            wheel: Edge::At(place),
        }
    }

    /// The only pick of a package that has no wheels.
    pub(super) fn root() -> Self {
        Self { version: Version::new([0]), local: Edge::Low, wheel: Edge::Low }
    }

    /// Its place in the project's list.
    pub(super) fn place(&self) -> Option<usize> {
        match self.wheel {
            Edge::At(place) => usize::try_from(place).ok(),
            Edge::Low | Edge::High => None,
        }
    }

    /// Whether both have the same public version.
    pub(super) fn same_version(&self, other: &Self) -> bool {
        self.version == other.version
    }

    fn edge(version: &Version, local: Edge<Vec<LocalSegment>>, high: bool) -> Self {
        Self {
            version: version.clone().without_local(),
            local,
            wheel: if high { Edge::High } else { Edge::Low },
        }
    }

    /// Below everything with that public version.
    fn below(version: &Version) -> Self {
        Self::edge(version, Edge::Low, false)
    }

    /// Above everything with that public version, whatever its local label.
    fn above(version: &Version) -> Self {
        Self::edge(version, Edge::High, true)
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.local {
            Edge::At(local) => write!(out, "{}", self.version.clone().with_local(local.clone())),
            Edge::Low | Edge::High => write!(out, "{}", self.version),
        }
    }
}

/// The wheels that satisfy all of the specifiers, pre-releases included.
pub(super) fn range_of(specifiers: &VersionSpecifiers) -> Ranges<Pick> {
    specifiers.iter().map(one).fold(Ranges::full(), |range, next| range.intersection(&next))
}

/// Whether a specifier pins one version, so that a yanked one may be meant (PEP 592).
pub(super) fn pins(specifier: &VersionSpecifier) -> bool {
    matches!(specifier.operator(), Operator::Equal | Operator::ExactEqual)
}

fn one(specifier: &VersionSpecifier) -> Ranges<Pick> {
    let version = specifier.version();
    match specifier.operator() {
        Operator::Equal => exactly(version),
        // `===1.1` compares as text: no local label is added.
        Operator::ExactEqual => labelled(version),
        Operator::NotEqual => exactly(version).complement(),
        Operator::EqualStar => prefix(version),
        Operator::NotEqualStar => prefix(version).complement(),
        Operator::TildeEqual => match version.release() {
            // `~=2.2.1` is `>=2.2.1, ==2.2.*`; the parser takes no `~=` with one number.
            [rest @ .., last, _] => {
                let next = Version::new(rest.iter().copied().chain([last.saturating_add(1)]))
                    .with_epoch(version.epoch())
                    .with_dev(Some(0));
                Ranges::from_range_bounds(Pick::below(version)..Pick::below(&next))
            }
            _ => Ranges::empty(),
        },
        Operator::LessThanEqual => Ranges::lower_than(Pick::above(version)),
        Operator::GreaterThanEqual if version.is_local() => {
            Ranges::higher_than(Pick::edge(version, Edge::At(version.local().to_vec()), false))
        }
        Operator::GreaterThanEqual => Ranges::higher_than(Pick::below(version)),
        // "MUST NOT allow a pre-release of the specified version unless the specified version is itself a pre-release."
        Operator::LessThan if version.any_prerelease() => Ranges::strictly_lower_than(Pick::below(version)),
        Operator::LessThan => {
            Ranges::strictly_lower_than(Pick::below(&version.clone().without_local().with_dev(Some(0))))
        }
        // "MUST NOT allow a post-release of the given version unless V itself is a post release", nor its local versions.
        Operator::GreaterThan if version.is_post() || version.is_dev() => {
            Ranges::strictly_higher_than(Pick::above(version))
        }
        Operator::GreaterThan => {
            Ranges::strictly_higher_than(Pick::above(&version.clone().without_local().with_max(Some(0))))
        }
    }
}

fn exactly(version: &Version) -> Ranges<Pick> {
    if version.is_local() {
        labelled(version)
    } else {
        Ranges::from_range_bounds(Pick::below(version)..=Pick::above(version))
    }
}

/// A version with just the local label that it has, or with none.
fn labelled(version: &Version) -> Ranges<Pick> {
    let local = Edge::At(version.local().to_vec());
    Ranges::between(Pick::edge(version, local.clone(), false), Pick::edge(version, local, true))
}

/// `==1.2.*`: everything whose release begins so, pre-releases included.
fn prefix(version: &Version) -> Ranges<Pick> {
    let low = version.only_release().with_epoch(version.epoch());
    let mut release = low.release().to_vec();
    if let Some(last) = release.last_mut() {
        *last = last.saturating_add(1);
    }
    let high = Version::new(release).with_epoch(version.epoch()).with_dev(Some(0));
    Ranges::from_range_bounds(Pick::below(&low.with_dev(Some(0)))..Pick::below(&high))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values from `packaging.specifiers.SpecifierSet(...).contains(..., prereleases=True)` of packaging 26.4.
    #[test]
    fn agrees_with_packaging() {
        for (specifiers, version, wanted) in [
            ("==2.4.0", "2.4.0+cu126", true),
            ("==2.4.0+cu126", "2.4.0", false),
            ("==2.4.0+cu126", "2.4.0+cu126", true),
            ("==2.4.0", "2.4.0.post1", false),
            ("===2.4.0", "2.4.0+cu126", false),
            ("!=2.4.0", "2.4.0+cu126", false),
            ("<=2.4.0", "2.4.0+cu126", true),
            ("<2.4.0", "2.4.0a1", false),
            ("<2.4.0", "2.4.0.dev3", false),
            ("<2.4.0a2", "2.4.0a1", true),
            (">2.4.0", "2.4.0.post1", false),
            (">2.4.0", "2.4.0+cu126", false),
            (">2.4.0.post0", "2.4.0.post1.dev0", true),
            (">2.4.0.post0", "2.4.0.post0+x", false),
            (">=2.4.0", "2.4.0a1", false),
            (">=2.4", "2.4.0+cu126", true),
            ("==2.4.*", "2.4.1", true),
            ("==2.4.*", "2.4.0a1", true),
            ("==2.4.*", "2.5", false),
            ("!=2.4.*", "2.4.1+x", false),
            ("~=2.4.1", "2.4.9", true),
            ("~=2.4.1", "2.5", false),
            ("~=2.4", "2.9", true),
            ("==2.5.0", "2.5.0a0+872d972e41.nv24.08", false),
            (">=2.4", "2.5.0a0+872d972e41.nv24.08", true),
            ("==1!2.0", "2.0", false),
        ] {
            let range = range_of(&specifiers.parse().unwrap());
            let pick = Pick::wheel(&version.parse().unwrap(), 0);
            assert_eq!(range.contains(&pick), wanted, "{version} in {specifiers}");
        }
    }
}
