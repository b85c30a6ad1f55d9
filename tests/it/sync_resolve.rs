//! `sync` as resolving: whole sets for each device, what is inspected to find them, whose a project is, and losses.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;
use jetwheel::store::Provenance;
use jetwheel::wheel::Facts;
use serde_json::{Value, json};

use crate::support::clients::client_program;
use crate::support::devpi::Devpi;
use crate::support::http;
use crate::support::jetwheel;
use crate::support::mirror::Mirror;
use crate::support::site::Servers;
use crate::support::upstream::{Fault, Gate, Upstream};
use crate::sync::{Site, assert_whole, each, report_of, said, wheels};

const ORIN: &str = "orin-jp6.2";
const THOR: &str = "thor-jp7.0";

/// A pass that is killed while one wheel of a set is on its way has lost that one alone: the next does not fetch the others again.
#[test]
fn a_killed_pass_keeps_the_wheels_of_a_set_that_had_arrived() {
    for (name, settings) in Servers::start().pairs() {
        eprintln!("{name}");
        a_killed_pass_loses_one_wheel(&Site::kept_in(&settings));
    }
}

fn a_killed_pass_loses_one_wheel(site: &Site) {
    let names = ["app", "base", "kernels"].map(|name| format!("{name}-1.0-py3-none-linux_aarch64.whl"));
    let upstream = Upstream::serving(
        wheels(&json!([
            gpu("app", "1.0", "sm_87", &["kernels", "base"], 10),
            gpu("base", "1.0", "sm_87", &[], 10),
            gpu("kernels", "1.0", "sm_87", &[], 200_000),
        ]))
        .path(),
    );
    // Longer than what is read of a wheel's end for its metadata, which goes through.
    let gate = Gate::default();
    upstream.change(&names[2], |file| file.faults.extend((0..9).map(|_| Fault::Hold(100_000, gate.clone()))));
    let arguments = ["--device", ORIN, "--upstream", &upstream.url("/simple/"), "app"];
    let mut pass = site
        .command(&arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while arrived(&site.data().join("spool")).len() < 2 {
        assert!(began.elapsed() < Duration::from_mins(1), "fewer than 2 wheels arrived");
        assert!(pass.try_wait().unwrap().is_none(), "the pass waits for the third wheel");
        std::thread::sleep(Duration::from_millis(10));
    }
    pass.kill().unwrap();
    pass.wait().unwrap();
    gate.open();
    // One of those that are left is damaged: that one is fetched again.
    let left = arrived(&site.data().join("spool"));
    let damaged = left[0].file_stem().unwrap().to_str().unwrap().to_owned();
    assert_eq!(left.len(), 2);
    fs_err::write(&left[0], "damaged").unwrap();
    upstream.seen();
    let report = site.sync(0, &arguments);
    assert_eq!(packages(&report, 0).len(), 3, "{report}");
    let digest = |name: &str| {
        let packages = report["devices"][0]["packages"].as_array().unwrap();
        packages.iter().find(|one| one["file"] == name).unwrap()["sha256"].as_str().unwrap().to_owned()
    };
    let mut wanted: Vec<String> =
        names.iter().filter(|name| **name == names[2] || digest(name) == damaged).cloned().collect();
    let mut fetched: Vec<String> =
        upstream.fetched().iter().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect();
    wanted.sort();
    fetched.sort();
    fetched.dedup();
    assert_eq!(fetched, wanted);
    assert_eq!(report["downloads"], 2);
    let verified = report_of(0, site.jetwheel().arg("verify"));
    assert_eq!((&verified["blobs"], &verified["findings"]), (&json!(3), &json!([])), "{verified}");
    for folder in ["spool", "arrived"] {
        let left = arrived(&site.data().join(folder));
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The wheels in a folder, which may have one for each process, and what a crash left of them.
fn arrived(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).into_iter().flatten().map_while(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(arrived(&path));
        } else if path.extension().is_some_and(|extension| extension == "whl" || extension == "left") {
            found.push(path);
        }
    }
    found
}

/// A wheel of pure Python.
fn pure(name: &str, version: &str, requires: &[&str]) -> Value {
    json!({"filename": format!("{name}-{version}-py3-none-any.whl"), "requires_dist": requires,
        "files": {format!("{name}.py"): ""}})
}

/// A wheel with code for a GPU, and some weight.
fn gpu(name: &str, version: &str, image: &str, requires: &[&str], payload: u32) -> Value {
    json!({"filename": format!("{name}-{version}-py3-none-linux_aarch64.whl"), "requires_dist": requires,
        "elfs": [{"path": format!("{name}/_C.so"), "cuda": "12.6", "payload": payload, "fatbins": [[image]]}]})
}

fn packages(report: &Value, device: usize) -> Vec<String> {
    let packages = report["devices"][device]["packages"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    packages
        .map(|one| format!("{} {} {}", text(&one["name"]), text(&one["version"]), text(&one["state"])))
        .collect()
}

fn error(report: &Value, device: usize) -> &str {
    report["devices"][device]["error"]["text"].as_str().unwrap_or_default()
}

/// The set of the first test: one of each pair is not part of it.
fn closure() -> tempfile::TempDir {
    wheels(&json!([
        pure("app", "1.0", &["lib<2", "kernels", "windows-only; sys_platform == 'win32'"]),
        pure("lib", "1.0", &[]),
        pure("lib", "2.0", &[]),
        gpu("kernels", "1.0", "sm_87", &["base"], 10),
        pure("base", "3.0", &[]),
        pure("stranger", "1.0", &[]),
    ]))
}

#[test]
fn a_set_is_planned_without_a_download_and_then_fetched_as_it_is() {
    let upstream = Upstream::serving(closure().path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let plan = site.sync(0, &["--device", ORIN, "--upstream", &url, "app", "--dry-run"]);
    let set = ["app 1.0", "base 3.0", "kernels 1.0", "lib 1.0"];
    assert_eq!(packages(&plan, 0), set.map(|one| format!("{one} to inspect")));
    assert!(plan["devices"][0]["packages"].as_array().unwrap().iter().all(|one| one["size"].is_u64()));
    assert_eq!(plan["planned"].as_array().unwrap().len(), 4);
    assert!(upstream.fetched().is_empty());

    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "app"]);
    assert_eq!(packages(&report, 0), set.map(|one| format!("{one} fetched")));
    assert_eq!(report["downloads"], 4);
    assert_eq!(assert_whole(&site.store()).len(), 4);
    upstream.seen();
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "app"]);
    assert_eq!(packages(&report, 0), set.map(|one| format!("{one} held")));
    assert!(upstream.fetched().is_empty());

    let report = Site::new().sync(0, &["--device", ORIN, "--upstream", &url, "app", "--no-deps"]);
    assert_eq!(packages(&report, 0), ["app 1.0 fetched"]);
}

