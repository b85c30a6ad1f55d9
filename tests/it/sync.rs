//! `sync` against an upstream in this process that errs on request, and against a real devpi-server.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;
use jetwheel::store::Store;
use serde_json::{Value, json};

use crate::support::devpi::Devpi;
use crate::support::upstream::{Fault, Upstream};
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const THOR: &str = "thor-jp7.0";

/// A wheel with code for some GPUs.
fn wheel(version: &str, python: &str, cuda: &str, images: &[&str]) -> Value {
    json!({"filename": filename(version, python), "elfs": [{"path": "demo/_C.so", "cuda": cuda, "fatbins": [images]}]})
}

fn filename(version: &str, python: &str) -> String {
    format!("demo-{version}-{python}-{python}-linux_aarch64.whl")
}

fn orin_wheel(version: &str) -> Value {
    wheel(version, "cp310", "12.6", &["sm_87"])
}

/// A folder with wheels.
pub(crate) fn wheels(specs: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_wheels(specs, folder.path());
    folder
}

/// A site: a data folder and a configuration, whose client does not wait long between two tries.
pub(crate) struct Site {
    pub(crate) folder: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::kept_in("")
    }

    /// With settings that say what its store is kept in.
    pub(crate) fn kept_in(settings: &str) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        site.configure(settings);
        site
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn configure(&self, more: &str) {
        let text = format!("{more}\n[network]\nbackoff_ms = 1\nretries = 3\n");
        fs_err::write(self.config(), text).unwrap();
    }

    /// The binary with the configuration of this site.
    pub(crate) fn jetwheel(&self) -> std::process::Command {
        let mut command = jetwheel(&self.data());
        command.arg("--config").arg(self.config());
        command.env("HOME", self.folder.path()).env_remove("NETRC");
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(proxy);
        }
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = self.jetwheel();
        command.arg("sync").args(arguments);
        command
    }

    /// Runs a pass that must end with an exit code; yields its report.
    pub(crate) fn sync(&self, code: i32, arguments: &[&str]) -> Value {
        report_of(code, &mut self.command(arguments))
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.data()).unwrap()
    }
}

/// Runs a command that must end with an exit code; yields its report.
pub(crate) fn report_of(code: i32, command: &mut std::process::Command) -> Value {
    let output = command.args(["--format", "json"]).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(!said.contains("panic"), "{said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// One field of each member of a list in a report.
pub(crate) fn each(report: &Value, list: &str, field: &str) -> Vec<String> {
    let members = report[list].as_array().unwrap().iter();
    members.map(|member| member[field].as_str().unwrap_or_default().to_owned()).collect()
}

/// Every held file of the store has the bytes of its digest.
pub(crate) fn assert_whole(store: &Store) -> Vec<String> {
    let mut held = Vec::new();
    for project in store.projects(false).unwrap() {
        for row in store.rows(&project).unwrap() {
            if row.held {
                let bytes = fs_err::read(store.blob(&row.facts.sha256)).unwrap();
                assert_eq!(Sha256::of(&bytes), row.facts.sha256, "{}", row.facts.file);
                assert!(store.metadata(&row.facts.sha256).unwrap().is_some());
                held.push(row.facts.file.clone());
            }
        }
    }
    held.sort();
    held
}

#[test]
fn takes_the_newest_version_that_the_device_runs_and_never_downloads_again() {
    let folder =
        wheels(&json!([orin_wheel("1.0"), orin_wheel("2.0"), wheel("3.0", "cp310", "12.6", &["sm_80"])]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let arguments = ["--device", ORIN, "--upstream", &url, "demo"];

    let report = site.sync(0, &arguments);
    assert_eq!(each(&report, "kept", "file"), [filename("2.0", "cp310")]);
    assert_eq!(each(&report, "refused", "file"), [filename("3.0", "cp310")]);
    assert_eq!(report["refused"][0]["reasons"][0]["code"], "no-kernel-image");
    assert_eq!(report["downloads"], 2);
    let expected = ["3.0", "2.0"].map(|version| format!("/f/{}", filename(version, "cp310")));
    assert_eq!(upstream.fetched(), expected);
    assert_eq!(assert_whole(&site.store()), [filename("2.0", "cp310")]);

    let report = site.sync(0, &arguments);
    assert_eq!(each(&report, "kept", "file"), [filename("2.0", "cp310")]);
    assert_eq!(each(&report, "refused", "file"), [filename("3.0", "cp310")]);
    let seen = upstream.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].headers.contains_key("if-none-match"));

    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "--keep", "2", "demo"]);
    assert_eq!(each(&report, "kept", "version"), ["2.0", "1.0"]);
    assert_eq!(upstream.fetched(), [format!("/f/{}", filename("1.0", "cp310"))]);
}

