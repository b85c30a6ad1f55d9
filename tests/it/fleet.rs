//! Several servers over one catalogue, with pip behind a proxy that asks them in turn, while parts of it are killed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::snapshot::{json, names_on, wheel};
use crate::support::clients::{JETPACK_6, Pip};
use crate::support::devpi::Devpi;
use crate::support::http::{exchange, get};
use crate::support::mirror::Mirror;
use crate::support::nginx::RoundRobin;
use crate::support::postgres::Server;
use crate::support::site::Site;

const ORIN: &str = "orin-jp6.2";
const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];

/// How long a change may take to be seen by all servers, on a busy machine. `tests/bench/fleet.py` holds it to two seconds.
const SEEN_WITHIN: Duration = Duration::from_secs(20);
/// How long a server may take to notice that the database answers again.
const BACK_WITHIN: Duration = Duration::from_mins(1);
/// How long anything else may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

fn add(site: &Site, wheel: &Path) {
    let (code, answer) = json(site.command().arg("add").arg(wheel));
    assert_eq!(code, 0, "{answer}");
}

/// Waits until all servers list these files. Meanwhile a server may say that it cannot tell.
fn wait_for(mirrors: &[Mirror], expected: &[&str], limit: Duration) {
    let began = Instant::now();
    let page = format!("/{ORIN}/simple/demo/");
    for mirror in mirrors {
        loop {
            let answer = get(&mirror.url(""), &page, JSON);
            let seen = match answer.status {
                404 => Vec::new(),
                503 => vec!["unknown".to_owned()],
                _ => names_on(&answer),
            };
            if seen == expected {
                break;
            }
            assert!(began.elapsed() < limit, "{answer:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn servers_agree_and_get_over_the_loss_of_the_database_and_of_each_other() {
    let mut server = Server::start();
    let site = Site::with_postgres(&server.database("fleet"));
    let config = site.config();
    let arguments: [&OsStr; 2] = ["--config".as_ref(), config.as_ref()];
    let mut mirrors: Vec<Mirror> = (0..3).map(|_| Mirror::serving_with(&site.data(), &arguments)).collect();
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (wheel(dir.path(), "demo", "1.0", ""), wheel(dir.path(), "demo", "2.0", ""));
    let names = ["demo-1.0-cp310-cp310-linux_aarch64.whl", "demo-2.0-cp310-cp310-linux_aarch64.whl"];
    add(&site, &one);
    wait_for(&mirrors, &names[..1], SEEN_WITHIN);

    let proxy = RoundRobin::over(&mirrors.iter().map(|mirror| mirror.url("")).collect::<Vec<_>>());
    let fetch = |requirement: &str| {
        let fetched =
            Pip::newest().download(&format!("{}/{ORIN}/simple/", proxy.url()), JETPACK_6, requirement);
        assert!(fetched.done, "{}", fetched.said);
        fetched.names
    };
    assert_eq!(fetch("demo"), names[..1]);

    // Pages at hand are served while the database is away; what is not at hand is refused for now, never wrongly.
    server.kill();
    wait_for(&mirrors, &names[..1], Duration::ZERO);
    for mirror in &mirrors {
        let unknown = get(&mirror.url(""), &format!("/{ORIN}/simple/other/"), JSON);
        assert_eq!((unknown.status, unknown.header("retry-after").is_some()), (503, true), "{unknown:?}");
    }
    let waiting = site.command().arg("add").arg(&two).stderr(Stdio::null()).spawn();
    server.start_again();
    assert!(waiting.unwrap().wait().unwrap().success(), "what began without the database ends with it");
    wait_for(&mirrors, &names, BACK_WITHIN);
    assert_eq!(fetch("demo"), names[1..]);
    assert_eq!(get(&mirrors[0].url(""), &format!("/{ORIN}/simple/other/"), JSON).status, 404);

    // One of the servers is killed: the proxy asks the others.
    mirrors[1].end();
    for _ in 0..3 {
        assert_eq!(fetch("demo==1.0"), names[..1]);
    }
    let (code, report) = json(site.command().arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(2)), "{report}");
}

/// What lies in a bucket is given out by signed addresses or through the mirror, to devices that may have it alone.
#[test]
fn files_of_a_bucket_are_redirected_or_streamed_and_pages_outlive_it() {
    let (server, s3) = (Server::start(), crate::support::s3::Server::start());
    let site = Site::with_s3(&s3, "wheels", Some(server.database("bucket")));
    let dir = tempfile::tempdir().unwrap();
    let path = wheel(dir.path(), "demo", "1.0", "");
    let (name, bytes) = (path.file_name().unwrap().to_str().unwrap(), fs_err::read(&path).unwrap());
    add(&site, &path);
    let streams = dir.path().join("streams.toml");
    let text = fs_err::read_to_string(site.config()).unwrap();
    fs_err::write(&streams, format!("{text}stream = true\n")).unwrap();
    let serve = |config: &Path| Mirror::serving_with(&site.data(), &["--config".as_ref(), config.as_ref()]);
    let (redirects, streams) = (serve(&site.config()), serve(&streams));
    for mirror in [&redirects, &streams] {
        let fetched = Pip::newest().download(&mirror.index_url(ORIN), JETPACK_6, "demo");
        assert_eq!(fetched.names, [name], "{}", fetched.said);
        assert!(fetched.bytes(name) == bytes);
    }
    let target = format!("/{ORIN}/files/{}/{name}", jetwheel::digest::Sha256::of(&bytes));
    let answer = get(&redirects.url(""), &target, &[]);
    assert_eq!(answer.status, 302, "{answer:?}");
    assert!(answer.header("location").unwrap().contains("X-Amz-Signature="));
    let head = crate::support::http::head(&redirects.url(""), &target, &[]);
    assert_eq!((head.status, head.header("content-length")), (200, Some(bytes.len().to_string().as_str())));
    let part = get(&streams.url(""), &target, &[("Range", "bytes=5-104")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &bytes[5..105]));
    for mirror in [&redirects, &streams] {
        let refused = get(&mirror.url(""), &target.replace(ORIN, "thor-jp7.0"), &[]);
        assert_eq!((refused.status, refused.header("location")), (403, None));
    }
    // The bucket takes connections and answers none: pages need nothing of it.
    s3.signal("-STOP");
    wait_for(&[redirects, streams], &[name], Duration::ZERO);
    s3.signal("-CONT");
}

/// What asks without a pause while parts are killed, and compares every answer with what was published.
struct Load<'a> {
    mirrors: Vec<String>,
    proxy: String,
    /// File names and bytes; a project each.
    wheels: &'a [(String, Vec<u8>)],
    /// How often that changed: whether all is there (even), or a file may have to be asked for again (odd).
    turns: AtomicUsize,
    over: AtomicBool,
    answered: AtomicUsize,
}

impl Load<'_> {
    /// Pages of one server, or of all by way of the proxy: all files that were there before the load began, and no others.
    fn pages(&self, base: &str, may_be_down: bool) {
        for (name, _) in self.wheels.iter().cycle() {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let project = name.split('-').next().unwrap();
            let target = format!("/{ORIN}/simple/{project}/");
            let head = format!(
                "GET {target} HTTP/1.1\r\nHost: mirror.test\r\nAccept: {}\r\nConnection: close\r\n\r\n",
                JSON[0].1
            );
            // Whoever is killed says nothing, or stops in the middle of it.
            let text = exchange(base, head.as_bytes()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let whole = text.ends_with('}') && text.contains(name.as_str());
            assert!(whole || may_be_down, "{base}{target}: {text}");
            if whole {
                self.answered.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Files by way of the proxy, by pip.
    fn pip(&self) {
        for (name, bytes) in self.wheels.iter().cycle() {
            let turns = self.turns.load(Ordering::SeqCst);
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let project = name.split('-').next().unwrap();
            let fetched =
                Pip::newest().download(&format!("{}/{ORIN}/simple/", self.proxy), JETPACK_6, project);
            if fetched.done {
                assert!(
                    fetched.names == [name.as_str()] && fetched.bytes(name) == *bytes,
                    "{}",
                    fetched.said
                );
                self.answered.fetch_add(1, Ordering::SeqCst);
            } else {
                let excused = turns % 2 == 1 || turns != self.turns.load(Ordering::SeqCst);
                assert!(excused, "{name}: {}", fetched.said);
            }
        }
    }

    /// Something is killed now, or is back.
    fn turn(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits for further right answers.
    fn goes_on(&self) {
        let (began, before) = (Instant::now(), self.answered.load(Ordering::SeqCst));
        while self.answered.load(Ordering::SeqCst) < before + 20 {
            assert!(began.elapsed() < PATIENCE, "nothing is answered any more");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The short form of `tests/bench/fleet.py`: every process in turn, the database and the bucket's server are killed under load.
#[test]
fn whatever_is_killed_under_load_nothing_is_answered_wrongly_or_lost() {
    let (mut server, s3) = (Server::start(), crate::support::s3::Server::start());
    // What the S3 server has is in its memory alone: what is killed is the way to it.
    let mut bucket = RoundRobin::over(&[s3.endpoint()]);
    s3.bucket("fleet");
    let site = Site::at_endpoint(bucket.url(), "fleet", server.database("fleet"));
    let dir = tempfile::tempdir().unwrap();
    let wheels: Vec<(String, Vec<u8>)> = ["alpha", "beta", "gamma"]
        .iter()
        .map(|project| {
            let path = wheel(&dir.path().join("wheels"), project, "1.0", "");
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs_err::read(&path).unwrap())
        })
        .collect();
    let (code, answer) = json(site.command().arg("add").arg(dir.path().join("wheels")));
    assert_eq!(code, 0, "{answer}");
    let streams = dir.path().join("streams.toml");
    let text = fs_err::read_to_string(site.config()).unwrap();
    fs_err::write(&streams, format!("{text}stream = true\n")).unwrap();
    let serve = |number: usize, listen: &str| {
        let config = if number == 0 { streams.clone() } else { site.config() };
        let mut command = crate::support::jetwheel(&dir.path().join(format!("serve{number}")));
        command.arg("--config").arg(config).args(["serve", "--listen", listen]);
        Mirror::started_by(command)
    };
    let mut mirrors: Vec<Mirror> = (0..3).map(|number| serve(number, "127.0.0.1:0")).collect();
    let urls: Vec<String> = mirrors.iter().map(|mirror| mirror.url("")).collect();
    let proxy = RoundRobin::over(&urls);
    for (base, (name, _)) in urls.iter().flat_map(|base| wheels.iter().map(move |wheel| (base, wheel))) {
        let project = name.split('-').next().unwrap();
        assert_eq!(crate::snapshot::files(base, ORIN, project), [name.as_str()]);
    }

    let load = Load {
        mirrors: urls.clone(),
        proxy: proxy.url(),
        wheels: &wheels,
        turns: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        answered: AtomicUsize::new(0),
    };
    std::thread::scope(|scope| {
        // Ends the load where a check below fails, too.
        let _over = Ends(&load.over);
        for base in &load.mirrors {
            scope.spawn(|| load.pages(base, true));
        }
        scope.spawn(|| load.pages(&load.proxy, false));
        scope.spawn(|| load.pip());
        load.goes_on();

        for (number, url) in urls.iter().enumerate() {
            // pip may be in the middle of a file that this one sends.
            load.turn();
            mirrors[number].end();
            load.goes_on();
            mirrors[number] = serve(number, url.trim_start_matches("http://"));
            load.turn();
            load.goes_on();
        }

        let names = queue_and_kill_workers(&site, &server, dir.path());

        // Pages that are at hand need no database; a file may need it.
        load.turn();
        server.kill();
        load.goes_on();
        server.start_again();
        bucket.kill();
        load.goes_on();
        bucket.start_again();
        let unknown = format!("/{ORIN}/simple/unknown/");
        until("the database is found again", || {
            urls.iter().all(|base| get(base, &unknown, JSON).status == 404)
        });
        load.turn();
        load.goes_on();
        for base in &urls {
            for name in &names {
                let file = format!("{name}-1.0-cp310-cp310-linux_aarch64.whl");
                until("what was queued is listed", || {
                    crate::snapshot::files(base, ORIN, name) == [file.as_str()]
                });
            }
        }
        load.over.store(true, Ordering::SeqCst);
    });
    let (code, report) = json(site.command().arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(11)), "{report}");
}

/// Has eight wheels fetched by two workers, each of which is killed once; yields their names.
fn queue_and_kill_workers(site: &Site, server: &Server, dir: &Path) -> Vec<String> {
    let names: Vec<String> = (0..8).map(|number| format!("queued{number}")).collect();
    let queued = dir.join("queued");
    for name in &names {
        wheel(&queued, name, "1.0", "");
    }
    let devpi = Devpi::start();
    devpi.upload_all(&queued);
    let work = |number: usize| {
        let mut command = site.command_in(&dir.join(format!("work{number}")));
        Worker(command.arg("work").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let mut workers: Vec<Worker> = (0..2).map(work).collect();
    for (number, some) in names.chunks(4).enumerate() {
        let mut sync = site.command();
        sync.args(["sync", "--device", ORIN, "--queue", "--upstream", &devpi.index_url()]).args(some);
        let (code, answer) = json(&mut sync);
        assert_eq!((code, &answer["queued"]), (0, &4.into()), "{answer}");
        let taken = format!("SELECT count(*) > {} FROM job WHERE attempts > 0", number * 4);
        until("one of these jobs is taken", || server.sql("fleet", &taken) == "t");
        let pid = workers[number].0.id();
        workers[number] = work(number);
        // Half a minute is long for a test.
        let lease = format!("UPDATE job SET due = now() WHERE state = 'running' AND holder LIKE '{pid}-%'");
        until("its jobs are done by another", || {
            server.sql("fleet", &lease);
            server.sql("fleet", "SELECT count(*) FROM job WHERE state <> 'done'") == "0"
        });
    }
    names
}

/// A `work` process; killed when it goes.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// Says that it is over when it goes, even by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not yet: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
