//! What a device sees of a snapshot: only what it lists, each file judged beside the others of the snapshot.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::snapshot::{add, json as run_json};
use crate::support::http::{get, send};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];
const ORIN: &str = "orin-jp6.2";
const ADVISORY: &str = "[[advisory]]\nid = \"X-1\"\nproject = \"torch\"\nversions = \">=2.9\"\ndevices = [\"orin-*\"]\n\
    action = \"refuse\"\ntext = \"computes wrongly\"\nsources = [\"https://bugs.example/1\"]\n";

/// A wheel with kernels for Orin.
fn gpu_wheel(folder: &Path, project: &str, version: &str, requires: &[&str]) -> PathBuf {
    fs_err::create_dir_all(folder).unwrap();
    let filename = format!("{project}-{version}-cp310-cp310-linux_aarch64.whl");
    let library = format!("lib{project}_cuda.so");
    let spec = json!([{"filename": filename, "requires_dist": requires, "elfs": [{"path": format!("{project}/lib/{library}"),
        "soname": library, "glibc": "2.17", "cuda": "12.6", "fatbins": [["sm_87"]]}]}]);
    make_wheels(&spec, folder);
    folder.join(filename)
}

/// torch 2.8.0 first, with one torchvision that pins it and one that pins a later release; then that release.
struct Site {
    dir: tempfile::TempDir,
    first: String,
    second: String,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (data, input) = (dir.path().join("data"), dir.path().join("in"));
        let torch = gpu_wheel(&input, "torch", "2.8.0", &[]);
        let vision = gpu_wheel(&input, "torchvision", "0.24.1", &["torch==2.9.1"]);
        let old_vision = gpu_wheel(&input, "torchvision", "0.23.0", &["torch==2.8.0"]);
        let plain = gpu_wheel(&input, "plain", "1.0", &[]);
        let first = add(&data, &[&torch, &vision, &old_vision, &plain]).unwrap();
        let second = add(&data, &[&gpu_wheel(&input, "torch", "2.9.1", &[])]).unwrap();
        Self { dir, first, second }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Runs a command by a configuration in which the channel is `stable`.
    fn configured(&self) -> std::process::Command {
        let config = self.dir.path().join("jetwheel.toml");
        fs_err::write(&config, "channel = \"stable\"\n").unwrap();
        let mut command = jetwheel(&self.data());
        command.arg("--config").arg(config);
        command
    }
}

fn versions(base: &str, address: &str, project: &str) -> Vec<String> {
    let answer = get(base, &format!("/{address}/simple/{project}/"), JSON);
    assert_eq!(answer.status, 200, "{answer:?}");
    let page = answer.json();
    let names = page["files"].as_array().unwrap().iter().map(|file| file["filename"].as_str().unwrap());
    names.map(|name| name.split('-').nth(1).unwrap().to_owned()).collect()
}

fn resolve(base: &str, address: &str, body: &Value) -> (u16, Value, String) {
    let body = body.to_string();
    let answer = send(base, "POST", &format!("/{address}/resolve"), &[], body.as_bytes());
    let json = serde_json::from_slice(&answer.body).unwrap_or_default();
    (answer.status, json, answer.text().to_owned())
}

