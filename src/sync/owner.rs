//! Whose a project is: of several upstreams that list one name, one alone is listened to.
//!
//! Anybody may take a name on a general index that is free there, so mixing two upstreams would let strangers put a newer
//! version beside a site's own.

use crate::policy::Policy;
use crate::wheel::ProjectName;

/// How an upstream stands to a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing<'a> {
    /// Place in the order of priority.
    pub(crate) order: usize,
    /// Name.
    pub(crate) name: &'a str,
    /// Whether anybody may put projects into it.
    pub(crate) general: bool,
    /// Whether it lists the project; none if it was not reached.
    pub(crate) lists: Option<bool>,
    /// Whether the store has files of the project from it.
    pub(crate) known: bool,
}

/// Whose a project is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    /// The upstream that it is taken from; none if nobody has it, or if that cannot be said now.
    pub(crate) owner: Option<usize>,
    /// Others that list it.
    pub(crate) shadowed: Vec<usize>,
}

/// Says whose a project is, among the upstreams that serve a device.
///
/// The one that the policy names; else the first that lists it, general ones last. While one that comes before was not
/// reached, the project stays with whom it was: with that one if the store has it from there, and in any case not with a
/// general one.
pub(crate) fn owner(project: &ProjectName, policy: &Policy, standings: &[Standing<'_>]) -> Owned {
    let mut sorted: Vec<&Standing<'_>> = standings.iter().collect();
    sorted.sort_by_key(|standing| (standing.general, standing.order));
    let named = policy.owner(project).and_then(|name| sorted.iter().find(|standing| standing.name == name));
    let owner = match named {
        Some(named) => Some(named.order),
        None => first(&sorted),
    };
    let others =
        sorted.iter().filter(|standing| standing.lists == Some(true) && Some(standing.order) != owner);
    Owned { owner, shadowed: others.map(|standing| standing.order).collect() }
}

fn first(sorted: &[&Standing<'_>]) -> Option<usize> {
    let mut unreached = false;
    for standing in sorted {
        match standing.lists {
            Some(true) if standing.general && unreached => return None,
            Some(true) => return Some(standing.order),
            Some(false) => {}
            None if standing.known => return Some(standing.order),
            None => unreached = true,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(order: usize, name: &'static str, lists: Option<bool>) -> Standing<'static> {
        Standing { order, name, general: name == "general", lists, known: false }
    }

    fn owner_of(project: &str, rules: &str, standings: &[Standing<'_>]) -> (Option<usize>, Vec<usize>) {
        let policy = Policy::with_site(&[("rules.toml".to_owned(), rules.to_owned())]).unwrap();
        let owned = owner(&project.parse().unwrap(), &policy, standings);
        (owned.owner, owned.shadowed)
    }

    #[test]
    fn the_first_that_lists_it_owns_it_and_a_general_one_comes_last() {
        let all = [
            standing(0, "general", Some(true)),
            standing(1, "jetson", Some(false)),
            standing(2, "site", Some(true)),
        ];
        assert_eq!(owner_of("demo", "", &all), (Some(2), vec![0]));
        assert_eq!(owner_of("demo", "", &all[..2]), (Some(0), vec![]));
        assert_eq!(owner_of("demo", "", &all[1..2]), (None, vec![]));
    }

    #[test]
    fn the_policy_names_owners_by_pattern() {
        let rules = "[[owner]]\nprojects = [\"torch*\"]\nupstream = \"site\"\n";
        let all = [standing(0, "jetson", Some(true)), standing(1, "site", Some(false))];
        assert_eq!(owner_of("torchvision", rules, &all), (Some(1), vec![0]), "though it lists none");
        assert_eq!(owner_of("numpy", rules, &all), (Some(0), vec![]));
        assert_eq!(
            owner_of("torch", rules, &all[..1]),
            (Some(0), vec![]),
            "where the named one does not serve"
        );
    }

    #[test]
    fn an_outage_gives_no_project_to_a_general_upstream() {
        let down = standing(0, "jetson", None);
        let general = standing(2, "general", Some(true));
        assert_eq!(owner_of("torch", "", &[down, general]), (None, vec![2]));
        assert_eq!(
            owner_of("demo", "", &[down, standing(1, "site", Some(true)), general]),
            (Some(1), vec![2])
        );
        let known = Standing { known: true, ..down };
        assert_eq!(owner_of("demo", "", &[known, standing(1, "site", Some(true))]), (Some(0), vec![1]));
    }
}
