//! Requests and wheels that are made to take long or much: an answer or a limit, in bounded time and memory.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use jetwheel::resolve::{
    Failure, Limit, MOST_REQUESTED, Metadata, NotMetadata, Request, Requirement, Resolution, resolve,
};

use super::catalogue::{Catalogue, target};

/// How long any of them may take in an unoptimized build on a busy machine; most take below a second.
const PATIENCE: Duration = Duration::from_secs(90);

/// How much the process may have had in memory at its peak.
const MOST_MEMORY_KB: u64 = 700_000;

type Answer = Result<Resolution, Failure<std::convert::Infallible>>;

fn ask(catalogue: &mut Catalogue, requirements: Vec<Requirement>, constraints: Vec<Requirement>) -> Answer {
    let start = Instant::now();
    let request = Request { requirements, constraints, ..Request::default() };
    let answer = resolve(&request, &target("3.10"), catalogue);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MOST_MEMORY_KB, "{peak} kB");
    answer
}

fn parsed<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<Requirement> {
    texts.into_iter().map(|text| text.parse().unwrap()).collect()
}

fn numbered(count: usize, name: impl Fn(usize) -> String) -> Vec<Requirement> {
    (0..count).map(|number| name(number).parse().unwrap()).collect()
}

fn unsatisfiable(answer: Answer) -> String {
    match answer {
        Err(Failure::Unsatisfiable(explanation)) => explanation.text,
        other => panic!("{:?}", other.map(|resolution| resolution.packages.len())),
    }
}

#[test]
fn a_chain_of_a_thousand_is_followed_to_its_end() {
    let mut catalogue = Catalogue::default();
    for number in 0..1_000 {
        catalogue.add(&format!("link{number}"), "1", &[&format!("link{}>=1", number + 1)]);
    }
    let text = unsatisfiable(ask(&mut catalogue, parsed(["link0"]), Vec::new()));
    assert!(text.len() < 20_000, "{} bytes", text.len());
    catalogue.add("link1000", "1", &[]);
    assert_eq!(ask(&mut catalogue, parsed(["link0"]), Vec::new()).unwrap().packages.len(), 1_001);
}

/// 3,000 lines about one project once took minutes and 5 GB: each pair of them was compared, and each a fact of its own.
#[test]
fn thousands_of_lines_about_one_project_are_one_dependency() {
    let mut catalogue = Catalogue::default();
    catalogue.add("demo", "1", &[]);
    let lines = numbered(MOST_REQUESTED, |number| format!("demo>=1,!={number}"));
    let text = unsatisfiable(ask(&mut catalogue, lines, Vec::new()));
    assert!(text.contains("No version of demo satisfies") && text.len() < 20_000, "{} bytes", text.len());
    let lines: Vec<String> = (0..3_000).map(|number| format!("demo!={number}")).collect();
    assert!(matches!(Metadata::parse(&lines, None, &[]), Err(NotMetadata::Specifiers(_))));
}

#[test]
fn two_thousand_extras_are_taken_at_once() {
    let mut catalogue = Catalogue::default();
    let extras: Vec<String> = (0..2_000).map(|number| format!("x{number}")).collect();
    let requires: Vec<String> =
        extras.iter().map(|extra| format!("part-{extra}; extra == '{extra}'")).collect();
    for extra in &extras {
        catalogue.add(&format!("part-{extra}"), "1", &[]);
    }
    let metadata = Metadata::parse(&requires, None, &extras).unwrap();
    catalogue.add_file("wide", "1", "wide-1-py3-none-any.whl", metadata);
    let request = parsed([format!("wide[{}]", extras.join(",")).as_str()]);
    assert_eq!(ask(&mut catalogue, request, Vec::new()).unwrap().packages.len(), 2_001);
}

#[test]
fn as_many_requirements_and_constraints_as_are_taken() {
    let mut catalogue = Catalogue::default();
    for version in 0..100 {
        catalogue.add("one", &format!("1.{version}"), &[]);
    }
    let constraints = numbered(MOST_REQUESTED - 1, |number| format!("one!=2.{number}"));
    let set = ask(&mut catalogue, parsed(["one"]), constraints).unwrap();
    assert_eq!(set.packages[0].candidate.version_text, "1.99");

    let unknown = numbered(MOST_REQUESTED, |number| format!("unknown{number}>={number}"));
    let text = unsatisfiable(ask(&mut catalogue, unknown, Vec::new()));
    assert!(text.len() < 20_000, "{} bytes", text.len());

    let mut all = Catalogue::default();
    for number in 0..MOST_REQUESTED {
        all.add(&format!("known{number}"), "1", &[]);
    }
    let known = numbered(MOST_REQUESTED, |number| format!("known{number}==1"));
    assert_eq!(ask(&mut all, known, Vec::new()).unwrap().packages.len(), MOST_REQUESTED);

    let too_many = numbered(10_000, |number| format!("unknown{number}"));
    match ask(&mut catalogue, too_many, Vec::new()) {
        Err(Failure::Limit(limit)) => {
            assert_eq!(limit, Limit::Requested(10_000));
            assert!(limit.to_string().contains("at most 5000"), "{limit}");
        }
        other => panic!("{:?}", other.map(|resolution| resolution.packages.len())),
    }
}