#[test]
fn facts_of_a_refused_wheel_are_enough_to_know_that_another_device_takes_it() {
    let folder = wheels(&json!([
        {"filename": "demo-1.0-py3-none-linux_aarch64.whl", "elfs": [{"path": "demo/a.so", "cuda": "12.6", "fatbins": [["sm_87"]]}]},
    ]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(1, &["--device", THOR, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "missing", "device"), [THOR]);
    assert_eq!(report["missing"][0]["nearest"]["file"], "demo-1.0-py3-none-linux_aarch64.whl");
    assert!(assert_whole(&site.store()).is_empty());

    let planned = site.sync(0, &["--device", ORIN, "--upstream", &url, "--dry-run", "demo"]);
    assert_eq!(planned["planned"][0]["why"], "admitted");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "kept", "device"), [ORIN]);
    assert_eq!(assert_whole(&site.store()).len(), 1);
}

#[test]
fn devices_share_one_download_and_tags_cost_none() {
    let folder = wheels(&json!([
        {"filename": "demo-1.0-py3-none-any.whl", "files": {"demo.py": ""}},
        {"filename": "demo-2.0-cp39-cp39-linux_aarch64.whl"},
        {"filename": "demo-2.0-cp310-cp310-manylinux_2_28_x86_64.whl"},
        {"filename": "demo-3.0-py3-none-any.whl"},
    ]));
    let upstream = Upstream::serving(folder.path());
    upstream.change("demo-3.0-py3-none-any.whl", |file| {
        file.attributes = "data-requires-python=\"&gt;=3.13\"".to_owned();
    });
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--device", THOR, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "kept", "device"), [ORIN, THOR]);
    assert_eq!(upstream.fetched(), ["/f/demo-1.0-py3-none-any.whl"]);
    let skipped = |reason: &str| report["skipped"][reason].as_u64();
    assert_eq!(
        (skipped("python-tag"), skipped("platform-tag"), skipped("requires-python")),
        (Some(3), Some(1), Some(2)),
        "{report}"
    );
}

/// C21, and devpi#967.
#[test]
fn a_body_that_breaks_off_is_resumed_or_fetched_anew() {
    let folder = wheels(&json!([orin_wheel("1.0"), orin_wheel("2.0")]));
    let upstream = Upstream::serving(folder.path());
    let (first, second) = (filename("1.0", "cp310"), filename("2.0", "cp310"));
    upstream.change(&second, |file| file.faults.extend([Fault::BreakAfter(100), Fault::BreakAfter(50)]));
    upstream.change(&first, |file| {
        file.ranges = false;
        file.faults.extend([Fault::BreakAfter(100), Fault::Status(503)]);
    });
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--no-deps", "--device", ORIN, "--upstream", &url, "--keep", "2", "demo"]);
    assert_eq!(each(&report, "kept", "version"), ["2.0", "1.0"]);
    let seen = upstream.seen();
    let ranges = |name: &str| -> Vec<Option<String>> {
        let of_file = seen.iter().filter(|seen| seen.path.ends_with(name));
        of_file.map(|seen| seen.headers.get("range").cloned()).collect()
    };
    let range = |at: u64| Some(format!("bytes={at}-"));
    assert_eq!(ranges(&second), [None, range(100), range(150)]);
    assert_eq!(ranges(&first), [None, range(100), None]);
    assert!(
        seen.iter().all(|seen| seen.headers.contains_key("if-range") == seen.headers.contains_key("range"))
    );
    assert_eq!(assert_whole(&site.store()), [first, second]);
}

/// pip#14079: the rest of another file must not be put behind the beginning of the first.
#[test]
fn a_file_that_changes_while_it_is_resumed_is_fetched_anew() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving(folder.path());
    let name = filename("1.0", "cp310");
    upstream.change(&name, |file| {
        file.faults.push_back(Fault::BreakAfter(100));
        file.etag = "W/\"weak\"".to_owned();
    });
    let site = Site::new();
    site.sync(0, &["--no-deps", "--device", ORIN, "--upstream", &upstream.url("/simple/"), "demo"]);
    assert!(upstream.seen().iter().all(|seen| !seen.headers.contains_key("range")));
    assert_eq!(assert_whole(&site.store()), [name]);
}

