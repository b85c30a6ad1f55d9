//! The resolver scenarios of uv (`tests/data/resolver-scenarios.json`).
//!
//! A source distribution is offered as a candidate where the scenario's options let it be built: which files of a project are
//! offered is the caller's choice, and jetwheel's own index offers wheels alone.

use std::collections::BTreeMap;

use jetwheel::resolve::{Failure, Metadata, Request, Target, resolve};
use serde::Deserialize;

use super::catalogue::{Catalogue, requirements, target};
use crate::support::data;

#[derive(Deserialize)]
struct File {
    scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
struct Scenario {
    name: String,
    packages: BTreeMap<String, Package>,
    root: Root,
    expected: Expected,
    #[serde(default)]
    environment: Environment,
    #[serde(default)]
    resolver_options: Options,
}

#[derive(Deserialize)]
struct Package {
    versions: BTreeMap<String, Version>,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    requires: Vec<String>,
    #[serde(default)]
    extras: BTreeMap<String, Vec<String>>,
    requires_python: Option<String>,
    #[serde(default = "yes")]
    wheel: bool,
    #[serde(default = "yes")]
    sdist: bool,
    #[serde(default)]
    wheel_tags: Vec<String>,
    #[serde(default)]
    yanked: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Root {
    requires: Vec<String>,
}

#[derive(Deserialize)]
struct Expected {
    satisfiable: bool,
    packages: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
struct Environment {
    python: Option<String>,
}

#[derive(Deserialize, Default)]
struct Options {
    python: Option<String>,
    #[serde(default)]
    prereleases: bool,
    #[serde(default)]
    no_binary: Vec<String>,
    #[serde(default)]
    no_build: Vec<String>,
}

/// Expectations that are choices of uv, which the specifications leave open or decide otherwise, and how they are met.
///
/// - Where a final and a pre-release both satisfy a specifier that asks for pre-releases (`>=0.1.0a1`), uv takes the final one
///   (`package-prerelease-specified-mixed-available`, `package-prereleases-specifier-boundary`, the `*-redundant-*` ones);
///   `packaging` would let the newer pre-release through, and pip takes it. PEP 440 says "should", and on a Jetson a final
///   release is the safer choice: followed.
/// - Where final releases satisfy a specifier but lead to no set, uv goes on to pre-releases
///   (`prerelease-fallback-after-stable-rejected`); PEP 440 speaks of a specifier alone. Followed: the other answer is "none".
/// - `<1.2.3.post1` takes `1.2.3a1` (`post-less-than-post-prerelease-ordering`): a pre-release of 1.2.3, not of 1.2.3.post1.
///   `packaging` compares base versions and excludes it. The specification's words fit uv's reading: followed.
/// - A yanked wheel is taken only for a `==` of the request itself, not of a dependency
///   (`transitive-yanked-and-unyanked-dependency`): PEP 592 leaves this to installers. Followed.
/// - Upper bounds of `Requires-Python` are ignored by uv: see [`IGNORES_UPPER_PYTHON_BOUND`].
///
/// The one that is not followed: `Requires-Python: <=3.8` excludes 3.9 for the specification (core metadata 1.2) and for pip,
/// which then installs nothing from a set that holds such a wheel.
const IGNORES_UPPER_PYTHON_BOUND: &str = "python-less-than-current";

#[test]
fn all_scenarios_give_the_expected_result() {
    let file: File =
        serde_json::from_str(&fs_err::read_to_string(data("resolver-scenarios.json")).unwrap()).unwrap();
    assert_eq!(file.scenarios.len(), 100);
    let wrong: Vec<String> = file.scenarios.iter().filter_map(differs).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn differs(scenario: &Scenario) -> Option<String> {
    let (mut catalogue, target) = build(scenario, false);
    let texts: Vec<&str> = scenario.root.requires.iter().map(String::as_str).collect();
    let request = Request {
        requirements: requirements(&texts),
        prereleases: scenario.resolver_options.prereleases,
        ..Request::default()
    };
    let mut answer = resolve(&request, &target, &mut catalogue);
    if scenario.name == IGNORES_UPPER_PYTHON_BOUND {
        assert!(matches!(answer, Err(Failure::Unsatisfiable(_))), "the bound is in the specification");
        answer = resolve(&request, &target, &mut build(scenario, true).0);
    }
    let found = match answer {
        Ok(resolution) => Some(
            resolution
                .packages
                .iter()
                .map(|package| (package.candidate.project.to_string(), package.candidate.version.to_string()))
                .collect::<BTreeMap<_, _>>(),
        ),
        Err(Failure::Unsatisfiable(_)) => None,
        Err(other) => return Some(format!("{}: {other}", scenario.name)),
    };
    let right = found.is_some() == scenario.expected.satisfiable
        && (scenario.expected.packages.is_none() || found == scenario.expected.packages);
    (!right).then(|| format!("{}: {found:?}, expected {:?}", scenario.name, scenario.expected.packages))
}

/// The scenario's packages, for the machine of uv's tests: x86-64 Linux, `CPython` 3.12 if none is named.
fn build(scenario: &Scenario, without_upper_bounds: bool) -> (Catalogue, Target) {
    let options = &scenario.resolver_options;
    let python = options.python.as_ref().or(scenario.environment.python.as_ref());
    // uv reads `--python-version 3.9` as 3.9.0.
    let python = match python.map(String::as_str) {
        Some(python) if python.matches('.').count() == 1 => format!("{python}.0"),
        Some(python) => python.to_owned(),
        None => "3.12.0".to_owned(),
    };
    let mut catalogue = Catalogue::default();
    for (name, package) in &scenario.packages {
        for (text, version) in &package.versions {
            let mut requires = version.requires.clone();
            for (extra, more) in &version.extras {
                requires.extend(more.iter().map(|one| format!("{one} ; extra == '{extra}'")));
            }
            let extras: Vec<String> = version.extras.keys().cloned().collect();
            let requires_python = version.requires_python.as_deref().filter(|_| !without_upper_bounds);
            let metadata = Metadata::parse(&requires, requires_python, &extras).unwrap();
            let mut offer = |file: &str, fits: bool| {
                let candidate = catalogue.add_file(name, text, file, metadata.clone());
                candidate.tag_priority = fits.then_some(0);
                candidate.requires_python = requires_python.map(ToOwned::to_owned);
                candidate.yanked = version.yanked.then(String::new);
            };
            if version.sdist && !options.no_build.contains(name) {
                offer(&format!("{name}-{text}.tar.gz"), true);
            }
            if version.wheel && !options.no_binary.contains(name) {
                let default = vec!["py3-none-any".to_owned()];
                let tags = if version.wheel_tags.is_empty() { &default } else { &version.wheel_tags };
                for tag in tags {
                    offer(&format!("{name}-{text}-{tag}.whl"), fits(tag));
                }
            }
        }
    }
    (catalogue, target(&python))
}

/// Whether a tag of the scenarios fits that machine.
fn fits(tag: &str) -> bool {
    let mut parts = tag.split('-');
    let (python, abi, platform) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    matches!((python, abi), ("py3", "none" | "any") | ("cp312", "cp312" | "abi3" | "none"))
        && (platform == "any"
            || platform.split('.').any(|one| one.ends_with("x86_64") && !one.starts_with("musl")))
}