/// Pigeons that do not fit into their holes: exponential for whoever only tries.
#[test]
fn an_entangled_request_ends_by_a_limit() {
    const HOLES: usize = 12;
    let mut catalogue = Catalogue::default();
    for pigeon in 0..=HOLES {
        for hole in 1..=HOLES {
            catalogue.add(&format!("pigeon{pigeon}"), &hole.to_string(), &[&format!("hole{hole}=={pigeon}")]);
        }
    }
    for hole in 1..=HOLES {
        for pigeon in 0..=HOLES {
            catalogue.add(&format!("hole{hole}"), &pigeon.to_string(), &[]);
        }
    }
    match ask(&mut catalogue, numbered(HOLES + 1, |pigeon| format!("pigeon{pigeon}")), Vec::new()) {
        Err(Failure::Limit(limit)) => assert!(limit.to_string().contains("pin some of"), "{limit}"),
        other => panic!("{:?}", other.map(|resolution| resolution.packages.len())),
    }
}

#[test]
fn work_can_be_stopped_from_outside() {
    let mut catalogue = Catalogue::default();
    catalogue.add("one", "1", &[]);
    let request = Request { requirements: parsed(["one"]), ..Request::default() };
    request.stop.stop();
    let answer = resolve(&request, &target("3.10"), &mut catalogue);
    assert!(matches!(answer, Err(Failure::Limit(Limit::Time))), "{answer:?}");
}

#[test]
fn texts_that_are_made_to_hurt_are_refused_or_read() {
    let nested = |depth: usize| format!("x; {}os_name == 'posix'{}", "(".repeat(depth), ")".repeat(depth));
    let mut chain = "x; os_name == 'a'".to_owned();
    for number in 0..1_500 {
        let _infallible = write!(chain, " or os_name == '{number}'");
    }
    let texts = [
        nested(10),
        nested(15_000),
        chain,
        format!("x[{}]", vec!["e"; 10_000].join(",")),
        format!("x=={}", "9".repeat(30_000)),
        format!("x==1+{}", "a.".repeat(15_000)),
        format!("x{}", ">=1,".repeat(8_000)),
        format!("x=={}", "1.".repeat(15_000)),
        "x".repeat(32_000),
        "x".repeat(1_000_000),
        format!("x; os_name == '{}", "a".repeat(30_000)),
        "\u{202e}\u{0}".repeat(10_000),
    ];
    let start = Instant::now();
    for text in &texts {
        match text.parse::<Requirement>() {
            Ok(requirement) => {
                let mut catalogue = Catalogue::default();
                catalogue.add(requirement.project.as_str(), "1", &[]);
                drop(ask(&mut catalogue, vec![requirement], Vec::new()));
            }
            Err(error) => assert!(error.to_string().len() < 1_000, "{}", error.to_string().len()),
        }
    }
    assert!(start.elapsed() < PATIENCE);
    let many = vec!["x".to_owned(); 10_001];
    assert!(matches!(Metadata::parse(&many, None, &[]), Err(NotMetadata::TooMany(10_001))));
}

/// A wheel that needs itself, others that need each other, and one that needs ten thousand.
#[test]
fn circles_and_crowds_end() {
    let mut catalogue = Catalogue::default();
    catalogue.add("self", "1", &["self>=1", "left"]);
    catalogue.add("left", "1", &["right"]);
    catalogue.add("right", "1", &["left", "self"]);
    assert_eq!(ask(&mut catalogue, parsed(["self"]), Vec::new()).unwrap().packages.len(), 3);
    let crowd: Vec<String> = (0..10_000).map(|number| format!("crowd{number}")).collect();
    let metadata = Metadata::parse(&crowd, None, &[]).unwrap();
    catalogue.add_file("leader", "1", "leader-1-py3-none-any.whl", metadata);
    let text = unsatisfiable(ask(&mut catalogue, parsed(["leader"]), Vec::new()));
    assert!(text.len() < 20_000, "{} bytes", text.len());
}