/// C22, and vs-jetpack#380.
#[test]
fn an_empty_body_is_refused_with_both_digests_and_older_files_stay() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let arguments = ["--device", ORIN, "--upstream", &url, "demo"];
    site.sync(0, &arguments);

    upstream.add_all(wheels(&json!([orin_wheel("2.0")])).path());
    let name = filename("2.0", "cp310");
    upstream
        .change(&name, |file| file.faults.extend([Fault::Empty, Fault::Empty, Fault::Empty, Fault::Empty]));
    let report = site.sync(3, &arguments);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);
    let reason = &report["refused"][0]["reasons"][0];
    assert_eq!(reason["code"], "hash-mismatch");
    assert_eq!(reason["found"], json!([Sha256::of(b"").to_string()]));
    assert!(reason["text"].as_str().unwrap().contains(reason["wanted"][0].as_str().unwrap()));
    assert_eq!(each(&report, "incidents", "kind"), ["hash-mismatch"]);
    assert_eq!(assert_whole(&site.store()), [filename("1.0", "cp310")]);

    upstream.change(&name, |file| file.faults.clear());
    assert_eq!(each(&site.sync(0, &arguments), "kept", "version"), ["2.0"]);
}

/// C23, and piwheels/packages#32.
#[test]
fn other_bytes_under_the_same_name_are_an_incident_not_an_update() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let other = wheels(&json!([wheel("1.0", "cp310", "12.6", &["sm_87", "sm_80"])]));
    for flat in [false, true] {
        let upstream = Upstream::serving(folder.path());
        if flat {
            upstream.make_flat("/redist/");
        }
        let site = Site::new();
        let url = upstream.url(if flat { "/redist/" } else { "/simple/" });
        let arguments = ["--device", ORIN, "--upstream", &url, "demo"];
        let first = site.sync(0, &arguments)["kept"][0]["sha256"].clone();
        upstream.add_all(other.path());
        upstream.seen();
        let report = site.sync(0, &arguments);
        assert_eq!(report["kept"][0]["sha256"], first);
        assert!(upstream.fetched().is_empty());
        if !flat {
            assert_eq!(each(&report, "incidents", "kind"), ["changed-file"]);
            assert!(report["incidents"][0]["text"].as_str().unwrap().contains(first.as_str().unwrap()));
        }
    }
}

