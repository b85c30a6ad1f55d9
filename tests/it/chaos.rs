//! Chaos: `kill -9` falls at random moments into every command that changes the store, alone and inside a server.
//!
//! Each round is told by the pages of a server that is started after the kill, as a device sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;

use crate::snapshot::{json, orphan};
use crate::support::http::get;
use crate::support::mirror::Mirror;
use crate::support::upstream::Upstream;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];

/// How often each command is killed: 50 rounds in all.
const TIMES: usize = 10;

/// How many wheels nothing names lie in the store before each `gc`.
const STRAYS: usize = 20;

/// The commands; what `add`, `sync` and `import` take in is promoted after them.
const VERBS: [Verb; 5] = [Verb::Add, Verb::Sync, Verb::Import, Verb::Promote, Verb::Gc];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Sync,
    Import,
    Promote,
    Gc,
}

/// Numbers that look random; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn from_environment() -> Self {
        let given = std::env::var("JETWHEEL_CHAOS_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| {
            std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0)
        });
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// File names with their digests; none where there is no such page.
type Page = Option<BTreeSet<(String, String)>>;

/// All that devices see, each page by its project.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    live: BTreeMap<String, Page>,
    candidate: BTreeMap<String, Page>,
    stable: BTreeMap<String, Page>,
}

/// The site under test, and what it is fed with.
struct Site {
    dir: tempfile::TempDir,
    upstream: Upstream,
    strays: Vec<PathBuf>,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = "keep_snapshots = 4\n[network]\nbackoff_ms = 1\nretries = 3\n";
        fs_err::write(dir.path().join("config.toml"), config).unwrap();
        for folder in ["add", "sync", "import"] {
            fs_err::create_dir(dir.path().join(folder)).unwrap();
            let wheels = (0..=TIMES).flat_map(|number| {
                ["a", "b", "c"].map(|project| {
                    serde_json::json!({
                        "filename": wheel_name(folder, project, number),
                        "elfs": [{"path": "p/_C.so", "cuda": "12.6", "payload": 20_000, "fatbins": [["sm_87"]]}],
                    })
                })
            });
            make_wheels(&wheels.collect::<Vec<_>>().into(), &dir.path().join(folder));
        }
        let empty = dir.path().join("empty");
        fs_err::create_dir(&empty).unwrap();
        let site = Self { upstream: Upstream::serving(&empty), dir, strays: Vec::new() };
        for number in 0..=TIMES {
            let origin = site.path("origin");
            let (code, said) = json(jetwheel(&origin).arg("add").args(site.wheels("import", number)));
            assert_eq!(code, 0, "{said}");
            let mut export = jetwheel(&origin);
            export.args(["export", "--device", ORIN, "--output"]).arg(site.bundle(number));
            assert_eq!(json(&mut export).0, 0);
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn bundle(&self, number: usize) -> PathBuf {
        self.path(&format!("{number}.jwb"))
    }

    fn wheels(&self, folder: &str, number: usize) -> [PathBuf; 3] {
        ["a", "b", "c"].map(|project| self.path(folder).join(wheel_name(folder, project, number)))
    }

    /// Brings about that the command has something to do.
    fn prepare(&mut self, verb: Verb, number: usize) {
        match verb {
            Verb::Sync => {
                for path in self.wheels("sync", number) {
                    let name = path.file_name().unwrap().to_str().unwrap();
                    self.upstream.add(name, fs_err::read(&path).unwrap());
                }
            }
            Verb::Gc => {
                let content = |stray| format!("{number} {stray}");
                self.strays = (0..STRAYS).map(|stray| orphan(&self.data(), &content(stray))).collect();
            }
            Verb::Add | Verb::Import | Verb::Promote => {}
        }
    }

    fn command(&self, verb: Verb, number: usize) -> Command {
        let mut command = jetwheel(&self.data());
        command
            .arg("--config")
            .arg(self.path("config.toml"))
            .env("HOME", self.dir.path())
            .env_remove("NETRC");
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(proxy);
        }
        match verb {
            Verb::Add => command.arg("add").args(self.wheels("add", number)),
            Verb::Sync => {
                let url = self.upstream.url("/simple/");
                command.args(["sync", "--device", ORIN, "--upstream", &url, "sync-a", "sync-b", "sync-c"])
            }
            Verb::Import => command.arg("import").arg(self.bundle(number)),
            Verb::Promote => command.args(["snapshot", "promote"]),
            Verb::Gc => command.args(["gc", "--older-than", "0s"]),
        };
        command
    }

