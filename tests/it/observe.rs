//! What an operator watches: metrics, request ids, logs. The judge of metrics is the parser of Prometheus's Python client.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::http::{self, Answer};
use crate::support::make_wheels;
use crate::support::mirror::Mirror;
use crate::support::upstream::Upstream;

const ORIN: &str = "orin-jp6.2";

/// Prints every sample as a line of name and labels in order, a tab, and the value.
const PARSE: &str = r#"
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation and family.type != "unknown", family
    for sample in family.samples:
        labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
        print(f"{sample.name}{{{labels}}}\t{sample.value}")
"#;

fn get(mirror: &Mirror, path: &str, headers: &[(&str, &str)]) -> Answer {
    http::get(&mirror.url(""), path, headers)
}

/// Names with their labels, and values as the parser prints them.
struct Samples(Vec<(String, String)>);

impl Samples {
    fn of(mirror: &Mirror) -> Self {
        let answer = get(mirror, "/metrics", &[]);
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("content-type"),
            Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
        );
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients/prometheus/bin/python");
        let mut parser = Command::new(python);
        parser.args(["-c", PARSE]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut parser = parser.spawn().expect("./ci.sh test installs prometheus-client");
        parser.stdin.take().unwrap().write_all(&answer.body).unwrap();
        let output = parser.wait_with_output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{err}\n{}", answer.text());
        let sample = |line: &str| {
            let (name, value) = line.split_once('\t').unwrap();
            (name.to_owned(), value.to_owned())
        };
        Self(out.lines().map(sample).collect())
    }

