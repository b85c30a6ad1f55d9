//! Which known ids are most like one that is not known.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use strsim::levenshtein;

/// Ids that are named at most.
const MOST: usize = 5;

/// Bytes of an id that are looked at; longer ones are no typing errors.
const LONGEST: usize = 64;

/// The ids most like `wanted`, best first; `known` has the releases of each chip from old to new.
///
/// Another release of the same chip is nearer than the same release of another, and one of the same JetPack line nearer
/// than one of another line. What resembles nothing gets the newest release of each chip.
pub(super) fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted: String = wanted.chars().take(LONGEST).collect::<String>().to_ascii_lowercase();
    let mut ranked: Vec<_> = known
        .enumerate()
        .map(|(at, id)| {
            let other_chip = chip(id) != chip(&wanted);
            ((other_chip, line(id) != line(&wanted), levenshtein(&wanted, id)), Reverse(at), id)
        })
        .collect();
    ranked.sort_unstable();
    if let Some(((true, _, distance), ..)) = ranked.first()
        && distance.saturating_mul(2) > wanted.len()
    {
        ranked.sort_unstable_by_key(|&(_, at, _)| at);
        let mut chips = BTreeSet::new();
        ranked.retain(|(.., id)| chips.insert(chip(id)));
        ranked.reverse();
    }
    ranked.into_iter().take(MOST).map(|(.., id)| id).collect()
}

/// `orin` of `orin-jp6.2`.
fn chip(id: &str) -> &str {
    id.split('-').next().unwrap_or_default()
}

/// `orin-jp6` of `orin-jp6.2`.
fn line(id: &str) -> &str {
    id.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_the_same_chip() {
        let known = ["orin-jp5.1.2", "orin-jp6.2", "orin-jp6.2.1", "orin-jp7.2", "thor-jp7.0"];
        assert_eq!(nearest("orin-jp7.0", known.into_iter())[..2], ["orin-jp7.2", "orin-jp6.2"]);
        assert_eq!(nearest("orin-jp6.3", known.into_iter())[..2], ["orin-jp6.2", "orin-jp6.2.1"]);
        assert_eq!(nearest("thor", known.into_iter())[0], "thor-jp7.0");
    }

    #[test]
    fn offers_the_newest_of_each_chip_where_nothing_is_near() {
        let known = ["orin-jp5.1.2", "orin-jp7.2", "thor-jp7.0", "thor-jp7.2"];
        assert_eq!(nearest("raspberry", known.into_iter()), ["orin-jp7.2", "thor-jp7.2"]);
    }
}