/// C25, and devpi#569.
#[test]
fn a_file_that_is_gone_upstream_stays_and_is_marked() {
    let folder = wheels(&json!([orin_wheel("1.0"), orin_wheel("2.0")]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let arguments = ["--device", ORIN, "--upstream", &url, "demo"];
    site.sync(0, &arguments);
    let name = filename("2.0", "cp310");
    let bytes = fs_err::read(folder.path().join(&name)).unwrap();
    upstream.remove(&name);
    upstream.seen();

    let report = site.sync(0, &arguments);
    assert_eq!(report["gone"], json!([name]));
    assert_eq!(each(&report, "kept", "version"), ["2.0"]);
    assert!(upstream.fetched().is_empty(), "no older version comes in for it");
    let row = |store: Store| store.row(&Sha256::of(&bytes)).unwrap().unwrap();
    assert!(row(site.store()).provenance.gone_since.is_some());

    upstream.add(&name, bytes.clone());
    site.sync(0, &arguments);
    assert_eq!(row(site.store()).provenance.gone_since, None);
}

/// C07 and C09, and pip#12033.
#[test]
fn encoded_links_and_query_strings_reach_the_upstream_unchanged() {
    let name = "demo-1.0+cu126-cp310-cp310-linux_aarch64.whl";
    let folder = wheels(&json!([{"filename": name, "files": {"demo.py": ""}}]));
    let upstream = Upstream::serving(folder.path());
    upstream.change(name, |file| {
        file.query = "?sig=abc".to_owned();
        file.attributes = "data-core-metadata=\"true\" data-requires-python=\"&gt;=3.8\"".to_owned();
        file.metadata = Some(
            b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0+cu126\nRequires-Dist: extra-thing\n".to_vec(),
        );
    });
    let site = Site::new();
    let report =
        site.sync(0, &["--no-deps", "--device", ORIN, "--upstream", &upstream.url("/simple/"), "demo"]);
    assert_eq!(each(&report, "kept", "file"), [name]);
    // C15: the metadata beside the wheel lies; the wheel's own counts.
    assert_eq!(each(&report, "incidents", "kind"), ["metadata-mismatch"]);
    let paths: Vec<String> = upstream.seen().into_iter().map(|seen| seen.path).collect();
    let encoded = "demo-1.0%2Bcu126-cp310-cp310-linux_aarch64.whl";
    assert_eq!(
        paths,
        [
            "/simple/demo/".to_owned(),
            format!("/f/{encoded}?sig=abc"),
            format!("/f/{encoded}.metadata?sig=abc")
        ]
    );
    let store = site.store();
    let row = &store.rows(&"demo".parse().unwrap()).unwrap()[0];
    assert_eq!(row.provenance.url.as_deref(), Some(upstream.url(&format!("/f/{encoded}")).as_str()));
    assert!(row.facts.requires_dist.is_empty());
}

#[test]
fn metadata_beside_a_wheel_spares_its_download() {
    let folder = wheels(&json!([{"filename": "demo-1.0-py3-none-any.whl", "requires_python": ">=3.13"}]));
    let upstream = Upstream::serving(folder.path());
    upstream.change("demo-1.0-py3-none-any.whl", |file| {
        file.attributes = "data-dist-info-metadata=\"true\"".to_owned();
        file.metadata =
            Some(b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Python: >=3.13\n".to_vec());
    });
    let site = Site::new();
    let report = site.sync(1, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "demo"]);
    assert_eq!(report["missing"][0]["nearest"]["reasons"][0]["code"], "requires-python");
    assert!(upstream.fetched().is_empty());
}

/// The expected bytes are what Python's zipfile reads.
#[test]
fn metadata_is_read_from_the_end_of_a_large_wheel_by_ranges() {
    use jetwheel::upstream::{Client, Link, MetadataSource, Options, fetch_metadata};
    let folder = wheels(&json!([
        {"filename": "demo-1.0-py3-none-any.whl", "requires_dist": ["torch==2.8.0"],
            "elfs": [{"path": "demo/a.so", "cuda": "12.6", "payload": 300_000, "fatbins": [["sm_87"]]}]},
    ]));
    let name = "demo-1.0-py3-none-any.whl";
    let path = folder.path().join(name);
    let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); sys.stdout.buffer.write(z.read('demo-1.0.dist-info/METADATA'))";
    let expected =
        std::process::Command::new("python3").args(["-c", script]).arg(&path).output().unwrap().stdout;
    let upstream = Upstream::serving(folder.path());
    let url = upstream.url(&format!("/f/{name}"));
    let link = Link { file: jetwheel::simple::FileLink::new(name, url.clone()), url: url.parse().unwrap() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The client wants a TLS provider even for plain http; the binary installs it at its start.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let client = Client::new(Options::default()).unwrap();
    let fetch = || runtime.block_on(fetch_metadata(&client, &link)).unwrap();
    assert_eq!(fetch(), Some(MetadataSource::Inside(expected)));
    assert!(upstream.seen().iter().all(|seen| seen.headers.contains_key("range")));

    upstream.change(name, |file| file.ranges = false);
    assert_eq!(fetch(), None);
}

/// C26: devpi#1041, artifact-keeper#2310, #1130.
#[test]
fn the_url_of_an_index_may_have_any_of_its_usual_forms() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let name = filename("1.0", "cp310");
    for (pages, given) in [
        ("/jp6/cu126/+simple/", "/jp6/cu126"),
        ("/jp6/cu126/+simple/", "/jp6/cu126/+simple"),
        ("/whl/cu126/", "/whl/cu126"),
        ("/api/simple/", "/api/"),
        ("/api/simple/", "/api/simple"),
    ] {
        let upstream = Upstream::serving(folder.path());
        upstream.move_to(pages);
        let site = Site::new();
        let report = site.sync(0, &["--device", ORIN, "--upstream", &upstream.url(given), "demo"]);
        assert_eq!(each(&report, "kept", "file"), std::slice::from_ref(&name), "{pages} {given}");
        assert!(upstream.seen().iter().all(|seen| !seen.path.contains("simple/simple")), "{pages} {given}");
    }
    let upstream = Upstream::serving(folder.path());
    upstream.make_flat("/redist/jp/v61/");
    let site = Site::new();
    let url = upstream.url("/redist/jp/v61");
    assert_eq!(each(&site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]), "kept", "file"), [name]);

    // A root listing that is missing matters only to those who need it.
    let upstream = Upstream::serving(folder.path());
    upstream.page_faults([Fault::Status(404)]);
    let output =
        site.command(&["--device", ORIN, "--upstream", &upstream.url("/simple/"), "--all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        said(&output).contains("there is no list of all projects; name the projects instead"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_whole_upstream_can_be_taken() {
    let folder = wheels(&json!([orin_wheel("1.0"), {"filename": "other-1.0-py3-none-any.whl"}]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let report = site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "--all"]);
    assert_eq!(each(&report, "kept", "project"), ["demo", "other"]);
}

#[test]
fn errors_that_pass_are_waited_out_and_others_do_not_stop_the_rest() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving(folder.path());
    upstream.page_faults([Fault::Status(503), Fault::Status(429)]);
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);

    let site = Site::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let down = format!("http://{}/simple/", silent.local_addr().unwrap());
    drop(silent);
    let report = site.sync(3, &["--device", ORIN, "--upstream", &down, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);
    assert_eq!(each(&report, "unreachable", "kind"), ["page"]);
    assert!(assert_whole(&site.store()).len() == 1);

    // A file that stays out of reach brings no older version in, and removes nothing.
    upstream.add_all(wheels(&json!([orin_wheel("2.0"), orin_wheel("1.5")])).path());
    upstream.change(&filename("2.0", "cp310"), |file| file.faults.extend(vec![Fault::Status(503); 9]));
    upstream.seen();
    let report = site.sync(3, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "unreachable", "kind"), ["file"]);
    assert!(upstream.fetched().iter().all(|path| path.contains("2.0")));
    assert_eq!(assert_whole(&site.store()), [filename("1.0", "cp310")]);
}