    fn value(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("no {name} among {:#?}", self.0), |(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> f64 {
        self.value(name).parse().unwrap()
    }
}

fn site() -> (tempfile::TempDir, Mirror) {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    fs_err::create_dir_all(&wheels).unwrap();
    let desktop = json!([{"path": "deskgpu/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.6",
        "fatbins": [{"images": ["sm_90"], "count": 2}]}]);
    make_wheels(
        &json!([
            {"filename": "demo-1.0-py3-none-any.whl", "files": {"demo/__init__.py": ""}},
            {"filename": "deskgpu-1.0-cp310-cp310-linux_aarch64.whl", "elfs": desktop},
        ]),
        &wheels,
    );
    let data = dir.path().join("data");
    let mut add = crate::support::jetwheel(&data);
    let added = add.arg("add").arg(&wheels).output().unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let mirror = Mirror::serving(&data);
    (dir, mirror)
}

/// The URL path of the only file of a project, whether it is listed or not.
fn file_of(mirror: &Mirror, project: &str) -> String {
    let known = get(mirror, &format!("/{ORIN}/explain/{project}"), &[]);
    let known: Value = serde_json::from_slice(&known.body).unwrap();
    let file = &known["files"][0];
    format!("/{ORIN}/files/{}/{}", file["sha256"].as_str().unwrap(), file["file"].as_str().unwrap())
}

#[test]
fn metrics_count_what_was_asked_and_answered() {
    let (_dir, mirror) = site();
    let page = get(&mirror, &format!("/{ORIN}/simple/demo/"), &[]);
    assert_eq!(page.status, 200);
    get(&mirror, &format!("/{ORIN}/simple/demo/"), &[]);
    let wheel = get(&mirror, &file_of(&mirror, "demo"), &[]);
    let metadata = [0, 1].map(|_| get(&mirror, &format!("{}.metadata", file_of(&mirror, "demo")), &[]).body);
    assert!(metadata[0] == metadata[1] && metadata[0].starts_with(b"Metadata-Version"));
    assert_eq!(get(&mirror, &file_of(&mirror, "deskgpu"), &[]).status, 403);
    for number in 0..20 {
        assert_eq!(get(&mirror, &format!("/no/such/page/{number}"), &[]).status, 404);
    }
    let samples = Samples::of(&mirror);
    let requests = |route: &str, status: u16| {
        samples.value(&format!("jetwheel_http_requests_total{{method=GET,route={route},status={status}}}"))
    };
    assert_eq!([requests("project", 200), requests("wheel", 200), requests("wheel", 403)], ["2", "1", "1"]);
    assert_eq!(requests("none", 404), "20", "a client cannot make series");
    let sent = f64::from(u32::try_from(wheel.body.len()).unwrap());
    assert!(samples.number("jetwheel_http_sent_bytes_total{route=wheel}") >= sent);
    assert_eq!(samples.value("jetwheel_http_request_duration_seconds_count{route=project}"), "2");
    assert_eq!(samples.value("jetwheel_files_refused_total{code=no-kernel-image}"), "1");
    assert_eq!(samples.value("jetwheel_verdicts_total{code=no-kernel-image,verdict=refuse}"), "1");
    assert_eq!(samples.value("jetwheel_verdicts_total{code=,verdict=admit}"), "1");
    assert!(samples.number("jetwheel_cache_requests_total{cache=pages,result=hit}") >= 1.0);
    assert!(samples.number("jetwheel_cache_requests_total{cache=metadata,result=hit}") >= 1.0);
    assert_eq!(samples.value("jetwheel_store_wheels{}"), "2");
    assert!(samples.number("jetwheel_store_size_bytes{}") >= sent);
    assert!(samples.number("jetwheel_store_free_bytes{}") > 0.0);
    assert_eq!(samples.value("jetwheel_store_snapshots{}"), "1");
    assert_eq!(
        [samples.value("jetwheel_store_recovered{}"), samples.value("jetwheel_policy_broken{}")],
        ["0", "0"]
    );
    assert_eq!(samples.value("jetwheel_http_connections{}"), "1", "the one that asks");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(samples.value(&format!("jetwheel_build_info{{version={version}}}")), "1");
    for name in ["process_resident_memory_bytes{}", "process_open_fds{}", "process_max_fds{}"] {
        assert!(samples.number(name) > 0.0, "{name}");
    }
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let started = samples.number("process_start_time_seconds{}");
    assert!(started <= now && now - started < 3600.0, "{started} {now}");
}

#[test]
fn upstreams_have_an_age() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = jetwheel::store::Store::open(&data).unwrap();
    store.put_reached([("jp6-cu126", true), ("nvidia", false)]).unwrap();
    drop(store);
    let mirror = Mirror::serving(&data);
    let samples = Samples::of(&mirror);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let reached = samples.number("jetwheel_upstream_last_reached_timestamp_seconds{upstream=jp6-cu126}");
    assert!(reached <= now && now - reached < 3600.0, "{reached} {now}");
    assert_eq!(samples.value("jetwheel_upstream_last_reached_timestamp_seconds{upstream=nvidia}"), "0.0");
    assert_eq!(samples.value("jetwheel_upstream_failing{upstream=nvidia}"), "1");
    assert_eq!(samples.value("jetwheel_upstream_failing{upstream=jp6-cu126}"), "0");
}

#[test]
fn a_request_has_one_id_in_its_answer_and_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let json = ["--log-format", "json"].map(OsStr::new);
    let mut mirror = Mirror::serving_with(&dir.path().join("data"), &json);
    let given = get(&mirror, "/healthz", &[("X-Request-Id", "proxy-17")]);
    assert_eq!(given.header("x-request-id"), Some("proxy-17"));
    let forged = get(&mirror, "/nowhere?token=secret", &[("X-Request-Id", "a {\"level\":\"ERROR\"}")]);
    let ours = forged.header("x-request-id").unwrap().to_owned();
    assert!(ours.len() == 16 && ours.bytes().all(|byte| byte.is_ascii_hexdigit()), "{ours}");
    let posted = http::send(&mirror.url(""), "POST", "/nowhere", &[], b"");
    assert!(posted.header("x-request-id").is_some());
    let log = mirror.stop();
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |id: &str| {
        lines.iter().find(|line| line["request_id"] == id).unwrap_or_else(|| panic!("no {id} in {log}"))
    };
    assert_eq!(of("proxy-17")["message"], "request");
    assert_eq!((&of(&ours)["status"], &of(&ours)["path"]), (&json!(404), &json!("/nowhere")));
    assert!(!log.contains("secret"), "{log}");
}