#[test]
fn the_smallest_is_inspected_first_and_its_refusal_spares_the_rest() {
    let folder = wheels(&json!([
        gpu("heavy", "2.0", "sm_87", &["light==2.0"], 40_000_000),
        gpu("heavy", "1.0", "sm_87", &["light==1.0"], 1_000),
        gpu("light", "2.0", "sm_110", &[], 10),
        gpu("light", "1.0", "sm_87", &[], 10),
    ]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let report = site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "heavy"]);
    assert_eq!(packages(&report, 0), ["heavy 1.0 fetched", "light 1.0 fetched"]);
    assert_eq!(each(&report, "refused", "file"), ["light-2.0-py3-none-linux_aarch64.whl"]);
    assert!(upstream.fetched().iter().all(|path| !path.contains("heavy-2.0")));
    let facts_alone = site.store().rows(&"light".parse().unwrap()).unwrap();
    assert!(facts_alone.iter().any(|row| !row.held && row.facts.file.contains("2.0")));
}

/// What torch for CUDA 13 pins, in small: the release of the runtime is enough to refuse it on a driver of 12.6.
#[test]
fn pins_labels_and_shipped_facts_rule_out_without_a_download() {
    let folder = wheels(&json!([
        gpu("pinned", "2.0", "sm_87", &["nvidia-cuda-runtime==13.0.96; platform_system == 'Linux'"], 10),
        gpu("labelled", "2.0+cu130", "sm_87", &[], 10),
        {"filename": "torch-2.9.1-cp312-cp312-manylinux_2_28_aarch64.whl"},
    ]));
    let upstream = Upstream::serving(folder.path());
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("index/facts/torch-2.9.1-cp312-cp312-manylinux_2_28_aarch64.json");
    let shipped: Facts = serde_json::from_str(&fs_err::read_to_string(shipped).unwrap()).unwrap();
    upstream.change(&shipped.file, |file| file.sha256 = Some(shipped.sha256));
    let site = Site::new();
    let url = upstream.url("/simple/");
    for (device, project, code) in
        [(ORIN, "pinned", "cuda-too-new"), (ORIN, "labelled", "cuda-too-new"), (THOR, "torch", "no-gpu-code")]
    {
        let report = site.sync(1, &["--device", device, "--upstream", &url, project]);
        assert_eq!(report["missing"][0]["nearest"]["reasons"][0]["code"], code, "{report}");
    }
    assert!(upstream.fetched().is_empty());
}

