//! What two servers do at the same moment, over a real PostgreSQL and a bucket: uploads of one name, and pulls of one wheel.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;
use jetwheel::store::Provenance;
use jetwheel::wheel::{InspectOptions, inspect_wheel};
use serde_json::json;

use crate::snapshot::{files, json as run_json};
use crate::support::http::{get, send};
use crate::support::make_wheels;
use crate::support::mirror::Mirror;
use crate::support::postgres::Server;
use crate::support::site::Site;
use crate::support::upstream::Upstream;
use crate::upload::{FORM, UPLOAD, form};

const ORIN: &str = "orin-jp6.2";
/// How often two uploads meet.
const ROUNDS: usize = 12;
/// How many clients ask each server.
const CLIENTS: usize = 3;
/// How long something may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Of two files with one name and other bytes, one is taken: the other upload is told so, whichever servers they went to.
#[test]
fn of_two_uploads_of_one_name_at_the_same_moment_one_is_taken() {
    let (server, s3) = (Server::start(), crate::support::s3::Server::start());
    let site = Site::with_s3(&s3, "uploads", Some(server.database("uploads")));
    let dir = tempfile::tempdir().unwrap();
    let name = |round: usize| format!("demo-1.{round}-py3-none-any.whl");
    let folders = ["one", "two"].map(|text| {
        let folder = dir.path().join(text);
        fs_err::create_dir(&folder).unwrap();
        let specs: Vec<_> = (0..ROUNDS)
            .map(|round| json!({"filename": name(round), "files": {"demo/__init__.py": format!("# {text}\n")}}))
            .collect();
        make_wheels(&json!(specs), &folder);
        folder
    });
    let output = site.command().args(["token", "create", "ci", "--scope", "upload"]).output().unwrap();
    let token = format!("Bearer {}", String::from_utf8(output.stdout).unwrap().trim());
    let config = site.config();
    let arguments: [&OsStr; 2] = ["--config".as_ref(), config.as_ref()];
    let mirrors = folders.each_ref().map(|folder| Mirror::serving_with(&folder.join("data"), &arguments));
    let mut winners = BTreeSet::new();
    for round in 0..ROUNDS {
        let file = name(round);
        let answers: Vec<_> = std::thread::scope(|scope| {
            let uploads: Vec<_> = mirrors
                .iter()
                .zip(&folders)
                .map(|(mirror, folder)| {
                    let bytes = fs_err::read(folder.join(&file)).unwrap();
                    let (file, token) = (&file, &token);
                    scope.spawn(move || {
                        let body = form(&UPLOAD, Some((file, &bytes)));
                        let headers = [("Content-Type", FORM), ("Authorization", token.as_str())];
                        send(&mirror.url(""), "POST", "/legacy/", &headers, &body)
                    })
                })
                .collect();
            uploads.into_iter().map(|upload| upload.join().unwrap()).collect()
        });
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{file}: {answers:?}");
        let winner = usize::from(answers[0].status != 200);
        winners.insert((file.clone(), Sha256::of(&fs_err::read(folders[winner].join(&file)).unwrap())));
    }
    let held = site.open().held_files().unwrap();
    let held: BTreeSet<_> = held.into_iter().map(|file| (file.file, file.sha256)).collect();
    assert_eq!(held, winners);
}

