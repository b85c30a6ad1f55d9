//! `serve --pull`: pages and files of upstreams, asked for when somebody asks the mirror.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fs_err as fs;
use jetwheel::digest::Sha256;
use jetwheel::store::{IncidentKind, Provenance, Store};
use jetwheel::wheel::{InspectOptions, inspect_wheel};
use serde_json::{Value, json};

use crate::support::clients::{JETPACK_6, Pip, Uv};
use crate::support::devpi::Devpi;
use crate::support::http::{Answer, get, head};
use crate::support::mirror::Mirror;
use crate::support::upstream::{Fault, Gate, Upstream};
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const JSON: &str = "application/vnd.pypi.simple.v1+json";
/// A wheel with code for Orin, of some megabytes.
const BIG: &str = "bigdemo-1.0-cp310-cp310-manylinux_2_28_aarch64.whl";
/// One that has none for it.
const UNFIT: &str = "baddemo-1.0-cp310-cp310-manylinux_2_28_aarch64.whl";
const PURE: &str = "puredemo-1.2-py3-none-any.whl";
/// How many bytes come before an upstream is held up.
const FIRST: usize = 1 << 20;
/// How long something that happens in the background may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A corpus, an upstream that serves it, and a data folder.
struct Scene {
    corpus: tempfile::TempDir,
    upstream: Upstream,
    data: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let corpus = tempfile::tempdir().unwrap();
        let elf = |project: &str, arch: &str, payload: usize| {
            json!([{"path": format!("{project}/_C.so"), "soname": "_C.so", "glibc": "2.17", "cuda": "12.6",
                "payload": payload, "fatbins": [{"images": [arch], "count": 1}]}])
        };
        make_wheels(
            &json!([
                {"filename": BIG, "elfs": elf("bigdemo", "sm_87", 3_000_000)},
                {"filename": UNFIT, "elfs": elf("baddemo", "sm_90", 1000)},
                {"filename": PURE, "requires_python": ">=3.8", "files": {"puredemo/__init__.py": ""}},
            ]),
            corpus.path(),
        );
        let upstream = Upstream::serving(corpus.path());
        Self { corpus, upstream, data: tempfile::tempdir().unwrap() }
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.corpus.path().join(file)
    }

    fn bytes(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).unwrap()
    }

    fn sha256(&self, file: &str) -> Sha256 {
        Sha256::of(&self.bytes(file))
    }

    fn target(&self, file: &str) -> String {
        format!("/{ORIN}/files/{}/{file}", self.sha256(file))
    }

    /// Lets the store know a wheel's facts, as a sync that did not keep it would.
    fn know(&self, file: &str) {
        let store = Store::open(self.data.path()).unwrap();
        let inspection = inspect_wheel(&self.path(file), &InspectOptions::default()).unwrap();
        let seen = Provenance {
            upstream: "elsewhere".to_owned(),
            first_seen: "2026-11-30T08:09:10Z".to_owned(),
            ..Provenance::default()
        };
        store.put_facts(&inspection.facts, &seen).unwrap();
    }

    /// Pulls from the upstream, by a configuration with these lines of `[pull]`.
    fn mirror(&self, settings: &str) -> Mirror {
        self.mirror_of(&[&self.upstream], &[], settings)
    }

    fn mirror_of(&self, upstreams: &[&Upstream], general: &[&Upstream], settings: &str) -> Mirror {
        let list = |upstreams: &[&Upstream]| {
            let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url("/simple/")).collect();
            json!(urls).to_string()
        };
        let config = self.data.path().with_extension("toml");
        let (own, general) = (list(upstreams), list(general));
        let text = format!(
            "[pull]\nupstreams = {own}\ngeneral = {general}\n{settings}\n[network]\nretries = 1\nbackoff_ms = 10\n"
        );
        fs::write(&config, text).unwrap();
        Mirror::serving_with(self.data.path(), &[OsStr::new("--config"), config.as_os_str()])
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _none = fs::remove_file(self.data.path().with_extension("toml"));
    }
}

fn base(mirror: &Mirror) -> String {
    mirror.url("")
}

/// A project's page, as JSON.
fn page(mirror: &Mirror, project: &str) -> (Answer, Value) {
    let answer = get(&base(mirror), &format!("/{ORIN}/simple/{project}/"), &[("Accept", JSON)]);
    let page = if answer.status == 200 { answer.json() } else { Value::Null };
    (answer, page)
}