#[test]
fn a_device_without_a_set_is_told_why_and_the_others_go_on() {
    let folder = wheels(&json!([
        pure("app", "1.0", &["kernels==1.0"]),
        gpu("kernels", "1.0", "sm_110", &[], 10),
        gpu("kernels", "0.9", "sm_87", &[], 10),
    ]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(1, &["--device", ORIN, "--device", THOR, "--upstream", &url, "app"]);
    assert_eq!(report["devices"][0]["packages"], json!([]));
    assert!(error(&report, 0).contains("sm_110"), "{}", error(&report, 0));
    assert!(error(&report, 0).contains("orin-jp6.2"), "{}", error(&report, 0));
    assert_eq!(packages(&report, 1), ["app 1.0 fetched", "kernels 1.0 fetched"]);
    let output = site.command(&["--device", ORIN, "--upstream", &url, "app"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(text.matches("Nothing satisfies app").count(), 1, "{text}");
}

#[test]
fn older_versions_are_kept_with_sets_of_their_own() {
    let folder = wheels(&json!([
        pure("app", "2.0", &["lib==2.0"]),
        pure("app", "1.0", &["lib==1.0"]),
        pure("lib", "2.0", &[]),
        pure("lib", "1.0", &[]),
    ]));
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "--keep", "3", "app"]);
    assert_eq!(packages(&report, 0), ["app 2.0 fetched", "lib 2.0 fetched"]);
    assert_eq!(report["devices"][0]["older"][0][1]["version"], "1.0");
    assert_eq!(assert_whole(&site.store()).len(), 4);
}

/// C15, and `pulp_python#1101`: the file beside the wheel names what the wheel does not need.
#[test]
fn metadata_beside_a_wheel_that_lies_is_found_out() {
    for dependency in ["extra-thing", "lib"] {
        let folder = wheels(&json!([pure("app", "1.0", &[]), pure("lib", "1.0", &[])]));
        let upstream = Upstream::serving(folder.path());
        let lie = format!("Metadata-Version: 2.1\nName: app\nVersion: 1.0\nRequires-Dist: {dependency}\n");
        upstream.change("app-1.0-py3-none-any.whl", |file| {
            file.attributes = format!("data-core-metadata=\"sha256={}\"", Sha256::of(lie.as_bytes()));
            file.metadata = Some(lie.clone().into_bytes());
        });
        let site = Site::new();
        let report = site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "app"]);
        assert_eq!(packages(&report, 0), ["app 1.0 fetched"], "{dependency}");
        assert_eq!(each(&report, "incidents", "kind"), ["metadata-mismatch"]);
        assert_eq!(assert_whole(&site.store()), ["app-1.0-py3-none-any.whl"]);
    }
}

