//! How long resolving takes over a catalogue of 2,000 projects and 20,000 wheels: `cargo bench --bench resolve`.
//!
//! Made up, but shaped like a Jetson index: a project needs some three others, mostly of the common ones; a request names one
//! to five projects, some of them pinned. Names, tags and metadata are parsed anew for each request, as a server without a
//! cache would. CPU time is that of the process, from `/proc/self/task/*/schedstat`.
//!
//! Then the same wheels are put into a store and served, the requests are posted to the server, and `uv pip compile` gets some of
//! them with the same server as its index: uv of `target/clients` (`./ci.sh` installs it), else that part is left out with a
//! sentence. The store is made in `/dev/shm` where there is one, for its 60,000 files are synced one by one.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends where something is wrong"
)]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;
use jetwheel::policy::{DeviceProfile, Judgement, Policy, Verdict};
use jetwheel::resolve::closure::{Abi, Brief, Wheel, closure_by};
use jetwheel::resolve::{Failure, KnownFile, Request, resolve_rows};
use jetwheel::server::{Limits as ServerLimits, PolicySource, Server};
use jetwheel::store::{Provenance, Store};
use jetwheel::wheel::{Facts, ProjectName};

const PROJECTS: u64 = 2_000;
const VERSIONS: u64 = 10;
const REQUESTS: u64 = 100;
const DEVICE: &str = "orin-jp6.2";

/// How many of the requests uv gets.
const COMPARED: usize = 20;

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
    let device = policy.device(DEVICE).unwrap();
    let catalogue = catalogue(&mut Dice(1));
    let wheels: usize = catalogue.values().map(Vec::len).sum();
    let mut dice = Dice(2);
    let (mut times, mut packages, mut none, mut limited) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..REQUESTS {
        let request = request(&mut dice);
        let start = cpu_time();
        let mut answers = (0..REPEATS).map(|_| {
            resolve_rows(&request, device, "http://mirror/orin-jp6.2", |project| {
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
    served(&catalogue, &policy);
}

fn cpu_time() -> Duration {
    let of_thread = |path: std::path::PathBuf| -> u64 {
        // A thread may end meanwhile.
        let text = fs_err::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split(' ').next().unwrap_or_default().parse().unwrap_or(0)
    };
    let threads = fs_err::read_dir("/proc/self/task").unwrap();
    Duration::from_nanos(threads.map(|thread| of_thread(thread.unwrap().path())).sum())
}

/// CPU time of the child processes that ended, in steps of a hundredth of a second.
fn children_time() -> Duration {
    let text = fs_err::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[13..15].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
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

/// The same requests to a server over a store, and to uv with that server as its index.
fn served(catalogue: &BTreeMap<ProjectName, Vec<KnownFile>>, policy: &Policy) {
    let memory = Path::new("/dev/shm");
    let scratch = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let dir = tempfile::tempdir_in(scratch).unwrap();
    let store = Arc::new(Store::open(dir.path()).unwrap());
    let start = Instant::now();
    for file in catalogue.values().flatten() {
        put(&store, &file.facts);
    }
    println!("put into a store in {:?}", start.elapsed());
    let (tell, told) = std::sync::mpsc::channel();
    let policies = PolicySource::fixed(policy.clone());
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let server = Server::bind(any, store, policies, ServerLimits::default()).await.unwrap();
            tell.send(server.address().unwrap()).unwrap();
            server.run(std::future::pending()).await;
        });
    });
    let address = told.recv().unwrap();
    let mut dice = Dice(2);
    let requests: Vec<Vec<String>> = (0..REQUESTS)
        .map(|_| request(&mut dice).requirements.into_iter().map(|requirement| requirement.text).collect())
        .collect();
    let mut sets = Vec::new();
    for round in ["first", "second"] {
        let mut times = Vec::new();
        sets.clear();
        for request in &requests {
            let start = cpu_time();
            sets.push(post(address, request));
            times.push(cpu_time().saturating_sub(start));
        }
        times.sort();
        println!(
            "over HTTP, {round} time: CPU median {:?}, 90 % {:?}, most {:?}",
            times[times.len() / 2],
            times[times.len() * 9 / 10],
            times[times.len() - 1]
        );
    }
    compared_with_uv(address, dir.path(), &requests, &sets);
}

fn put(store: &Store, facts: &Facts) {
    let (project, version) = (facts.project.as_ref().unwrap(), facts.version.as_ref().unwrap());
    let mut metadata =
        format!("Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Python: >=3.8\n");
    for requirement in &facts.requires_dist {
        metadata.push_str("Requires-Dist: ");
        metadata.push_str(requirement);
        metadata.push('\n');
    }
    metadata.push_str("Provides-Extra: more\n");
    let mut spooled = store.spool().unwrap();
    spooled.write_all(facts.file.as_bytes()).unwrap();
    let facts = Facts {
        sha256: Sha256::of(facts.file.as_bytes()),
        size: facts.file.len() as u64,
        metadata_sha256: Some(Sha256::of(metadata.as_bytes())),
        tags: vec!["cp310-cp310-linux_aarch64".to_owned()],
        ..facts.clone()
    };
    let provenance = Provenance {
        upstream: "local".to_owned(),
        first_seen: "2026-11-30T08:09:10Z".to_owned(),
        ..Provenance::default()
    };
    store.put(spooled, &facts, metadata.as_bytes(), &provenance).unwrap();
}

/// `name==version` of each wheel of a set, sorted.
fn post(address: SocketAddr, requirements: &[String]) -> Vec<String> {
    let body = serde_json::json!({ "requirements": requirements }).to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /{DEVICE}/resolve HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let json: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    let packages = json["packages"].as_array().unwrap_or_else(|| panic!("{text}"));
    let mut pins: Vec<String> = packages
        .iter()
        .map(|one| format!("{}=={}", one["name"].as_str().unwrap(), one["version"].as_str().unwrap()))
        .collect();
    pins.sort();
    pins
}

fn compared_with_uv(address: SocketAddr, dir: &Path, requests: &[Vec<String>], sets: &[Vec<String>]) {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients/uv/bin");
    if !clients.join("uv").exists() {
        println!("no comparison: uv is not at {}", clients.display());
        return;
    }
    for round in ["first", "second"] {
        let (mut times, mut alike) = (Vec::new(), 0);
        for (request, set) in requests.iter().zip(sets).take(COMPARED) {
            let input = dir.join("requirements.in");
            fs_err::write(&input, request.join("\n")).unwrap();
            let start = children_time();
            let output = Command::new(clients.join("uv"))
                .env_clear()
                .env("HOME", dir)
                .args(["pip", "compile", "--no-config", "--no-header", "--no-annotate", "--quiet"])
                .args(["--python-version", "3.10", "--python-platform", "aarch64-manylinux_2_35"])
                .args(["--default-index", &format!("http://{address}/{DEVICE}/simple/"), "--python"])
                .arg(clients.join("python"))
                .arg(&input)
                .output()
                .unwrap();
            times.push(children_time().saturating_sub(start));
            let mut pins: Vec<String> =
                String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim().to_owned()).collect();
            pins.sort();
            alike += u32::from(pins == *set);
        }
        times.sort();
        println!(
            "uv pip compile, {round} time: CPU of uv alone, median {:?}, most {:?}; {alike} of {COMPARED} sets are the same",
            times[times.len() / 2],
            times[times.len() - 1]
        );
    }
}
