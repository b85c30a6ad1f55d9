//! Looking at the projects that matter for one finds what looking at all wheels finds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use jetwheel::policy::{Code, Policy, Verdict};
use jetwheel::resolve::closure::{Brief, Change, Connected, Wheel, closure_by};
use jetwheel::wheel::{Facts, ProjectName};
use proptest::prelude::*;
use serde_json::json;

/// Some must hold GPU code by the built-in policy, so that their pins count.
const PROJECTS: [&str; 7] = ["torch", "torchvision", "cupy", "numpy", "app", "library", "never-seen"];

#[derive(Debug, Clone)]
struct Spec {
    project: usize,
    version: u32,
    refused: bool,
    needs: Vec<(usize, u32, u32)>,
    links: Option<u32>,
    brings: Option<u32>,
    numpy: Option<u32>,
    cxx11: Option<bool>,
}

fn spec() -> impl Strategy<Value = Spec> {
    let needs = prop::collection::vec((0..PROJECTS.len(), 0..4_u32, 0..4_u32), 0..4);
    let library = || prop::option::weighted(0.4, 0..3_u32);
    let abi = (prop::option::weighted(0.3, 1..3_u32), prop::option::weighted(0.3, any::<bool>()));
    (0..PROJECTS.len() - 1, 0..4_u32, prop::bool::weighted(0.2), needs, library(), library(), abi).prop_map(
        |(project, version, refused, needs, links, brings, (numpy, cxx11))| Spec {
            project,
            version,
            refused,
            needs,
            links,
            brings,
            numpy,
            cxx11,
        },
    )
}

fn wheel(spec: &Spec) -> Wheel {
    let requires: Vec<String> = spec
        .needs
        .iter()
        .map(|&(project, version, kind)| {
            let name = PROJECTS[project];
            match kind {
                0 => name.to_owned(),
                1 => format!("{name}>={version}"),
                2 => format!("{name}=={version}; sys_platform == 'linux'"),
                _ => format!("{name}<{version}; python_version >= '3.8'"),
            }
        })
        .collect();
    let library = |number: u32| format!("libtorch_part{number}.so");
    let mut members = vec![json!({"path": "x/_C.so", "size": 1, "kind": "elf",
        "numpy_abi": spec.numpy, "cxx11_abi": spec.cxx11, "needed": spec.links.map(library).into_iter().collect::<Vec<_>>()})];
    members.extend(
        spec.brings.map(|number| json!({"path": format!("x/{}", library(number)), "size": 1, "kind": "elf"})),
    );
    let facts: Facts = serde_json::from_value(json!({
        "file": format!("{}-{}-py3-none-any.whl", PROJECTS[spec.project], spec.version), "sha256": "00".repeat(32), "size": 1,
        "project": PROJECTS[spec.project], "version": spec.version.to_string(), "requires_dist": requires, "gpu": "none",
        "members": members,
    }))
    .unwrap();
    let verdict = if spec.refused { Verdict::Refuse } else { Verdict::Admit };
    Wheel { brief: Arc::new(Brief::of(&facts)), verdict }
}

/// Codes of the refusals, and the notes; remedies may name wheels that only the wider look sees.
fn told(change: &Change) -> (Vec<Code>, Vec<String>) {
    let codes = change.refusals.iter().map(|reason| reason.code).collect();
    (codes, change.notes.iter().map(|note| note.text.clone()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_look_at_what_one_project_leads_to_is_enough(specs in prop::collection::vec(spec(), 1..24)) {
        let policy = Policy::builtin();
        let device = policy.device("orin-jp6.2").unwrap();
        let mut by_project: BTreeMap<ProjectName, Vec<Wheel>> = BTreeMap::new();
        for spec in &specs {
            by_project.entry(PROJECTS[spec.project].parse().unwrap()).or_default().push(wheel(spec));
        }
        let all: Vec<Wheel> = by_project.values().flatten().cloned().collect();
        let changes: BTreeMap<usize, Change> = closure_by(&all, device, &policy).into_iter().collect();
        let mut first = 0;
        for (project, wheels) in &by_project {
            let lookup = |name: &ProjectName| {
                Ok::<_, Infallible>(by_project.get(name).cloned().unwrap_or_default())
            };
            let mut connected = Connected::new(device, &policy, lookup);
            let refusals: BTreeMap<usize, Change> = connected.refusals(project).unwrap().into_iter().collect();
            let noted: BTreeMap<usize, Change> = connected.changes(project).unwrap().into_iter().collect();
            for at in 0..wheels.len() {
                let wanted = changes.get(&(first + at)).map(told).unwrap_or_default();
                let found = noted.get(&at).map(told).unwrap_or_default();
                prop_assert_eq!(&found, &wanted, "{} {}", project, at);
                let refused = refusals.get(&at).map(told).unwrap_or_default().0;
                prop_assert_eq!(&refused, &wanted.0, "{} {}", project, at);
            }
            first += wheels.len();
        }
    }
}