#[test]
fn a_project_is_taken_from_one_upstream_and_others_that_list_it_are_named() {
    let own = Upstream::serving(wheels(&json!([pure("demo", "1.0", &["lib"])])).path());
    let general =
        Upstream::serving(wheels(&json!([pure("demo", "9.0", &[]), pure("lib", "1.0", &[])])).path());
    let (own_url, general_url) = (own.url("/simple/"), general.url("/simple/"));
    let site = Site::new();
    let report = site.sync(0, &["--device", ORIN, "--general", &general_url, "--upstream", &own_url, "demo"]);
    assert_eq!(packages(&report, 0), ["demo 1.0 fetched", "lib 1.0 fetched"]);
    assert_eq!(each(&report, "shadowed", "project"), ["demo"]);
    let name = |url: &str| url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    assert_eq!(each(&report, "shadowed", "upstream"), [name(&general_url)]);

    // The policy's word counts more than the order.
    let policies = site.folder.path().join("policies");
    fs_err::create_dir(&policies).unwrap();
    let rule = format!("[[owner]]\nprojects = [\"demo*\"]\nupstream = \"{}\"\n", name(&general_url));
    fs_err::write(policies.join("rules.toml"), rule).unwrap();
    let other = Site::new();
    other.configure(&format!("policies = {:?}", policies.to_str().unwrap()));
    let report =
        other.sync(0, &["--device", ORIN, "--upstream", &own_url, "--upstream", &general_url, "demo"]);
    assert_eq!(packages(&report, 0), ["demo 9.0 fetched"]);

    // While the first is down, strangers do not take its place.
    drop(own);
    let report =
        Site::new().sync(3, &["--device", ORIN, "--upstream", &own_url, "--general", &general_url, "demo"]);
    assert_eq!(packages(&report, 0), Vec::<String>::new());
    assert_eq!(general.fetched(), ["/f/lib-1.0-py3-none-any.whl", "/f/demo-9.0-py3-none-any.whl"]);
}

#[test]
fn one_name_with_two_digests_is_reported() {
    let first = Upstream::serving(wheels(&json!([pure("demo", "1.0", &[])])).path());
    let second = Upstream::serving(wheels(&json!([pure("demo", "1.0", &["lib"])])).path());
    let urls = [first.url("/simple/"), second.url("/simple/")];
    let report =
        Site::new().sync(0, &["--device", ORIN, "--upstream", &urls[0], "--upstream", &urls[1], "demo"]);
    assert_eq!(each(&report, "incidents", "kind"), ["differs"]);
}

/// C24: jetson-containers#1221, #1462.
#[test]
fn an_upstream_that_lost_most_of_what_it_had_stops_its_devices() {
    let names: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    let specs: Vec<Value> = names.iter().map(|name| pure(name, "1.0", &[])).collect();
    let upstream = Upstream::serving(wheels(&json!(specs)).path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let arguments: Vec<&str> =
        ["--device", ORIN, "--upstream", &url].into_iter().chain(names.iter().map(String::as_str)).collect();
    site.sync(0, &arguments);
    for name in &names[3..] {
        upstream.remove(&format!("{name}-1.0-py3-none-any.whl"));
    }
    upstream.add_all(wheels(&json!([pure("p0", "2.0", &[])])).path());
    upstream.seen();

    let report = site.sync(1, &["--device", ORIN, "--upstream", &url, "p0"]);
    let loss = &report["losses"][0];
    assert_eq!((loss["files"].as_u64(), loss["lost_files"].as_u64()), (Some(12), Some(9)));
    assert!(error(&report, 0).contains("9 of 12 files"), "{}", error(&report, 0));
    assert!(upstream.fetched().is_empty());
    let gone = |site: &Site| {
        let store = site.store();
        let rows = names.iter().flat_map(|name| store.rows(&name.parse().unwrap()).unwrap());
        rows.filter(|row| row.provenance.gone_since.is_some()).count()
    };
    assert_eq!(gone(&site), 0, "nothing was changed");

    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "p0", "--accept-losses"]);
    assert_eq!(packages(&report, 0), ["p0 2.0 fetched"]);
    assert_eq!(gone(&site), 9);
    assert_eq!(assert_whole(&site.store()).len(), 13);
    site.sync(0, &["--device", ORIN, "--upstream", &url, "p0"]);
}