#[test]
fn logins_go_to_their_host_alone_and_are_shown_nowhere() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let name = filename("1.0", "cp310");
    let upstream = Upstream::serving(folder.path());
    upstream.require("me:s3cret");
    let url = upstream.url("/simple/");
    let with_login = url.replace("://", "://me:s3cret@");

    let site = Site::new();
    let output = site.command(&["--device", ORIN, "--upstream", &url, "demo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("status 401"), "{}", said(&output));

    let output = site
        .command(&["--device", ORIN, "--upstream", &with_login, "demo"])
        .env("RUST_LOG", "trace")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let basic = "bWU6czNjcmV0";
    assert!(!said(&output).contains("s3cret") && !said(&output).contains(basic), "{}", said(&output));
    assert!(!format!("{:?}", site.store().rows(&"demo".parse().unwrap())).contains("s3cret"));

    let site = Site::new();
    site.configure("[credentials.\"127.0.0.1\"]\nusername = \"me\"\npassword = \"s3cret\"");
    site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);

    let site = Site::new();
    fs_err::write(site.folder.path().join(".netrc"), "machine 127.0.0.1 login me password s3cret\n").unwrap();
    site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);

    // A redirect to another host takes no login along.
    let elsewhere = Upstream::serving(folder.path());
    let place = elsewhere.url(&format!("/f/{name}")).replace("127.0.0.1", "localhost");
    upstream.change(&name, |file| file.faults.push_back(Fault::Redirect(place)));
    let site = Site::new();
    site.sync(0, &["--device", ORIN, "--upstream", &with_login, "demo"]);
    let seen = elsewhere.seen();
    assert_eq!(seen.len(), 1);
    assert!(!seen[0].headers.contains_key("authorization"));
    let agent = &seen[0].headers["user-agent"];
    assert_eq!(agent, &format!("jetwheel/{}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_private_authority_is_trusted_only_where_it_is_configured() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving_tls(folder.path());
    let url = upstream.url("/simple/");
    let site = Site::new();
    let report = site.sync(3, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert!(report["unreachable"][0]["text"].as_str().unwrap().contains("certificate"), "{report}");
    site.configure(&format!("ca = {:?}", crate::support::data("tls/ca.pem")));
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);

    // From there, nothing leads back to plain http.
    let plain = Upstream::serving(folder.path());
    upstream.page_faults([Fault::Redirect(plain.url("/simple/demo/"))]);
    let report = site.sync(3, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert!(report["unreachable"][0]["text"].as_str().unwrap().contains("from https to http"), "{report}");
    assert!(plain.seen().is_empty());

    site.configure("ca = \"gone.pem\"");
    site.command(&["--device", ORIN, "--upstream", &url, "demo"])
        .output()
        .map(|output| {
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        })
        .unwrap();
}

#[test]
fn the_proxy_of_the_environment_is_used() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    // No resolver knows this host: only a proxy can be asked for it.
    let mut command =
        site.command(&["--device", ORIN, "--upstream", "http://jetson.invalid/simple/", "demo"]);
    command.env("HTTP_PROXY", upstream.url("")).env("http_proxy", upstream.url(""));
    command.env_remove("NO_PROXY").env_remove("no_proxy");
    let report = report_of(0, &mut command);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);
}