    /// Runs a command to its end, which must be a good one.
    fn run(&self, verb: Verb, number: usize, when: &str) {
        let output = self.command(verb, number).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{when}: {said}");
        assert!(!said.contains("panic"), "{when}: {said}");
    }
}

/// Asks a server for every page.
fn look(mirror: &Mirror) -> Seen {
    let pages = |selector: &str| {
        let projects = ["add", "sync", "import"]
            .into_iter()
            .flat_map(|folder| ["a", "b", "c"].map(|project| format!("{folder}-{project}")));
        projects.map(|project| (project.clone(), page(mirror, selector, &project))).collect()
    };
    Seen { live: pages(""), candidate: pages("@candidate"), stable: pages("@stable") }
}

fn wheel_name(folder: &str, project: &str, number: usize) -> String {
    format!("{folder}_{project}-1.{number}-cp310-cp310-linux_aarch64.whl")
}

fn page(mirror: &Mirror, selector: &str, project: &str) -> Page {
    let answer = get(&mirror.url(""), &format!("/{ORIN}{selector}/simple/{project}/"), JSON);
    if answer.status == 404 {
        return None;
    }
    assert_eq!(answer.status, 200, "{answer:?}");
    let page = answer.json();
    let files = page["files"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    Some(files.map(|file| (text(&file["filename"]), text(&file["hashes"]["sha256"]))).collect())
}

/// Fetches every file that any page lists, and hashes it.
fn fetch_all(mirror: &Mirror, seen: &Seen, when: &str) {
    let mut fetched = BTreeSet::new();
    for (selector, pages) in [("", &seen.live), ("@candidate", &seen.candidate), ("@stable", &seen.stable)] {
        for (file, sha256) in pages.values().flatten().flatten() {
            if fetched.insert(sha256.clone()) {
                let path = format!("/{ORIN}{selector}/files/{sha256}/{file}");
                let answer = get(&mirror.url(""), &path, &[]);
                assert_eq!(answer.status, 200, "{when}: {path}");
                assert_eq!(Sha256::of(&answer.body).to_string(), *sha256, "{when}: {path}");
            }
        }
    }
}

/// Checks what is there after a kill against what was there before and what the next run made of it.
fn compare(before: &Seen, between: &Seen, after: &Seen, when: &str) {
    for (project, page) in &between.live {
        assert!(
            page == &before.live[project] || page == &after.live[project],
            "{when}: the page of {project} is {page:?}\nbefore {:?}\nafter {:?}",
            before.live[project],
            after.live[project]
        );
        for (old, new) in [(before, between), (between, after)] {
            let lost = old.live[project]
                .iter()
                .flatten()
                .find(|file| new.live[project].as_ref().is_none_or(|files| !files.contains(*file)));
            assert_eq!(lost, None, "{when}: {project}");
        }
    }
    for (channel, old, found, new) in [
        ("candidate", &before.candidate, &between.candidate, &after.candidate),
        ("stable", &before.stable, &between.stable, &after.stable),
    ] {
        assert!(
            found == old || found == new,
            "{when}: {channel} is {found:?}\nbefore {old:?}\nafter {new:?}"
        );
    }
}

/// How a command ended that may have been killed.
struct Ended {
    /// Whether it was done before.
    done: bool,
    /// The files that it had told to be added.
    told: Vec<String>,
}

/// Starts a command and kills it, or the server that it runs in, after a while.
fn kill(mut command: Command, server: Option<Mirror>, after: Duration) -> Ended {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        let lines = said.lines().map_while(Result::ok);
        lines.filter_map(|line| Some(line.split_once("] added ")?.1.to_owned())).collect()
    });
    std::thread::sleep(after);
    match server {
        Some(server) => drop(server),
        None => child.kill().unwrap(),
    }
    let done = child.wait().unwrap().success();
    Ended { done, told: reader.join().unwrap() }
}