/// C05, and jetson-containers#1596.
#[test]
fn what_was_synced_is_served_while_its_upstream_is_down() {
    let upstream = Upstream::serving(closure().path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let arguments = ["--device", ORIN, "--upstream", &url, "app"];
    site.sync(0, &arguments);
    drop(upstream);
    let report = site.sync(3, &arguments);
    assert_eq!(packages(&report, 0).len(), 4, "{report}");
    let file = &report["devices"][0]["packages"][0];
    let mirror = Mirror::serving(&site.data());
    let base = mirror.url("");
    let path =
        format!("/{ORIN}/files/{}/{}", file["sha256"].as_str().unwrap(), file["file"].as_str().unwrap());
    for target in [format!("/{ORIN}/simple/app/"), path.clone(), format!("{path}.metadata")] {
        assert_eq!(http::get(&base, &target, &[]).status, 200, "{target}");
    }
    // How old that is.
    let ready: Value = serde_json::from_slice(&http::get(&base, "/readyz", &[]).body).unwrap();
    let (_, reached) = ready["upstreams"].as_object().unwrap().iter().next().unwrap();
    let time = |key: &str| reached[key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(time("last_reached") < time("failing_since"), "{ready}");
    drop(mirror);
    let upstream = Upstream::serving(closure().path());
    site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "app"]);
    let reached = site.store().reached().unwrap();
    assert_eq!(reached.values().filter(|reached| reached.failing_since.is_none()).count(), 1, "{reached:?}");
}

#[test]
fn facts_of_an_earlier_inspector_without_bytes_are_found_anew() {
    let folder = wheels(&json!([pure("demo", "1.0", &[])]));
    let name = "demo-1.0-py3-none-any.whl";
    let upstream = Upstream::serving(folder.path());
    let site = Site::new();
    let bytes = fs_err::read(folder.path().join(name)).unwrap();
    let facts: Facts = serde_json::from_value(json!({
        "file": name, "sha256": Sha256::of(&bytes), "size": bytes.len(), "project": "demo", "version": "1.0",
        "tags": ["py3-none-any"], "gpu": "none",
        "damage": [{"code": "damaged", "text": "as an earlier inspector saw it"}],
    }))
    .unwrap();
    let store = site.store();
    store.put_facts(&facts, &Provenance { upstream: "x".to_owned(), ..Provenance::default() }).unwrap();
    drop(store);
    let report = site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "demo"]);
    assert_eq!(packages(&report, 0), ["demo 1.0 fetched"]);
}

