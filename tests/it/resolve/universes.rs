//! Small random universes, with brute force and the `packaging` library as oracles.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use jetwheel::resolve::{Failure, Limits, Metadata, Request, Resolution, resolve};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use super::catalogue::{Catalogue, requirements, target};

/// `project -> version -> requirements`, and what is asked.
#[derive(Debug, Clone)]
struct Universe<R> {
    wheels: BTreeMap<String, BTreeMap<String, Vec<R>>>,
    asked: Vec<R>,
    constraints: Vec<R>,
}

/// A requirement on a whole-numbered version, in a form of its own so that the oracle shares no code with what it checks.
#[derive(Debug, Clone)]
struct Ask {
    project: usize,
    extra: bool,
    sign: &'static str,
    version: u32,
    /// Whether it only applies with the extra.
    in_extra: bool,
}

impl Ask {
    fn text(&self) -> String {
        let extra = if self.extra { "[x]" } else { "" };
        let marker = if self.in_extra { " ; extra == 'x'" } else { "" };
        match self.sign {
            "" => format!("p{}{extra}{marker}", self.project),
            sign => format!("p{}{extra}{sign}{}{marker}", self.project, self.version),
        }
    }

    fn takes(&self, version: u32) -> bool {
        match self.sign {
            "" => true,
            "==" => version == self.version,
            "!=" => version != self.version,
            "<" => version < self.version,
            "<=" => version <= self.version,
            ">" => version > self.version,
            ">=" => version >= self.version,
            other => panic!("{other}"),
        }
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    let sign = proptest::sample::select(vec!["", "==", "==", "!=", "<", "<=", ">", ">="]);
    (0..5_usize, proptest::bool::weighted(0.2), sign, 1..5_u32, proptest::bool::weighted(0.2))
        .prop_map(|(project, extra, sign, version, in_extra)| Ask { project, extra, sign, version, in_extra })
}

fn universe() -> impl Strategy<Value = Universe<Ask>> {
    let versions = proptest::collection::btree_map(1..5_u32, proptest::collection::vec(ask(), 0..3), 1..=4);
    let root = ask().prop_map(|ask| Ask { in_extra: false, ..ask });
    let constraint = ask().prop_map(|ask| Ask { in_extra: false, extra: false, ..ask });
    (
        proptest::collection::vec(versions, 2..=5),
        proptest::collection::vec(root, 1..4),
        proptest::collection::vec(constraint, 0..2),
    )
        .prop_map(|(projects, asked, constraints)| Universe {
            wheels: projects
                .into_iter()
                .enumerate()
                .map(|(number, versions)| {
                    let versions =
                        versions.into_iter().map(|(version, needs)| (version.to_string(), needs)).collect();
                    (format!("p{number}"), versions)
                })
                .collect(),
            asked,
            constraints,
        })
}

fn answer(
    wheels: &BTreeMap<String, BTreeMap<String, Vec<String>>>,
    asked: &[String],
    constraints: &[String],
) -> Option<Resolution> {
    let mut catalogue = Catalogue::default();
    for (project, versions) in wheels {
        for (version, needs) in versions {
            let file = format!("{project}-{version}-py3-none-any.whl");
            let metadata = Metadata::parse(needs, None, &["x".to_owned()]).unwrap();
            catalogue.add_file(project, version, &file, metadata);
        }
    }
    let request = Request {
        requirements: requirements(&asked.iter().map(String::as_str).collect::<Vec<_>>()),
        constraints: requirements(&constraints.iter().map(String::as_str).collect::<Vec<_>>()),
        ..Request::default()
    };
    match resolve(&request, &target("3.10"), &mut catalogue) {
        Ok(resolution) => Some(resolution),
        Err(Failure::Unsatisfiable(explanation)) => {
            assert!(
                explanation.text.lines().count() > 1,
                "an explanation without a cause: {}",
                explanation.text
            );
            None
        }
        Err(other) => panic!("{other:?}"),
    }
}

fn texts(universe: &Universe<Ask>) -> Universe<String> {
    Universe {
        wheels: universe
            .wheels
            .iter()
            .map(|(project, versions)| {
                let versions = versions
                    .iter()
                    .map(|(version, needs)| (version.clone(), needs.iter().map(Ask::text).collect()))
                    .collect();
                (project.clone(), versions)
            })
            .collect(),
        asked: universe.asked.iter().map(Ask::text).collect(),
        constraints: universe.constraints.iter().map(Ask::text).collect(),
    }
}

/// Whether a choice of versions is an answer: everything needed is in it and satisfied, nothing else is in it.
fn holds(universe: &Universe<Ask>, chosen: &BTreeMap<usize, u32>) -> bool {
    let constrained = |(project, version): (&usize, &u32)| {
        universe.constraints.iter().all(|one| one.project != *project || one.takes(*version))
    };
    let mut reached = BTreeSet::new();
    let mut queue: Vec<&Ask> = universe.asked.iter().collect();
    while let Some(ask) = queue.pop() {
        let Some(&version) = chosen.get(&ask.project) else { return false };
        if !ask.takes(version) {
            return false;
        }
        let needs = &universe.wheels[&format!("p{}", ask.project)][&version.to_string()];
        for extra in std::iter::once(false).chain(ask.extra.then_some(true)) {
            if reached.insert((ask.project, extra)) {
                queue.extend(needs.iter().filter(|need| extra || !need.in_extra));
            }
        }
    }
    let projects: BTreeSet<usize> = reached.iter().map(|(project, _)| *project).collect();
    chosen.iter().all(constrained) && projects.iter().eq(chosen.keys())
}

fn brute_force(universe: &Universe<Ask>) -> bool {
    let projects: Vec<Vec<u32>> = universe
        .wheels
        .values()
        .map(|versions| versions.keys().map(|text| text.parse().unwrap()).collect())
        .collect();
    let mut choices = vec![BTreeMap::new()];
    for (project, versions) in projects.iter().enumerate() {
        let with: Vec<_> = choices
            .iter()
            .flat_map(|choice| {
                versions.iter().map(move |version| {
                    let mut choice: BTreeMap<usize, u32> = choice.clone();
                    choice.insert(project, *version);
                    choice
                })
            })
            .collect();
        choices.extend(with);
    }
    choices.iter().any(|choice| holds(universe, choice))
}

proptest! {
    #![proptest_config(Config { cases: 600, failure_persistence: None, ..Config::default() })]

    #[test]
    fn finds_a_set_exactly_when_brute_force_does(universe in universe()) {
        let known = texts(&universe);
        let found = answer(&known.wheels, &known.asked, &known.constraints);
        prop_assert_eq!(found.is_some(), brute_force(&universe));
        if let Some(resolution) = found {
            let chosen = resolution
                .packages
                .iter()
                .map(|package| {
                    let project = package.candidate.project.as_str()[1..].parse().unwrap();
                    (project, package.candidate.version_text.parse().unwrap())
                })
                .collect();
            prop_assert!(holds(&universe, &chosen), "{chosen:?} is no answer");
        }
    }
}

/// Versions and requirements with all that PEP 440 has, less what releases of `packaging` read differently
/// (`<` of a post-release, `>` of a pre-release).
fn rich_universe() -> impl Strategy<Value = Universe<String>> {
    let version = proptest::sample::select(vec![
        "1.0",
        "1.0.post1",
        "1.1a1",
        "1.1",
        "1.1+cu126",
        "2.0.dev1",
        "2.0",
        "2.0+cpu",
        "2.0+cu126",
        "3.0rc1",
        "1!0.5",
    ]);
    let specifier = proptest::sample::select(vec![
        "",
        "==1.0",
        "==1.1",
        "==2.0+cu126",
        "!=1.1",
        ">=1.1",
        ">1.1",
        "<2.0",
        "<=1.1",
        "~=1.0",
        "==1.*",
        "!=2.0.*",
        ">=1.1a1,<3",
        ">1.0.post1",
        "===1.1",
        "<1!0",
        "==3.0rc1",
        ">=2.0.dev1",
    ]);
    let marker = proptest::sample::select(vec![
        "",
        "",
        "",
        " ; python_version >= '3.9'",
        " ; python_version < '3.9'",
        " ; platform_machine == 'x86_64'",
        " ; sys_platform == 'linux' and python_full_version >= '3.10.2'",
    ]);
    let requirement = (0..4_usize, specifier, marker)
        .prop_map(|(project, specifier, marker)| format!("p{project}{specifier}{marker}"))
        .boxed();
    let plain = requirement.clone().prop_map(|text| text.split(" ;").next().unwrap().to_owned());
    let versions = proptest::collection::btree_map(
        version.prop_map(ToOwned::to_owned),
        proptest::collection::vec(requirement.clone(), 0..3),
        1..=4,
    );
    (
        proptest::collection::vec(versions, 4),
        proptest::collection::vec(requirement, 1..4),
        proptest::collection::vec(plain, 0..2),
    )
        .prop_map(|(projects, asked, constraints)| Universe {
            wheels: projects
                .into_iter()
                .enumerate()
                .map(|(number, versions)| (format!("p{number}"), versions))
                .collect(),
            asked,
            constraints,
        })
}

#[test]
fn packaging_agrees_with_every_answer() {
    let mut runner = TestRunner::deterministic();
    let strategy = rich_universe();
    let (mut recorded, mut solved) = (Vec::new(), 0);
    for _ in 0..250 {
        let universe = strategy.new_tree(&mut runner).unwrap().current();
        let found = answer(&universe.wheels, &universe.asked, &universe.constraints).map(|resolution| {
            let pins = resolution
                .packages
                .into_iter()
                .map(|package| (package.candidate.project.to_string(), package.candidate.version_text));
            pins.collect::<BTreeMap<_, _>>()
        });
        solved += usize::from(found.is_some());
        recorded.push(serde_json::json!({
            "wheels": universe.wheels, "asked": universe.asked, "constraints": universe.constraints, "found": found,
        }));
    }
    assert!((50..200).contains(&solved), "{solved} of 250 solved: the universes prove too little");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("universes.json");
    fs_err::write(&file, serde_json::to_string(&recorded).unwrap()).unwrap();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/check_universes.py");
    let output = Command::new("python3")
        .args([script, file])
        .output()
        .expect("python3 with packaging or pip is needed to check answers: install it, or run ./ci.sh test, which does");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_order_of_candidates_does_not_matter() {
    let mut runner = TestRunner::deterministic();
    let strategy = rich_universe();
    for _ in 0..50 {
        let universe = strategy.new_tree(&mut runner).unwrap().current();
        let told = |reversed: bool| {
            let mut catalogue = Catalogue::default();
            for (project, versions) in &universe.wheels {
                let mut versions: Vec<_> = versions.iter().collect();
                if reversed {
                    versions.reverse();
                }
                for (version, needs) in versions {
                    let file = format!("{project}-{version}-py3-none-any.whl");
                    catalogue.add_file(project, version, &file, Metadata::parse(needs, None, &[]).unwrap());
                }
            }
            let asked: Vec<&str> = universe.asked.iter().map(String::as_str).collect();
            let request = Request { requirements: requirements(&asked), ..Request::default() };
            format!("{:?}", resolve(&request, &target("3.10"), &mut catalogue))
        };
        assert_eq!(told(false), told(true));
    }
}

/// Pigeons that do not fit into their holes: no solver finds that out in a short time.
#[test]
fn an_entangled_request_ends_by_a_limit() {
    const HOLES: u32 = 12;
    let mut catalogue = Catalogue::default();
    let pigeons: Vec<String> = (0..=HOLES).map(|pigeon| format!("pigeon{pigeon}")).collect();
    for (pigeon, name) in pigeons.iter().enumerate() {
        for hole in 1..=HOLES {
            catalogue.add(name, &hole.to_string(), &[&format!("hole{hole}=={pigeon}")]);
        }
    }
    for hole in 1..=HOLES {
        for pigeon in 0..=HOLES {
            catalogue.add(&format!("hole{hole}"), &pigeon.to_string(), &[]);
        }
    }
    let asked: Vec<&str> = pigeons.iter().map(String::as_str).collect();
    let mut request = Request { requirements: requirements(&asked), ..Request::default() };
    request.limits.backtracks = 500;
    let error = resolve(&request, &target("3.10"), &mut catalogue).unwrap_err();
    insta::assert_snapshot!(error, @"no answer after 500 decisions were taken back: the request is too entangled; pin some of the projects in it");

    request.limits = Limits { steps: 10, ..Limits::default() };
    let error = resolve(&request, &target("3.10"), &mut catalogue).unwrap_err();
    insta::assert_snapshot!(error, @"no answer after 10 steps: the request is too entangled; pin some of the projects in it");

    request.limits = Limits { candidates: 100, ..Limits::default() };
    let error = resolve(&request, &target("3.10"), &mut catalogue).unwrap_err();
    insta::assert_snapshot!(error, @"more than 100 wheels would have to be read; ask for fewer projects");
}