fn held(seen: &Seen, file: &str) -> bool {
    seen.live.values().flatten().flatten().any(|(name, _)| name == file)
}

fn was_rebuilt(data: &Path) -> bool {
    fs_err::read_to_string(data.join("incidents.jsonl")).is_ok_and(|text| text.contains("catalogue-rebuilt"))
}

/// Issue 4, done when 2.
#[test]
fn kill_at_any_moment_in_any_command_leaves_the_old_or_the_new() {
    let mut dice = Dice::from_environment();
    eprintln!("chaos: JETWHEEL_CHAOS_SEED={} gives the same moments again", dice.0);
    let mut site = Site::new();
    // The first time of each tells how long it takes here.
    let mut lasts = Vec::new();
    for verb in VERBS {
        site.prepare(verb, 0);
        let begin = Instant::now();
        site.run(verb, 0, "the first time");
        lasts.push(begin.elapsed());
    }
    let mirror = Mirror::serving(&site.data());
    let mut before = look(&mirror);
    drop(mirror);
    let mut killed = 0;
    for round in 0..VERBS.len() * TIMES {
        let (verb, number) = (VERBS[round % VERBS.len()], round / VERBS.len() + 1);
        let inside = dice.below(2) == 0;
        let micros = u64::try_from(lasts[round % VERBS.len()].as_micros()).unwrap();
        let after = Duration::from_micros(dice.below(micros));
        let when = format!("round {round}, {verb:?} killed after {after:?}, inside a server: {inside}");
        site.prepare(verb, number);
        let server = inside.then(|| Mirror::serving(&site.data()));
        let ended = kill(site.command(verb, number), server, after);
        killed += usize::from(!ended.done);

        let mut mirror = Mirror::serving(&site.data());
        assert!(!was_rebuilt(&site.data()), "{when}: a killed process is no damage");
        assert_eq!(fs_err::read_dir(site.path("data/spool")).unwrap().count(), 0, "{when}");
        let between = look(&mirror);
        fetch_all(&mirror, &between, &when);
        for file in &ended.told {
            assert!(held(&between, file), "{when}: {file} is lost");
        }
        // The next run ends normally, beside the server or alone.
        if inside {
            site.run(verb, number, &when);
        } else {
            drop(mirror);
            site.run(verb, number, &when);
            mirror = Mirror::serving(&site.data());
        }
        let now = look(&mirror);
        compare(&before, &between, &now, &when);
        if ended.done {
            assert_eq!(between, now, "{when}: it had said that all is done");
        }
        match verb {
            Verb::Add | Verb::Sync | Verb::Import => {
                let folder = format!("{verb:?}").to_lowercase();
                for project in ["a", "b", "c"] {
                    assert!(held(&now, &wheel_name(&folder, project, number)), "{when}");
                }
                if verb != Verb::Import {
                    assert_eq!(now.candidate, now.live, "{when}");
                }
            }
            Verb::Promote => assert_eq!(now.stable, now.candidate, "{when}"),
            Verb::Gc => assert!(!site.strays.iter().any(|stray| stray.exists()), "{when}"),
        }
        if number % 5 == 0 {
            let (code, report) = json(jetwheel(&site.data()).arg("verify"));
            assert_eq!(code, 0, "{when}: {report}");
        }
        before = now;
    }
    eprintln!("chaos: {killed} of {} kills fell before the end", VERBS.len() * TIMES);
    assert!(killed > 0, "no kill fell into a command");
}