/// A mirror that pulls, knows upstreams, judged wheels and took an upload: all series that there can be.
fn busy(dir: &Path) -> (Upstream, Mirror) {
    let (wheels, data) = (dir.join("wheels"), dir.join("data"));
    fs_err::create_dir_all(&wheels).unwrap();
    make_wheels(
        &json!([
            {"filename": "demo-1.0-py3-none-any.whl", "files": {"demo/__init__.py": ""}},
            {"filename": "far-1.0-py3-none-any.whl"},
        ]),
        &wheels,
    );
    let added =
        crate::support::jetwheel(&data).arg("add").arg(wheels.join("demo-1.0-py3-none-any.whl")).output();
    assert!(added.unwrap().status.success());
    let store = jetwheel::store::Store::open(&data).unwrap();
    store.put_reached([("jp6-cu126", true)]).unwrap();
    drop(store);
    let upstream = Upstream::serving(&wheels);
    let url = upstream.url("/simple/");
    let mirror = Mirror::serving_with(&data, &["--pull", "--upstream", &url].map(OsStr::new));
    let token = crate::support::jetwheel(&data).args(["token", "create", "ci", "--scope", "upload"]).output();
    let token = String::from_utf8(token.unwrap().stdout).unwrap();
    let refused = http::send(
        &mirror.url(""),
        "POST",
        "/legacy/",
        &[("Authorization", &format!("Bearer {}", token.trim()))],
        b"no form",
    );
    assert_eq!(refused.status, 400);
    (upstream, mirror)
}

#[test]
fn pulls_and_uploads_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, mirror) = busy(dir.path());
    let page = get(&mirror, &format!("/{ORIN}/simple/far/"), &[]);
    let link =
        page.text().split("href=\"").nth(1).and_then(|rest| rest.split('#').next()).unwrap().to_owned();
    let wheel = get(&mirror, &format!("/{ORIN}/{}", link.trim_start_matches("../")), &[]);
    assert_eq!(wheel.status, 200, "{link}");
    get(&mirror, &format!("/{ORIN}/simple/far/"), &[]);
    let samples = Samples::of(&mirror);
    assert_eq!(samples.number("jetwheel_pull_file_misses_total{}").to_string(), "1");
    assert_eq!(samples.number("jetwheel_pull_file_fetches_total{}").to_string(), "1");
    let fetched = samples.number("jetwheel_pull_fetched_bytes_total{}").to_string();
    assert_eq!(fetched, wheel.body.len().to_string());
    assert!(samples.number("jetwheel_pull_page_fetches_total{}") >= 1.0);
    assert_eq!(samples.number("jetwheel_pull_in_flight{}").to_string(), "0");
    assert_eq!(samples.number("jetwheel_uploads_total{result=refused}").to_string(), "1");
    assert_eq!(samples.number("jetwheel_uploaded_bytes_total{}").to_string(), "0");
    let (_plain, plain) = site();
    let plain = Samples::of(&plain);
    assert!(plain.0.iter().all(|(name, _)| !name.starts_with("jetwheel_pull_")), "where nothing is pulled");
}

/// Names of metrics in a text, as Prometheus has them.
fn names_in(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words
        .filter(|word| {
            ["jetwheel_", "process_"].iter().any(|start| word.len() > start.len() && word.starts_with(start))
        })
        .map(str::to_owned)
        .collect()
}

/// The dashboard, the alerts and the table of metrics speak of what a mirror really has, and the table of all of it.
#[test]
fn every_metric_that_is_spoken_of_is_there_and_the_other_way_round() {
    let dir = tempfile::tempdir().unwrap();
    let (_upstream, mirror) = busy(dir.path());
    get(&mirror, &format!("/{ORIN}/simple/demo/"), &[]);
    let desk = site();
    assert_eq!(get(&desk.1, &file_of(&desk.1, "deskgpu"), &[]).status, 403);
    let mut known: std::collections::BTreeSet<String> = std::collections::BTreeSet::new();
    for samples in [Samples::of(&mirror), Samples::of(&desk.1)] {
        known.extend(samples.0.iter().map(|(name, _)| name.split('{').next().unwrap().to_owned()));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs_err::read_to_string(root.join(file)).unwrap();
    for file in ["packaging/grafana/jetwheel.json", "packaging/prometheus/jetwheel.rules.yml"] {
        let unknown: Vec<String> =
            names_in(&read(file)).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?} are not among {known:?}");
    }
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/jetwheel.json")).unwrap();
    assert!(
        dashboard["panels"].as_array().unwrap().iter().all(|panel| !panel["targets"][0]["expr"].is_null())
    );
    // A histogram is told by its name alone; `created` says when counting began.
    let told = names_in(&read("docs/OPERATING.md"));
    let family = |name: &str| {
        ["_bucket", "_count", "_sum", "_created"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name)
            .to_owned()
    };
    let families: std::collections::BTreeSet<String> = known.iter().map(|name| family(name)).collect();
    assert_eq!(families.difference(&told).collect::<Vec<_>>(), Vec::<&String>::new(), "are in no table");
    assert_eq!(told.difference(&families).collect::<Vec<_>>(), Vec::<&String>::new(), "are in no mirror");
}