#[test]
fn a_redirect_to_another_scheme_is_not_followed() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving(folder.path());
    upstream.page_faults([Fault::Redirect("file:///etc/hostname".to_owned())]);
    let site = Site::new();
    let report = site.sync(3, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "demo"]);
    assert!(report["unreachable"][0]["text"].as_str().unwrap().contains("not followed"), "{report}");
}

#[test]
fn a_dry_run_fetches_no_wheel_and_a_limit_stops_cleanly() {
    let folder = wheels(&json!([orin_wheel("1.0"), {"filename": "other-1.0-py3-none-any.whl"}]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let bytes = fs_err::metadata(folder.path().join(filename("1.0", "cp310"))).unwrap().len();

    let report =
        site.sync(0, &["--no-deps", "--device", ORIN, "--upstream", &url, "--dry-run", "demo", "other"]);
    assert_eq!(
        each(&report, "planned", "file"),
        [filename("1.0", "cp310"), "other-1.0-py3-none-any.whl".to_owned()]
    );
    assert_eq!(report["planned"][0]["size"], bytes);
    assert!(upstream.fetched().is_empty());

    let limit = bytes.to_string();
    // The plan stops where the pass would; a pass for a whole set fetches what is smallest first.
    for (way, within, over) in [
        (&["--no-deps"][..], filename("1.0", "cp310"), "other-1.0-py3-none-any.whl".to_owned()),
        (&[][..], "other-1.0-py3-none-any.whl".to_owned(), filename("1.0", "cp310")),
    ] {
        let mut asked = way.to_vec();
        asked.extend([
            "--device",
            ORIN,
            "--upstream",
            &url,
            "--dry-run",
            "--max-size",
            &limit,
            "demo",
            "other",
        ]);
        let report = site.sync(1, &asked);
        assert_eq!(each(&report, "planned", "file"), [within], "{way:?}");
        let row = &report["devices"][0];
        assert!(row["error"]["text"].as_str().unwrap().contains(&over), "{way:?}: {row}");
        assert_eq!(report["stopped_at_limit"], true);
    }
    assert!(upstream.fetched().is_empty());

    let report = site.sync(
        1,
        &[
            "--no-deps",
            "--device",
            ORIN,
            "--upstream",
            &url,
            "--jobs",
            "1",
            "--max-size",
            &limit,
            "demo",
            "other",
        ],
    );
    assert_eq!(each(&report, "kept", "project"), ["demo"]);
    assert_eq!(each(&report, "missing", "requirement"), ["other"]);
    assert_eq!(report["stopped_at_limit"], true);
    assert!(report["bytes"].as_u64().unwrap() <= bytes);

    let report = site.sync(0, &["--no-deps", "--device", ORIN, "--upstream", &url, "demo", "other"]);
    assert_eq!(report["downloads"], 1, "what was kept is not fetched again");
}

#[test]
fn vendor_pre_releases_count_when_only_they_exist() {
    let vendor = "2.5.0a0+872d972e41.nv24.08";
    let folder = wheels(&json!([orin_wheel(vendor)]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "kept", "version"), [vendor]);

    upstream.add_all(wheels(&json!([orin_wheel("2.4.0")])).path());
    let site = Site::new();
    assert_eq!(
        each(&site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]), "kept", "version"),
        ["2.4.0"]
    );
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo>=2.5.0a0"]);
    assert_eq!(each(&report, "kept", "version"), [vendor]);
    site.sync(1, &["--device", ORIN, "--upstream", &url, "demo==2.5.0"]);
}