/// Each server may fetch what it has not, so that an upstream is asked once by each at most; what comes of it is one.
#[test]
fn two_servers_that_pull_the_same_leave_what_one_would() {
    let (server, s3) = (Server::start(), crate::support::s3::Server::start());
    let site = Site::with_s3(&s3, "pulled", Some(server.database("pulled")));
    let corpus = tempfile::tempdir().unwrap();
    let known = "bigdemo-1.0-cp310-cp310-manylinux_2_28_aarch64.whl";
    let pure = "puredemo-1.2-py3-none-any.whl";
    let unfit = "baddemo-1.0-cp310-cp310-manylinux_2_28_aarch64.whl";
    let elf = |arch: &str, payload: usize| {
        json!([{"path": "demo/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.6", "payload": payload,
            "fatbins": [{"images": [arch], "count": 1}]}])
    };
    make_wheels(
        &json!([
            {"filename": known, "elfs": elf("sm_87", 9_000_000)},
            {"filename": unfit, "elfs": elf("sm_90", 1000)},
            {"filename": pure, "files": {"puredemo/__init__.py": ""}},
        ]),
        corpus.path(),
    );
    let bytes = |file: &str| fs_err::read(corpus.path().join(file)).unwrap();
    let upstream = Upstream::serving(corpus.path());
    let store = site.open();
    let facts = inspect_wheel(&corpus.path().join(known), &InspectOptions::default()).unwrap().facts;
    let first_seen = "2026-11-30T08:09:10Z".to_owned();
    let seen = Provenance { upstream: "elsewhere".to_owned(), first_seen, ..Provenance::default() };
    store.put_facts(&facts, &seen).unwrap();
    let config = corpus.path().join("pulls.toml");
    let text = fs_err::read_to_string(site.config()).unwrap();
    let more = format!(
        "[pull]\nupstreams = [\"{}\"]\n[network]\nretries = 1\nbackoff_ms = 10\n",
        upstream.url("/simple/")
    );
    fs_err::write(&config, text + &more).unwrap();
    let serve = |config: &OsStr, folder: &str| {
        Mirror::serving_with(&corpus.path().join(folder), &["--config".as_ref(), config])
    };
    let pulling = ["one", "two"].map(|folder| serve(config.as_ref(), folder));
    let target = |file: &str| format!("/{ORIN}/files/{}/{file}", Sha256::of(&bytes(file)));

    for (file, project) in [(pure, "puredemo"), (known, "bigdemo")] {
        let expected = bytes(file);
        std::thread::scope(|scope| {
            for mirror in pulling.iter().flat_map(|mirror| [mirror; CLIENTS]) {
                let (target, expected) = (target(file), &expected);
                scope.spawn(move || {
                    assert_eq!(files(&mirror.url(""), ORIN, project), [file]);
                    assert!(fetch(mirror, &target) == *expected, "{file} came with other bytes");
                });
            }
        });
        let fetches = upstream.fetched().iter().filter(|path| path.ends_with(file)).count();
        assert!((1..=pulling.len()).contains(&fetches), "{file} was fetched {fetches} times");
    }
    // One that no device may have is listed by neither.
    let began = Instant::now();
    while store.count(&"baddemo".parse().unwrap()).unwrap() != (1, 0) {
        for mirror in &pulling {
            assert_eq!(files(&mirror.url(""), ORIN, "baddemo"), [""; 0]);
        }
        assert!(began.elapsed() < PATIENCE, "nobody looked at {unfit}");
        std::thread::sleep(Duration::from_millis(20));
    }
    for mirror in &pulling {
        assert_eq!(get(&mirror.url(""), &target(unfit), &[]).status, 403);
    }
    // What was pulled is there for a server that asks nobody, and stays when the upstream is gone.
    upstream.end();
    let alone = serve(site.config().as_ref(), "three");
    for mirror in pulling.iter().chain([&alone]) {
        for (file, project) in [(pure, "puredemo"), (known, "bigdemo")] {
            assert_eq!(files(&mirror.url(""), ORIN, project), [file]);
            assert!(fetch(mirror, &target(file)) == bytes(file));
        }
    }
    let held: Vec<String> = store.held_files().unwrap().into_iter().map(|file| file.file).collect();
    assert_eq!(held, [known, pure]);
    let (code, report) = run_json(site.command().arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(2)), "{report}");
}

/// The bytes of a file, from wherever the server says they are, as soon as it has them.
fn fetch(mirror: &Mirror, target: &str) -> Vec<u8> {
    let began = Instant::now();
    loop {
        let answer = get(&mirror.url(""), target, &[]);
        match (answer.status, answer.header("location")) {
            (200, _) => return answer.body,
            (302, Some(location)) => {
                let output = Command::new("curl").args(["-s", "-f", location]).output().unwrap();
                assert!(output.status.success(), "{location}");
                return output.stdout;
            }
            (503, _) => assert!(began.elapsed() < PATIENCE, "{answer:?}"),
            _ => panic!("{answer:?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