#[test]
fn a_wheel_is_judged_beside_the_others_of_its_snapshot() {
    let site = Site::new();
    let mirror = Mirror::serving(&site.data());
    let base = mirror.url("");
    let (old, new) = (format!("{ORIN}@{}", site.first), format!("{ORIN}@{}", site.second));
    for address in [ORIN, &new] {
        assert_eq!(versions(&base, address, "torchvision"), ["0.24.1", "0.23.0"], "{address}");
    }
    assert_eq!(versions(&base, &old, "torchvision"), ["0.23.0"]);
    let page = get(&base, &format!("/{old}/simple/torchvision/"), JSON).json();
    let note = page["project-status"]["reason"].as_str().unwrap().to_owned();
    assert!(note.contains("torchvision-0.24.1") && note.contains("torch==2.9.1"), "{note}");

    // The file itself, its metadata, and what explains it say the same.
    let link = get(&base, &format!("/{new}/simple/torchvision/"), JSON).json()["files"][0].clone();
    let path = link["url"].as_str().unwrap().replace("../../", "");
    for (address, status) in [(ORIN, 200), (&new, 200), (&old, 403)] {
        assert_eq!(get(&base, &format!("/{address}/{path}"), &[]).status, status, "{address}");
        assert_eq!(get(&base, &format!("/{address}/{path}.metadata"), &[]).status, status, "{address}");
        let explained = get(&base, &format!("/{address}/explain/torchvision"), &[]).json();
        let verdict = if status == 200 { "admit" } else { "refuse" };
        assert_eq!(explained["files"][0]["verdict"], verdict, "{explained}");
        let device = ["--device", address];
        let (_, same) = run_json(jetwheel(&site.data()).args(["explain", "torchvision"]).args(device));
        assert_eq!(same, explained);
    }
    assert_eq!(
        get(&base, &format!("/{old}/explain/torch"), &[]).json()["files"].as_array().unwrap().len(),
        1
    );

    // Sets, and where they lead.
    let (status, answer, _) = resolve(&base, &old, &json!({"requirements": ["torchvision"]}));
    assert_eq!(status, 200, "{answer}");
    let packages = answer["packages"].as_array().unwrap();
    let chosen: Vec<_> = packages.iter().map(|package| package["version"].as_str().unwrap()).collect();
    assert_eq!(chosen, ["2.8.0", "0.23.0"], "{answer}");
    for package in packages {
        let url = package["url"].as_str().unwrap();
        let path = url.strip_prefix("http://mirror.test").unwrap();
        assert!(path.starts_with(&format!("/{old}/files/")), "{url}");
        assert_eq!(get(&base, path, &[]).status, 200, "{url}");
    }
    let body = json!({"requirements": ["torchvision"], "output": "pylock"});
    let (_, _, lock) = resolve(&base, &new, &body);
    assert!(lock.contains("0.24.1") && lock.contains(&format!("/{new}/simple/")), "{lock}");
    assert!(
        lock.lines()
            .filter(|line| line.starts_with("url"))
            .all(|line| line.contains(&format!("/{new}/files/")))
    );
    let (status, answer, _) = resolve(&base, &old, &json!({"requirements": ["torchvision==0.24.1"]}));
    assert_eq!(status, 409, "{answer}");
    let command = |address: &str| {
        let mut command = jetwheel(&site.data());
        command.args(["resolve", "torchvision", "--base-url", "http://mirror.test", "--device", address]);
        run_json(&mut command)
    };
    let (_, same, _) = resolve(&base, &old, &json!({"requirements": ["torchvision"]}));
    assert_eq!(command(&old), (0, same));
    assert_eq!(command(&format!("{ORIN}@no-such")).0, 2);
    assert_eq!(resolve(&base, &format!("{ORIN}@no-such"), &json!({"requirements": []})).0, 404);
}

#[test]
fn the_configured_channel_holds_for_sets_and_explanations_too() {
    let site = Site::new();
    assert_eq!(run_json(site.configured().args(["snapshot", "promote", &site.first])).0, 0);
    let config = site.dir.path().join("jetwheel.toml");
    let mirror = Mirror::serving_with(&site.data(), &["--config".as_ref(), config.as_os_str()]);
    let base = mirror.url("");
    assert_eq!(versions(&base, ORIN, "torchvision"), ["0.23.0"]);
    assert_eq!(versions(&base, &format!("{ORIN}@newest"), "torchvision"), ["0.24.1", "0.23.0"]);
    let (_, answer, _) = resolve(&base, ORIN, &json!({"requirements": ["torch"]}));
    assert_eq!(answer["packages"][0]["version"], "2.8.0");
    assert!(answer["packages"][0]["url"].as_str().unwrap().contains(&format!("/{ORIN}/files/")), "{answer}");
    let (_, answer, _) = resolve(&base, &format!("{ORIN}@newest"), &json!({"requirements": ["torch"]}));
    assert_eq!(answer["packages"][0]["version"], "2.9.1");
    for (device, newest) in [(ORIN, "2.8.0"), ("orin-jp6.2@newest", "2.9.1"), ("orin-jp6.2@stable", "2.8.0")]
    {
        let (_, set) = run_json(site.configured().args(["resolve", "torch", "--device", device]));
        assert_eq!(set["packages"][0]["version"], newest, "{device}: {set}");
        let (_, explained) = run_json(site.configured().args(["explain", "torch", "--device", device]));
        assert!(explained["files"][0]["file"].as_str().unwrap().contains(newest), "{device}: {explained}");
    }

    // A channel moves for sets, too, in one step.
    assert_eq!(run_json(site.configured().args(["snapshot", "promote", &site.second])).0, 0);
    let (_, answer, _) = resolve(&base, ORIN, &json!({"requirements": ["torchvision"]}));
    assert_eq!(answer["packages"][1]["version"], "0.24.1", "{answer}");
    assert_eq!(versions(&base, ORIN, "torchvision"), ["0.24.1", "0.23.0"]);
}