#[test]
fn yanked_files_are_taken_only_when_pinned() {
    let folder = wheels(&json!([orin_wheel("1.0"), orin_wheel("2.0")]));
    let upstream = Upstream::serving(folder.path());
    upstream
        .change(&filename("2.0", "cp310"), |file| file.attributes = "data-yanked=\"bad build\"".to_owned());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo==2.0"]);
    assert_eq!(each(&report, "kept", "version"), ["2.0"]);
    let rows = site.store().rows(&"demo".parse().unwrap()).unwrap();
    assert_eq!(rows[0].provenance.yanked.as_deref(), Some("bad build"));

    upstream.change(&filename("1.0", "cp310"), |file| file.attributes = "data-yanked".to_owned());
    site.sync(1, &["--device", ORIN, "--upstream", &url, "demo"]);
    let rows = site.store().rows(&"demo".parse().unwrap()).unwrap();
    assert_eq!(rows[1].provenance.yanked.as_deref(), Some(""), "a later yank is taken over");
}

#[test]
fn the_sites_own_upstreams_are_read_over_the_built_in_ones() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let index = site.folder.path().join("index");
    fs_err::create_dir(&index).unwrap();
    // Nothing may leave the machine: all built-in upstreams of the device are switched off.
    let mut text = format!(
        "[[upstream]]\nname = \"site\"\nurl = \"{}\"\ndevices = [\"orin-*\"]\n",
        upstream.url("/simple/")
    );
    for name in ["jp6-cu126", "jp6-cu128", "jp6-cu129", "redist-v61", "root-pypi"] {
        writeln!(text, "[[upstream]]\nname = \"{name}\"\ndisabled = true").unwrap();
    }
    fs_err::write(index.join("site.toml"), text).unwrap();
    site.configure("index = \"index\"");
    let report = site.sync(0, &["--device", ORIN, "demo"]);
    assert_eq!(each(&report, "kept", "upstream"), ["site"]);
}

#[test]
fn a_requirements_file_is_read_and_markers_are_those_of_the_device() {
    let folder =
        wheels(&json!([orin_wheel("1.0"), orin_wheel("2.0"), {"filename": "other-1.0-py3-none-any.whl"}]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let file = site.folder.path().join("requirements.txt");
    fs_err::write(&file, "demo<2 \\\n  --hash=sha256:00\nother ; python_version >= '3.12'\n").unwrap();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "-r", file.to_str().unwrap()]);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let site = Site::new();
    for (arguments, text) in [
        (&["demo"][..], "name a device"),
        (&["--device", "orin-jp6.9", "--upstream", "http://127.0.0.1:9/", "demo"], "orin-jp6"),
        (&["--device", ORIN, "--upstream", "nowhere", "demo"], "jp6-cu126"),
        (&["--device", ORIN, "--upstream", "ftp://me:s3cret@host.test/", "demo"], "http or https"),
        (&["--device", ORIN, "--upstream", "http://127.0.0.1:9/", "demo !"], "is no requirement"),
        (&["--device", ORIN, "--upstream", "http://127.0.0.1:9/"], "nothing is asked for"),
        (&["--device", ORIN, "--upstream", "http://127.0.0.1:9/", "-r", "gone.txt"], "gone.txt"),
    ] {
        let output = site.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(text) && !said(&output).contains("s3cret"), "{}", said(&output));
    }
}

#[test]
fn what_is_no_zip_is_refused_as_damaged_and_not_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let name = filename("1.0", "cp310");
    fs_err::write(folder.path().join(&name), b"PK no zip at all").unwrap();
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    for downloads in [1, 0] {
        let report = site.sync(1, &["--device", ORIN, "--upstream", &url, "demo"]);
        assert_eq!(report["refused"][0]["reasons"][0]["code"], "damaged");
        assert_eq!(report["downloads"], downloads);
    }
}