#[test]
fn a_damaged_wheel_is_fetched_again_by_repair_or_by_the_next_sync() {
    let upstream = Upstream::serving(wheels(&json!([pure("demo", "1.0", &[])])).path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let arguments = ["--device", ORIN, "--upstream", &url, "demo"];
    let sha256 = site.sync(0, &arguments)["kept"][0]["sha256"].as_str().unwrap().parse().unwrap();
    let damage = || fs_err::write(site.store().blob(&sha256), b"other bytes").unwrap();
    let verify = |code: i32| {
        let output = jetwheel(&site.data())
            .args(["verify", "--repair", "--format", "json"])
            .env("HOME", site.folder.path())
            .env_remove("NETRC")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    };
    damage();
    verify(0);
    assert_eq!(assert_whole(&site.store()).len(), 1);

    damage();
    upstream.change("demo-1.0-py3-none-any.whl", |file| {
        file.faults.push_back(Fault::Status(404));
    });
    verify(1);
    assert!(assert_whole(&site.store()).is_empty());
    assert_eq!(packages(&site.sync(0, &arguments), 0), ["demo 1.0 fetched"]);
    assert_eq!(assert_whole(&site.store()).len(), 1);
}

#[test]
fn an_error_in_the_configuration_does_not_show_its_line() {
    let site = Site::new();
    site.configure(
        "[credentials]\n\"host.test\" = { username = \"me\", password = \"s3cret\", other = 1 }\n",
    );
    let output = site.command(&["--device", ORIN, "demo"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("config.toml:2"), "{}", said(&output));
    assert!(!said(&output).contains("s3cret"), "{}", said(&output));
}

/// Plan, fetch, serve, lock; then pip and uv install the same set with this mirror as their only index.
#[test]
fn from_a_devpi_to_an_installation_by_pip_and_uv() {
    let devpi = Devpi::start();
    devpi.upload_all(closure().path());
    let site = Site::new();
    let report = site.sync(0, &["--device", ORIN, "--upstream", &devpi.index_url(), "app"]);
    let set = ["app 1.0", "base 3.0", "kernels 1.0", "lib 1.0"];
    assert_eq!(packages(&report, 0), set.map(|one| format!("{one} fetched")));
    drop(devpi);

    // The server's address is part of the lock; the command runs inside the server, which has the store open.
    let mirror = Mirror::serving(&site.data());
    let home = tempfile::tempdir().unwrap();
    let lock = |output: &str, file: &str| {
        let output = jetwheel(&site.data())
            .args(["resolve", "app", "--device", ORIN, "--output", output, "--base-url", &mirror.url("")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        fs_err::write(home.path().join(file), &output.stdout).unwrap();
    };
    lock("requirements", "requirements.txt");
    lock("pylock", "pylock.toml");
    // uv holds the Python of the lock against its interpreter, which is that of this machine and not of the device.
    let pylock = fs_err::read_to_string(home.path().join("pylock.toml")).unwrap();
    let python = pylock.lines().find(|line| line.starts_with("requires-python")).unwrap();
    fs_err::write(home.path().join("pylock.toml"), pylock.replace(python, "requires-python = \">=3.8\""))
        .unwrap();
    let run = |client: &str, program: &str, arguments: &[&str]| {
        let mut command = Command::new(client_program(client, program));
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path()).current_dir(home.path());
        command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{client}: {}", said(&output));
    };
    let pip = ["-m", "pip", "install", "--no-cache-dir", "--only-binary=:all:", "--implementation", "cp"];
    let platform = ["--python-version", "3.10", "--platform", "linux_aarch64", "--require-hashes"];
    run(
        "pip-newest",
        "python",
        &[&pip[..], &platform, &["--target", "by-pip", "-r", "requirements.txt"]].concat(),
    );
    let python = client_program("uv", "python");
    let uv = ["pip", "sync", "--no-cache", "--no-config", "--python", python.to_str().unwrap()];
    let platform = ["--python-version", "3.10", "--python-platform", "aarch64-manylinux_2_35"];
    run(
        "uv",
        "uv",
        &[&uv[..], &platform, &["--target", "by-uv", "--preview-features", "pylock", "pylock.toml"]].concat(),
    );
    let installed = |folder: &str| {
        let entries = fs_err::read_dir(home.path().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".dist-info")?.replace('-', " "))).collect();
        names.sort();
        names
    };
    assert_eq!(installed("by-pip"), set);
    assert_eq!(installed("by-uv"), set);
}
