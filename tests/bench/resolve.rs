//! How long resolving takes over a catalogue of 2,000 projects and 20,000 wheels: `cargo bench --bench resolve`.
//!
//! Made up, but shaped like a Jetson index: a project needs some three others, mostly of the common ones; a request names one
//! to five projects, some of them pinned. Names, tags and metadata are parsed anew for each request, as a server without a
//! cache would. CPU time is that of the process, from `/proc/self/schedstat`.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends where something is wrong"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jetwheel::policy::{DeviceProfile, Judgement, Policy, Verdict};
use jetwheel::resolve::closure::{Abi, Brief, Wheel, closure_by};
use jetwheel::resolve::{Failure, KnownFile, Request, resolve_rows};
use jetwheel::wheel::{Facts, ProjectName};

const PROJECTS: u64 = 2_000;
const VERSIONS: u64 = 10;
const REQUESTS: u64 = 100;

/// How often each request is made: the kernel counts CPU time in steps of some milliseconds, longer than one takes.
const REPEATS: u32 = 20;

/// Random numbers that are the same in each run (the generator of Knuth's MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn main() {
    let policy = Policy::builtin();
    let device = policy.device("orin-jp6.2").unwrap();
    let catalogue = catalogue(&mut Dice(1));
    let wheels: usize = catalogue.values().map(Vec::len).sum();
    let mut dice = Dice(2);
    let (mut times, mut packages, mut none, mut limited) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..REQUESTS {
        let request = request(&mut dice);
        let start = cpu_time();
        let mut answers = (0..REPEATS).map(|_| {
            resolve_rows(&request, device, "http://mirror", |project| {
                Ok::<_, Infallible>(catalogue.get(project).cloned().unwrap_or_default())
            })
        });
        let answer = answers.next().unwrap();
        answers.for_each(drop);
        times.push(cpu_time().saturating_sub(start) / REPEATS);
        match answer {
            Ok(resolution) => packages.push(resolution.packages.len()),
            Err(Failure::Limit(_)) => limited += 1,
            Err(_) => none += 1,
        }
    }
    times.sort();
    packages.sort_unstable();
    println!(
        "{} projects, {wheels} wheels, {REQUESTS} requests: CPU median {:?}, 90 % {:?}, most {:?}",
        catalogue.len(),
        times[times.len() / 2],
        times[times.len() * 9 / 10],
        times[times.len() - 1],
    );
    println!(
        "{} answered (median {} wheels, most {}), {none} without a set, {limited} ended by a limit",
        packages.len(),
        packages[packages.len() / 2],
        packages[packages.len() - 1],
    );
    closure_time(&catalogue, device, &policy);
    pathological(device);
}

fn cpu_time() -> Duration {
    let text = fs_err::read_to_string("/proc/self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn catalogue(dice: &mut Dice) -> BTreeMap<ProjectName, Vec<KnownFile>> {
    let mut catalogue = BTreeMap::new();
    for project in 0..PROJECTS {
        let files = (0..VERSIONS)
            .map(|minor| {
                let needs = (0..dice.below(6))
                    .filter(|_| project > 0)
                    .map(|_| {
                        // The lower the number, the more is it needed.
                        let limit = 1 + dice.below(project);
                        let other = dice.below(limit);
                        match dice.below(8) {
                            0 => format!("project-{other}<2"),
                            1 => format!("project-{other}>=1.{}; python_version >= '3.8'", dice.below(5)),
                            2 => format!("project-{other}!=1.{}", dice.below(VERSIONS)),
                            3 => format!("project-{other}~=1.{}", dice.below(4)),
                            4 => format!("project-{other}>=9; extra == 'more'"),
                            5 => format!("project-{other}; sys_platform == 'win32'"),
                            _ => format!("project-{other}"),
                        }
                    })
                    .collect::<Vec<_>>();
                file(&format!("project-{project}"), &format!("1.{minor}"), &needs)
            })
            .collect();
        catalogue.insert(format!("project-{project}").parse().unwrap(), files);
    }
    catalogue
}

fn request(dice: &mut Dice) -> Request {
    let mut request = Request::default();
    for _ in 0..=dice.below(5) {
        let project = PROJECTS / 2 + dice.below(PROJECTS / 2);
        let text = match dice.below(4) {
            0 => format!("project-{project}==1.{}", dice.below(VERSIONS)),
            1 => format!("project-{project}>=1.{}", dice.below(VERSIONS)),
            _ => format!("project-{project}"),
        };
        request.requirements.push(text.parse().unwrap());
    }
    request
}

fn file(project: &str, version: &str, requires_dist: &[String]) -> KnownFile {
    let file = format!("{}-{version}-cp310-cp310-linux_aarch64.whl", project.replace('-', "_"));
    let facts: Facts = serde_json::from_value(serde_json::json!({
        "file": file, "sha256": "00".repeat(32), "size": 1, "project": project, "version": version,
        "requires_python": ">=3.8", "requires_dist": requires_dist, "gpu": "none",
    }))
    .unwrap();
    KnownFile {
        facts: Arc::new(facts),
        judgement: Judgement { verdict: Verdict::Admit, reasons: Vec::new(), notes: Vec::new() },
        listed: true,
        held: true,
        abi: Abi::default(),
        yanked: None,
        upstream: "bench".to_owned(),
        upload_time: None,
    }
}

fn closure_time(catalogue: &BTreeMap<ProjectName, Vec<KnownFile>>, device: &DeviceProfile, policy: &Policy) {
    let wheels: Vec<Wheel> = catalogue
        .values()
        .flatten()
        .map(|file| Wheel { brief: Arc::new(Brief::of(&file.facts)), verdict: file.judgement.verdict })
        .collect();
    let start = Instant::now();
    let changed = closure_by(&wheels, device, policy).len();
    println!("closure over {} wheels: {:?}, {changed} judgements change", wheels.len(), start.elapsed());
}

/// Pigeons that do not fit into their holes.
fn pathological(device: &DeviceProfile) {
    const HOLES: u32 = 12;
    let mut catalogue: BTreeMap<ProjectName, Vec<KnownFile>> = BTreeMap::new();
    let mut request = Request::default();
    for pigeon in 0..=HOLES {
        let name = format!("pigeon{pigeon}");
        request.requirements.push(name.parse().unwrap());
        let files = (1..=HOLES)
            .map(|hole| file(&name, &hole.to_string(), &[format!("hole{hole}=={pigeon}")]))
            .collect();
        catalogue.insert(name.parse().unwrap(), files);
    }
    for hole in 1..=HOLES {
        let name = format!("hole{hole}");
        let files = (0..=HOLES).map(|pigeon| file(&name, &pigeon.to_string(), &[])).collect();
        catalogue.insert(name.parse().unwrap(), files);
    }
    let start = Instant::now();
    let answer = resolve_rows(&request, device, "", |project| {
        Ok::<_, Infallible>(catalogue.get(project).cloned().unwrap_or_default())
    });
    println!("pathological request: {:?}, {}", start.elapsed(), answer.unwrap_err());
}