/// The report for people: pinned, and within 100 columns.
#[test]
fn the_report_for_people_fits_a_terminal() {
    let folder = wheels(&json!([orin_wheel("1.0"), wheel("2.0", "cp310", "12.6", &["sm_80"])]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let output = site
        .command(&["--no-deps", "--device", ORIN, "--upstream", &url, "demo", "absent"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for part in ["orin-jp6.2", "demo 1.0", "refuse", "sm_80", "no upstream lists absent"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Issue 1, done when 7: a kill at any moment loses nothing that was acknowledged.
#[test]
fn a_kill_at_any_moment_leaves_a_whole_store_and_the_next_pass_ends_normally() {
    let specs: Vec<Value> = (0..6)
        .map(|number| {
            json!({"filename": format!("p{number}-1.0-cp310-cp310-linux_aarch64.whl"),
                "elfs": [{"path": "p/_C.so", "cuda": "12.6", "payload": 200_000, "fatbins": [{"images": ["sm_87"], "count": 2}]}]})
        })
        .collect();
    let folder = wheels(&json!(specs));
    let upstream = Upstream::serving(folder.path());
    let url = upstream.url("/simple/");
    let projects = ["p0", "p1", "p2", "p3", "p4", "p5"];
    let arguments = [&["--device", ORIN, "--upstream", &url][..], &projects[..]].concat();
    let begin = Instant::now();
    Site::new().sync(0, &arguments);
    let whole = begin.elapsed();
    for moment in 0..20_u32 {
        let site = Site::new();
        let mut child = site
            .command(&arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // The moments are spread over a whole pass, each with a random part.
        let random =
            std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), moment) % 100;
        let at = whole * (moment * 100 + u32::try_from(random).unwrap()) / 2000;
        let deadline = Instant::now() + at.min(Duration::from_secs(20));
        while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _already_ended = child.kill();
        child.wait().unwrap();
        if site.data().is_dir() {
            assert_whole(&site.store());
        }
        let report = site.sync(0, &arguments);
        assert_eq!(each(&report, "kept", "project"), projects, "killed after {at:?}");
        assert_eq!(assert_whole(&site.store()).len(), projects.len());
    }
}

/// The software behind the Jetson index: pages below `+simple/`, relative links, digests, no sizes.
#[test]
fn a_real_devpi_is_an_upstream() {
    let folder = wheels(&json!([
        orin_wheel("1.0+cu126"),
        wheel("2.0", "cp312", "13.0", &["sm_110"]),
        wheel("3.0", "cp310", "12.6", &["sm_80"]),
    ]));
    let devpi = Devpi::start();
    devpi.upload_all(folder.path());
    let site = Site::new();
    let index = devpi.index_url();
    let without_simple = index.trim_end_matches("+simple/").to_owned();
    for url in [&index, &without_simple] {
        let report = site.sync(0, &["--device", ORIN, "--device", THOR, "--upstream", url, "demo"]);
        assert_eq!(each(&report, "kept", "version"), ["1.0+cu126", "2.0"], "{report}");
    }
    assert_eq!(assert_whole(&site.store()).len(), 2);
    assert_eq!(
        each(&site.sync(0, &["--device", ORIN, "--upstream", &index, "--all"]), "kept", "project"),
        ["demo"]
    );
}

/// A file that a page links to lies outside of what the page's host may name: nothing of it is read.
#[test]
fn links_to_other_schemes_are_dropped() {
    let folder = wheels(&json!([orin_wheel("1.0")]));
    let upstream = Upstream::serving(folder.path());
    upstream.change(&filename("1.0", "cp310"), |file| {
        file.attributes = format!("></a><a href=\"file:///{}\"", filename("9.0", "cp310"));
    });
    let site = Site::new();
    let report = site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "demo"]);
    assert_eq!(each(&report, "kept", "version"), ["1.0"]);
    assert!(Path::new(&site.data()).is_dir());
}

#[test]
fn the_nearest_miss_is_one_for_the_same_kind_of_machine() {
    let names = [
        "demo-3.0-cp310-cp310-macosx_11_0_arm64.whl",
        "demo-3.0-cp310-cp310-win_amd64.whl",
        "demo-3.0-cp310-cp310-manylinux_2_28_x86_64.whl",
        "demo-2.0-cp311-cp311-manylinux_2_28_aarch64.whl",
        "demo-2.0-cp310-cp310-macosx_11_0_arm64.whl",
        "demo-1.0-cp311-cp311-manylinux_2_28_aarch64.whl",
    ];
    let folder = wheels(&Value::Array(names.iter().map(|name| json!({"filename": name})).collect()));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let alone = site.sync(1, &["--no-deps", "--device", ORIN, "--upstream", &url, "demo"]);
    assert_eq!(alone["missing"][0]["nearest"]["file"], names[3], "{alone}");
    let set = site.sync(1, &["--device", ORIN, "--upstream", &url, "demo"]);
    let told = set["missing"][0]["text"].as_str().unwrap();
    assert!(told.contains("cp311") && !told.contains("macosx") && !told.contains("win_amd64"), "{told}");
}