fn listed(page: &Value) -> Vec<String> {
    let files = page["files"].as_array().unwrap().iter();
    files.map(|file| file["filename"].as_str().unwrap().to_owned()).collect()
}

/// Asks until the answer is as wanted.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A GET whose body is read as it comes.
struct Reading {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Reading {
    fn begin(mirror: &Mirror, target: &str) -> Self {
        let base = base(mirror);
        let mut stream = TcpStream::connect(base.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nHost: mirror.test\r\nConnection: close\r\n\r\n").unwrap();
        Self { stream, bytes: Vec::new() }
    }

    fn body(&self) -> &[u8] {
        let end = self.bytes.windows(4).position(|window| window == b"\r\n\r\n");
        end.map_or(&[], |end| &self.bytes[end + 4..])
    }

    /// Reads until the body has so many bytes.
    fn read(&mut self, count: usize) {
        let mut piece = vec![0; 1 << 16];
        while self.body().len() < count {
            let read = self.stream.read(&mut piece).unwrap();
            assert!(read > 0, "ended after {} bytes: {}", self.bytes.len(), self.head());
            self.bytes.extend_from_slice(&piece[..read]);
        }
    }

    /// Reads until the connection ends, however that is.
    fn rest(mut self) -> (String, Vec<u8>) {
        let _broken = self.stream.read_to_end(&mut self.bytes);
        (self.head(), self.body().to_vec())
    }

    fn head(&self) -> String {
        let end = self.bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(0);
        String::from_utf8_lossy(&self.bytes[..end]).into_owned()
    }
}

/// C27: "8 GETs within 50 ms for one file: exactly one upstream GET; 8 full, equal bodies; first bytes reach all before upstream
/// has finished; a client that leaves does not stop the others; no redirect to upstream."
#[test]
fn eight_clients_of_one_uncached_wheel_share_one_fetch_and_read_while_it_arrives() {
    let scene = Scene::new();
    scene.know(BIG);
    let gate = Gate::default();
    scene.upstream.change(BIG, |served| served.faults.push_back(Fault::Hold(FIRST, gate.clone())));
    let mirror = scene.mirror("");
    let target = scene.target(BIG);
    let mut clients: Vec<Reading> = (0..8).map(|_| Reading::begin(&mirror, &target)).collect();
    for client in &mut clients {
        client.read(FIRST / 2);
        assert!(client.head().starts_with("HTTP/1.1 200 "), "{}", client.head());
    }
    drop(clients.pop());
    gate.open();
    for client in clients {
        let (head, body) = client.rest();
        assert!(body == scene.bytes(BIG), "{head}: {} bytes", body.len());
        assert!(head.contains(&format!("etag: \"{}\"", scene.sha256(BIG))), "{head}");
    }
    assert_eq!(scene.upstream.fetched(), [format!("/f/{BIG}")]);
    // From now on it is the store's.
    until("the wheel", || (get(&base(&mirror), &target, &[]).body == scene.bytes(BIG)).then_some(()));
    assert_eq!(scene.upstream.fetched(), [""; 0]);
    assert_eq!(listed(&page(&mirror, "bigdemo").1), [BIG]);
}

#[test]
fn a_wheel_whose_hash_does_not_come_out_is_cut_off() {
    let scene = Scene::new();
    scene.know(BIG);
    let sha256 = scene.sha256(BIG);
    scene.upstream.change(BIG, |served| {
        let last = served.bytes.len() - 1;
        served.bytes[last] ^= 1;
    });
    let mirror = scene.mirror("");
    let target = scene.target(BIG);
    let (head, body) = Reading::begin(&mirror, &target).rest();
    let size = scene.bytes(BIG).len();
    // Whether it was begun to be sent is a matter of time; that it never ends well is not.
    assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(body.len() < size, "{} bytes", body.len());
    drop(mirror);
    let store = Store::open(scene.data.path()).unwrap();
    assert!(!store.row(&sha256).unwrap().unwrap().held);
    let incidents = store.incidents().unwrap();
    assert_eq!(incidents.iter().filter(|incident| incident.kind == IncidentKind::HashMismatch).count(), 1);
}

#[test]
fn nobody_gets_a_byte_of_an_unknown_wheel_before_it_was_inspected_and_it_is_fetched_once() {
    let scene = Scene::new();
    let gate = Gate::default();
    scene.upstream.change(BIG, |served| served.faults.push_back(Fault::Hold(FIRST, gate.clone())));
    // Nothing in the background, so that only those who ask fetch.
    let mirror = scene.mirror("inspections = 0");
    let target = scene.target(BIG);
    let clients: Vec<Reading> = (0..4).map(|_| Reading::begin(&mirror, &target)).collect();
    until("the fetch", || scene.upstream.has_seen(&format!("/f/{BIG}")).then_some(()));
    for client in &clients {
        client.stream.set_nonblocking(true).unwrap();
        assert_eq!((&client.stream).read(&mut [0; 1]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        client.stream.set_nonblocking(false).unwrap();
    }
    gate.open();
    for client in clients {
        let (head, body) = client.rest();
        assert!(body == scene.bytes(BIG), "{head}: {} bytes", body.len());
    }
    let refused = get(&base(&mirror), &scene.target(UNFIT), &[]);
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.phrase.contains("no-kernel-image"), "{refused:?}");
    assert_eq!(scene.upstream.fetched(), [format!("/f/{BIG}"), format!("/f/{UNFIT}")]);
    // What is known of it now is enough.
    assert_eq!(get(&base(&mirror), &scene.target(UNFIT), &[]).status, 403);
    // What its name rules out is never fetched.
    let other = "bigdemo-1.0-cp312-cp312-manylinux_2_28_aarch64.whl";
    scene.upstream.add(other, b"other bytes".to_vec());
    let target = format!("/{ORIN}/files/{}/{other}", Sha256::of(b"other bytes"));
    let mirror_again = {
        drop(mirror);
        scene.mirror("inspections = 0")
    };
    assert_eq!(get(&base(&mirror_again), &target, &[]).status, 403);
    assert_eq!(scene.upstream.fetched(), [""; 0]);
}

#[test]
fn a_page_lists_pure_wheels_at_once_and_large_unknown_ones_once_judged() {
    let scene = Scene::new();
    let mirror = scene.mirror("");
    let (_, pure) = page(&mirror, "puredemo");
    assert_eq!(listed(&pure), [PURE]);
    assert_eq!(pure["files"][0]["core-metadata"], json!(true));
    assert_eq!(pure["files"][0]["hashes"]["sha256"], json!(scene.sha256(PURE).to_string()));
    let metadata = get(&base(&mirror), &format!("{}.metadata", scene.target(PURE)), &[]);
    assert!(metadata.text().starts_with("Metadata-Version: "), "{metadata:?}");
    assert_eq!(scene.upstream.fetched(), [""; 0], "a page and metadata take no wheel");
    assert_eq!(get(&base(&mirror), &scene.target(PURE), &[]).body, scene.bytes(PURE));
    let (_, pure) = page(&mirror, "puredemo");
    assert_eq!(pure["files"][0]["core-metadata"], json!({"sha256": Sha256::of(&metadata.body).to_string()}));

    let listed_big = until("the listed wheel", || {
        let (_, big) = page(&mirror, "bigdemo");
        let files = listed(&big);
        if files.is_empty() {
            let status = &big["project-status-reason"];
            assert!(big.to_string().contains("being fetched and inspected"), "{status}");
            return None;
        }
        Some(files)
    });
    assert_eq!(listed_big, [BIG]);
    until("the verdict", || page(&mirror, "baddemo").1.to_string().contains("sm_87").then_some(()));
    assert_eq!(listed(&page(&mirror, "baddemo").1), [""; 0]);
    assert_eq!(get(&base(&mirror), &scene.target(BIG), &[]).body, scene.bytes(BIG));
    let mut fetched = scene.upstream.fetched();
    fetched.sort();
    assert_eq!(fetched, [format!("/f/{UNFIT}"), format!("/f/{BIG}"), format!("/f/{PURE}")]);
    // A project that no upstream has is still unknown.
    assert_eq!(page(&mirror, "nosuchdemo").0.status, 404);
}

/// C05, with pull: "200 for all three, with no wait on upstream; the age of the data is visible".
#[test]
fn an_upstream_that_is_down_or_silent_takes_nothing_away() {
    let scene = Scene::new();
    let mirror = scene.mirror("page_lifetime_s = 0\npage_wait_s = 1");
    assert_eq!(get(&base(&mirror), &scene.target(PURE), &[]).status, 200);
    assert_eq!(page(&mirror, "puredemo").0.header("warning"), None);
    // It accepts connections and says nothing.
    let gate = Gate::default();
    scene.upstream.page_faults((0..9).map(|_| Fault::Hold(0, gate.clone())));
    scene.upstream.seen();
    for _request in 0..5 {
        let (answer, page) = page(&mirror, "puredemo");
        assert_eq!(listed(&page), [PURE]);
        let warning = answer.header("warning").unwrap();
        assert!(warning.starts_with("110 jetwheel \"127.0.0.1:"), "{warning}");
        assert!(answer.header("age").unwrap().parse::<u64>().unwrap() < 300);
        assert_eq!(get(&base(&mirror), &scene.target(PURE), &[]).body, scene.bytes(PURE));
        let metadata = get(&base(&mirror), &format!("{}.metadata", scene.target(PURE)), &[]);
        assert_eq!(metadata.status, 200);
    }
    // Its failure is remembered: one request found out.
    assert_eq!(scene.upstream.seen().len(), 1);
    // The request itself may last longer than the answers that did not wait for it.
    let began = Instant::now();
    loop {
        let ready = get(&base(&mirror), "/readyz", &[]).json();
        let upstream = ready["upstreams"].as_object().unwrap().values().next().unwrap();
        assert!(upstream["last_reached"].is_string(), "{ready}");
        if upstream["failing_since"].is_string() {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{ready}");
        thread::sleep(Duration::from_millis(50));
    }
    gate.open();
    drop(mirror);

    // Nor does a new process need it: the copy of its page is on the disk.
    let gone = scene.upstream.url("/simple/");
    let mirror = {
        let down = TcpStream::connect("127.0.0.1:1").is_err();
        assert!(down);
        let config = scene.data.path().with_extension("toml");
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains(&gone));
        scene.upstream.end();
        Mirror::serving_with(scene.data.path(), &[OsStr::new("--config"), config.as_os_str()])
    };
    let (answer, shown) = page(&mirror, "puredemo");
    assert_eq!(listed(&shown), [PURE]);
    assert!(answer.header("warning").unwrap().starts_with("110 "), "{answer:?}");
    // Of what nobody knows it is not said that it does not exist.
    let (unknown, _) = page(&mirror, "nosuchdemo");
    assert_eq!((unknown.status, unknown.header("retry-after")), (503, Some("5")));
}

#[test]
fn ranges_and_heads_while_a_wheel_arrives() {
    let scene = Scene::new();
    scene.know(BIG);
    let gate = Gate::default();
    scene.upstream.change(BIG, |served| served.faults.push_back(Fault::Hold(FIRST, gate.clone())));
    let mirror = scene.mirror("file_wait_s = 1");
    let (target, bytes) = (scene.target(BIG), scene.bytes(BIG));
    let answer = head(&base(&mirror), &target, &[]);
    assert_eq!(answer.header("content-length"), Some(bytes.len().to_string().as_str()));
    assert_eq!(scene.upstream.fetched(), [""; 0], "a HEAD fetches nothing");
    let answer = get(&base(&mirror), &target, &[("Range", "bytes=10-19")]);
    assert_eq!((answer.status, &*answer.body), (206, &bytes[10..20]));
    assert_eq!(answer.header("content-range"), Some(format!("bytes 10-19/{}", bytes.len()).as_str()));
    let late = get(&base(&mirror), &target, &[("Range", "bytes=-100")]);
    assert_eq!(late.status, 503, "{late:?}");
    assert!(late.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{late:?}");
    gate.open();
    let tail = until("the end", || {
        let tail = get(&base(&mirror), &target, &[("Range", "bytes=-100")]);
        (tail.status == 206).then_some(tail.body)
    });
    assert_eq!(tail, &bytes[bytes.len() - 100..]);
    let outside = format!("bytes={}-", bytes.len());
    assert_eq!(get(&base(&mirror), &target, &[("Range", &outside)]).status, 416);
    assert_eq!(scene.upstream.fetched(), [format!("/f/{BIG}")]);
}

#[test]
fn a_broken_upstream_connection_is_gone_on_with() {
    let scene = Scene::new();
    scene.know(BIG);
    scene.upstream.change(BIG, |served| served.faults.push_back(Fault::BreakAfter(FIRST)));
    let mirror = scene.mirror("");
    assert_eq!(get(&base(&mirror), &scene.target(BIG), &[]).body, scene.bytes(BIG));
    assert_eq!(scene.upstream.fetched().len(), 2, "the second for the rest");
}

/// JetPack's pips, the newest one and uv wait for a wheel that takes longer than they would: each is told to come again, and does.
#[test]
fn pip_and_uv_come_again_for_a_wheel_that_takes_long() {
    let scene = Scene::new();
    let projects = ["slowa", "slowb", "slowc", "slowd"];
    let name = |project: &str| format!("{project}-1.0-py3-none-any.whl");
    let specs: Vec<Value> = projects.iter().map(|project| json!({"filename": name(project)})).collect();
    make_wheels(&json!(specs), scene.corpus.path());
    scene.upstream.add_all(scene.corpus.path());
    let mut mirror = scene.mirror("file_wait_s = 1");
    let index = mirror.index_url(ORIN);
    thread::scope(|scope| {
        for (at, project) in projects.into_iter().enumerate() {
            let (scene, mirror, index) = (&scene, &mirror, &index);
            scope.spawn(move || {
                let gate = Gate::default();
                let file = name(project);
                let inspection = inspect_wheel(&scene.path(&file), &InspectOptions::default()).unwrap();
                scene.upstream.change(&file, |served| {
                    // Beside the wheel, so that only the wheel itself is held up.
                    served.metadata = Some(inspection.metadata);
                    "data-core-metadata=\"true\"".clone_into(&mut served.attributes);
                    served.faults.push_back(Fault::Hold(10, gate.clone()));
                });
                let client =
                    scope.spawn(move || match [Pip::v20_0_2(), Pip::v22_0_2(), Pip::newest()].get(at) {
                        Some(pip) => pip.retrying().download(index, JETPACK_6, project),
                        None => Uv::install(index, JETPACK_6, project),
                    });
                until("the fetch", || scene.upstream.has_seen(&format!("/f/{file}")).then_some(()));
                // This request came after the client's: when it was put off, so was that one.
                assert_eq!(get(&base(mirror), &scene.target(&file), &[]).status, 503);
                gate.open();
                let fetched = client.join().unwrap();
                assert!(fetched.done, "{}", fetched.said);
            });
        }
    });
    let log = mirror.stop();
    assert!(log.matches("status=503").count() >= 2 * projects.len(), "{log}");
    assert_eq!(scene.upstream.fetched().len(), projects.len());
}

/// Dependency confusion: while a site's own upstream is down, nothing of it comes from a general one.
#[test]
fn a_general_upstream_gets_no_project_of_another_one() {
    let scene = Scene::new();
    let corpus = tempfile::tempdir().unwrap();
    let newer = "puredemo-9.9-py3-none-any.whl";
    let own = "owndemo-1.0-py3-none-any.whl";
    make_wheels(&json!([{"filename": newer, "files": {"puredemo/__init__.py": "evil = 1"}}]), corpus.path());
    make_wheels(&json!([{"filename": "owndemo-9.9-py3-none-any.whl"}]), corpus.path());
    make_wheels(&json!([{"filename": own}]), scene.data.path());
    let general = Upstream::serving(corpus.path());
    let added = jetwheel(scene.data.path()).arg("add").arg(scene.data.path().join(own)).output().unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let mirror = scene.mirror_of(&[&scene.upstream], &[&general], "page_lifetime_s = 0\nfailure_s = 0");
    assert_eq!(listed(&page(&mirror, "puredemo").1), [PURE]);
    assert_eq!(listed(&page(&mirror, "owndemo").1), [own]);
    let evil = fs::read(corpus.path().join(newer)).unwrap();
    let target = format!("/{ORIN}/files/{}/{newer}", Sha256::of(&evil));
    assert_eq!(get(&base(&mirror), &target, &[]).status, 404);
    assert_eq!(get(&base(&mirror), &scene.target(PURE), &[]).status, 200);
    // It loses the project: that is not believed.
    scene.upstream.remove(PURE);
    let (answer, lost) = page(&mirror, "puredemo");
    assert_eq!(listed(&lost), [PURE]);
    assert!(answer.header("warning").unwrap().contains("no longer lists 1 of 1"), "{answer:?}");
    scene.upstream.end();
    assert_eq!(listed(&page(&mirror, "puredemo").1), [PURE]);
    assert_eq!(get(&base(&mirror), &target, &[]).status, 503);
    assert_eq!(general.fetched(), [""; 0]);
}

#[test]
fn other_bytes_than_at_first_sight_are_an_incident_and_not_offered() {
    let scene = Scene::new();
    let mirror = scene.mirror("page_lifetime_s = 0");
    assert_eq!(get(&base(&mirror), &scene.target(PURE), &[]).status, 200);
    scene.upstream.seen();
    let corpus = tempfile::tempdir().unwrap();
    make_wheels(&json!([{"filename": PURE, "files": {"puredemo/__init__.py": "other = 1"}}]), corpus.path());
    let other = fs::read(corpus.path().join(PURE)).unwrap();
    scene.upstream.add(PURE, other.clone());
    let (_, shown) = page(&mirror, "puredemo");
    assert_eq!(shown["files"][0]["hashes"]["sha256"], json!(scene.sha256(PURE).to_string()));
    assert_eq!(listed(&shown), [PURE]);
    let target = format!("/{ORIN}/files/{}/{PURE}", Sha256::of(&other));
    assert_eq!(get(&base(&mirror), &target, &[]).status, 404);
    assert_eq!(scene.upstream.fetched(), [""; 0]);
    drop(mirror);
    let incidents = Store::open(scene.data.path()).unwrap().incidents().unwrap();
    assert_eq!(incidents.iter().filter(|incident| incident.kind == IncidentKind::ChangedFile).count(), 1);
}

#[test]
fn a_kill_in_the_middle_leaves_nothing_half() {
    let scene = Scene::new();
    scene.know(BIG);
    let gate = Gate::default();
    scene.upstream.change(BIG, |served| served.faults.push_back(Fault::Hold(FIRST, gate.clone())));
    let mut mirror = scene.mirror("");
    let mut client = Reading::begin(&mirror, &scene.target(BIG));
    client.read(FIRST / 2);
    mirror.end();
    gate.open();
    assert!(client.rest().1.len() < scene.bytes(BIG).len());
    let verified = jetwheel(scene.data.path()).args(["verify", "--format", "json"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    assert_eq!(files_below(&scene.data.path().join("spool")), 0);
    let mirror = scene.mirror("");
    assert_eq!(get(&base(&mirror), &scene.target(BIG), &[]).body, scene.bytes(BIG));
}

fn files_below(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// From an empty store, with the software behind the jetson-ai-lab index, and with the flags of the command line.
#[test]
fn pip_and_uv_install_through_an_empty_mirror_from_devpi() {
    let scene = Scene::new();
    let devpi = Devpi::start();
    devpi.upload_all(scene.corpus.path());
    let url = devpi.index_url();
    let arguments = ["--pull", "--upstream", &url].map(OsStr::new);
    let mirror = Mirror::serving_with(scene.data.path(), &arguments);
    let index = mirror.index_url(ORIN);
    let fetched = Pip::v22_0_2().download(&index, JETPACK_6, "puredemo");
    assert_eq!(fetched.names, [PURE], "{}", fetched.said);
    assert_eq!(fetched.bytes(PURE), scene.bytes(PURE));
    let installed = Uv::install(&index, JETPACK_6, "puredemo");
    assert_eq!(installed.names, ["puredemo-1.2.dist-info"], "{}", installed.said);
    // The page is what puts it on the queue.
    until("the listed wheel", || (!listed(&page(&mirror, "bigdemo").1).is_empty()).then_some(()));
    let fetched = Pip::newest().download(&index, JETPACK_6, "bigdemo");
    assert_eq!(fetched.names, [BIG], "{}", fetched.said);
    let installed = Uv::install(&index, JETPACK_6, "bigdemo");
    assert_eq!(installed.names, ["bigdemo-1.0.dist-info"], "{}", installed.said);
    until("the verdict", || page(&mirror, "baddemo").1.to_string().contains("sm_87").then_some(()));
    let fetched = Pip::newest().download(&index, JETPACK_6, "baddemo");
    assert!(!fetched.done && fetched.names.is_empty(), "{}", fetched.said);
}

/// Off by default: a mirror of the same store asks nobody.
#[test]
fn without_the_flag_nobody_is_asked() {
    let scene = Scene::new();
    scene.know(BIG);
    let mirror = scene.mirror("enabled = false");
    assert_eq!(page(&mirror, "puredemo").0.status, 404);
    assert_eq!(get(&base(&mirror), &scene.target(BIG), &[]).status, 404);
    assert_eq!(scene.upstream.seen(), []);
}
