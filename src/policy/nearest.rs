//! Which known ids are most like one that is not known.

/// Ids that are named at most.
const MOST: usize = 5;

/// Bytes of an id that are looked at; longer ones are no typing errors.
const LONGEST: usize = 64;

/// The ids most like `wanted`, best first.
pub(super) fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted: String = wanted.chars().take(LONGEST).collect::<String>().to_ascii_lowercase();
    let name = |id: &str| id.split('-').next().unwrap_or_default().to_owned();
    let mut ranked: Vec<_> = known
        .map(|id| {
            // Another release of the same chip is nearer than the same release of another.
            let other_chip = name(id) != name(&wanted);
            ((other_chip, distance(&wanted, id)), id)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().take(MOST).map(|(_, id)| id).collect()
}

/// Levenshtein's distance, in bytes.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, left) in one.bytes().enumerate() {
        let mut diagonal = index;
        row[0] = index + 1;
        for (at, right) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_the_same_chip() {
        let known = ["thor-jp7.0", "orin-jp6.2", "orin-jp7.2", "orin-jp5.1.2"];
        assert_eq!(nearest("orin-jp7.0", known.into_iter())[..2], ["orin-jp7.2", "orin-jp6.2"]);
        assert_eq!(nearest("thor", known.into_iter())[0], "thor-jp7.0");
    }
}