#[test]
fn scripts_of_a_snapshot_lead_to_the_snapshot() {
    let site = Site::new();
    let mirror = Mirror::serving(&site.data());
    let base = mirror.url("");
    for (address, setup) in [
        (format!("{ORIN}@{}", site.first), 200),
        (format!("{ORIN}@candidate"), 200),
        (format!("{ORIN}@stable"), 404),
    ] {
        let script = get(&base, &format!("/{address}/setup.sh"), &[]);
        let check = get(&base, &format!("/{address}/check.py"), &[]);
        assert_eq!((script.status, check.status), (setup, setup), "{address}");
        if setup == 200 {
            let text = script.text();
            assert!(text.contains(&format!("INDEX='http://mirror.test/{address}/simple/'")), "{text}");
            assert!(text.contains(&format!("DEVICE='{ORIN}'")), "{text}");
            assert!(check.text().contains(&format!("http://mirror.test/{ORIN}/reports")));
        }
    }
    let unknown = get(&base, "/orin-jp6.3@candidate/setup.sh", &[]);
    assert!(unknown.status == 404 && unknown.text().contains(ORIN), "{unknown:?}");
}

/// C13: a switch that changes other projects alone leaves a page as it is.
#[test]
fn c13_a_page_is_told_to_be_unchanged_until_its_own_project_changes() {
    let site = Site::new();
    let mirror = Mirror::serving(&site.data());
    let base = mirror.url("");
    let promote =
        |id: &str| assert_eq!(run_json(jetwheel(&site.data()).args(["snapshot", "promote", id])).0, 0);
    promote(&site.first);
    let stable = format!("{ORIN}@stable");
    let ask = |project: &str, etag: &str| {
        let headers = [JSON[0], ("If-None-Match", etag)];
        get(&base, &format!("/{stable}/simple/{project}/"), &headers)
    };
    let [plain, torch] = ["plain", "torch"].map(|project| {
        let page = get(&base, &format!("/{stable}/simple/{project}/"), JSON);
        assert!(page.header("cache-control").unwrap().contains("max-age="), "{page:?}");
        page.header("etag").unwrap().to_owned()
    });
    assert_eq!((ask("plain", &plain).status, ask("torch", &torch).status), (304, 304));
    promote(&site.second);
    assert_eq!(ask("plain", &plain).status, 304);
    let changed = ask("torch", &torch);
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag").unwrap(), torch);
    assert_eq!(changed.json()["files"].as_array().unwrap().len(), 2);

    // Files that a snapshot does not list change nothing of its pages; bytes that are lost do.
    let vision = get(&base, &format!("/{stable}/simple/torchvision/"), JSON);
    let later = gpu_wheel(&site.dir.path().join("in"), "torch", "2.10.0", &[]);
    add(&site.data(), &[&later]).unwrap();
    for (project, etag) in [("plain", plain.as_str()), ("torchvision", vision.header("etag").unwrap())] {
        assert_eq!(ask(project, etag).status, 304, "{project}");
    }
}

#[test]
fn a_policy_folder_that_comes_later_hides_with_a_note_and_without_a_restart() {
    let site = Site::new();
    let policies = site.dir.path().join("policies");
    let config = site.dir.path().join("later.toml");
    fs_err::write(&config, "policies = \"policies\"\n").unwrap();
    let configured = Mirror::serving_with(&site.data(), &["--config".as_ref(), config.as_os_str()]);
    let frozen = format!("{ORIN}@{}", site.second);
    assert_eq!(versions(&configured.url(""), &frozen, "torch"), ["2.9.1", "2.8.0"]);
    let error = get(&configured.url(""), "/readyz", &[]).json()["policy"]["error"].clone();
    assert!(error.as_str().unwrap().contains("policies"), "{error}");
    write_advisory(&policies);
    hidden(&configured.url(""), &frozen);
    assert_eq!(get(&configured.url(""), "/readyz", &[]).json()["policy"]["error"], Value::Null);
    drop(configured);

    // The same where nothing is configured and a bundle brings a policy.
    let plain = Mirror::serving(&site.data());
    assert_eq!(versions(&plain.url(""), ORIN, "torch"), ["2.9.1", "2.8.0"]);
    write_advisory(&site.data().join("policies"));
    hidden(&plain.url(""), &frozen);
    fs_err::remove_dir_all(site.data().join("policies")).unwrap();
    assert_eq!(versions(&plain.url(""), &frozen, "torch"), ["2.9.1", "2.8.0"]);
}

fn write_advisory(policies: &Path) {
    fs_err::create_dir_all(policies.join("advisories")).unwrap();
    fs_err::write(policies.join("advisories/x.toml"), ADVISORY).unwrap();
}

/// torch 2.9.1 is hidden in that snapshot, with all that needs it, and the pages say so.
fn hidden(base: &str, frozen: &str) {
    for (project, left) in [("torch", "2.8.0"), ("torchvision", "0.23.0")] {
        let page = get(base, &format!("/{frozen}/simple/{project}/"), JSON).json();
        let reason = page["project-status"]["reason"].as_str().unwrap_or_default().to_owned();
        assert_eq!(versions(base, frozen, project), [left], "{page}");
        assert!(
            reason.contains(if project == "torch" { "computes wrongly" } else { "torch==2.9.1" }),
            "{reason}"
        );
    }
}
