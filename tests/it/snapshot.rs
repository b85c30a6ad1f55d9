//! Snapshots and channels, by the command line and over HTTP.

use std::path::{Path, PathBuf};
use std::process::Command;

use jetwheel::digest::Sha256;
use jetwheel::policy::Policy;
use jetwheel::store::{DeviceReport, NewSnapshot, Store};

use crate::store::read_blob;
use crate::support::http::{self, Answer, get};
use crate::support::mirror::Mirror;
use crate::support::site::Site;
use crate::support::{jetwheel, make_wheels};

const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];
const ORIN: &str = "orin-jp6.2";

/// Builds one wheel for Orin; yields where it lies.
pub(crate) fn wheel(folder: &Path, project: &str, version: &str, note: &str) -> PathBuf {
    fs_err::create_dir_all(folder).unwrap();
    let filename = format!("{project}-{version}-cp310-cp310-linux_aarch64.whl");
    let spec = serde_json::json!({
        "filename": filename,
        "files": {format!("{project}/note.txt"): note},
        "elfs": [{"path": format!("{project}/_C.so"), "needed": ["libcudart.so.12"], "fatbins": [["sm_87"]]}],
    });
    make_wheels(&serde_json::json!([spec]), folder);
    folder.join(filename)
}

/// Runs a command to its end; yields its exit code and what it printed as JSON.
pub(crate) fn json(command: &mut Command) -> (i32, serde_json::Value) {
    let output = command.args(["--format", "json"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let json = if text.trim().is_empty() {
        said.as_ref().into()
    } else {
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{said}"))
    };
    (output.status.code().unwrap(), json)
}

/// Adds wheels; yields the snapshot that was made of it.
pub(crate) fn add(data: &Path, wheels: &[&Path]) -> Option<String> {
    let (code, answer) = json(jetwheel(data).arg("add").args(wheels));
    assert_eq!(code, 0, "{answer}");
    answer["snapshot"].as_str().map(str::to_owned)
}

/// The file names on a project's page.
pub(crate) fn files(base: &str, device: &str, project: &str) -> Vec<String> {
    let answer = get(base, &format!("/{device}/simple/{project}/"), JSON);
    if answer.status == 404 {
        return Vec::new();
    }
    names_on(&answer)
}

/// The file names on a page.
pub(crate) fn names_on(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let page = answer.json();
    let names = page["files"].as_array().unwrap().iter();
    let mut names: Vec<String> = names.map(|file| file["filename"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_change_is_frozen_and_old_snapshots_are_served_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let (data, input) = (dir.path().join("data"), dir.path().join("in"));
    let one = wheel(&input, "demo", "1.0", "");
    let two = wheel(&input, "demo", "2.0", "");
    let other = wheel(&input, "other", "1.0", "");
    let first = add(&data, &[&one]).unwrap();
    assert_eq!(add(&data, &[&one]), None, "nothing changed");
    let second = add(&data, &[&two, &other]).unwrap();
    assert!(first < second);

    let (code, list) = json(jetwheel(&data).args(["snapshot", "list"]));
    assert_eq!(code, 0);
    let ids: Vec<_> = list["snapshots"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, [first.clone(), second.clone()]);
    assert_eq!(list["snapshots"][1]["count"], 3);
    assert_eq!(list["channels"]["candidate"]["current"], second.as_str());
    let (_, shown) = json(jetwheel(&data).args(["snapshot", "show", &first]));
    let digest = Sha256::of(&fs_err::read(&one).unwrap()).to_string();
    assert_eq!(shown["files"][0]["sha256"], digest.as_str());
    let (_, diff) = json(jetwheel(&data).args(["snapshot", "diff", &first, &second]));
    let names = |list: &str| -> Vec<_> {
        diff[list].as_array().unwrap().iter().map(|file| file["file"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names("added"),
        ["demo-2.0-cp310-cp310-linux_aarch64.whl", "other-1.0-cp310-cp310-linux_aarch64.whl"]
    );
    assert!(names("gone").is_empty() && names("changed").is_empty());
    let (_, back) = json(jetwheel(&data).args(["snapshot", "diff", &second, &first]));
    assert_eq!(back["gone"].as_array().unwrap().len(), 2);

    let mirror = Mirror::serving(&data);
    let base = mirror.url("");
    assert_eq!(files(&base, ORIN, "demo").len(), 2);
    let frozen = format!("{ORIN}@{first}");
    assert_eq!(files(&base, &frozen, "demo"), ["demo-1.0-cp310-cp310-linux_aarch64.whl"]);
    assert!(files(&base, &frozen, "other").is_empty());
    let projects = get(&base, &format!("/{frozen}/simple/"), JSON).json();
    assert_eq!(projects["projects"], serde_json::json!([{"name": "demo"}]));
    let wheel = format!("/{frozen}/files/{digest}/demo-1.0-cp310-cp310-linux_aarch64.whl");
    assert_eq!(get(&base, &wheel, &[]).body, fs_err::read(&one).unwrap());
    let later = Sha256::of(&fs_err::read(&two).unwrap());
    let wheel = format!("/{frozen}/files/{later}/demo-2.0-cp310-cp310-linux_aarch64.whl");
    assert_eq!(get(&base, &wheel, &[]).status, 404);

    // Channels move in one step, beside the running server, and take effect at the next request.
    assert!(get(&base, &format!("/{ORIN}@stable/simple/demo/"), JSON).text().contains("promote"));
    let (code, moved) = json(jetwheel(&data).args(["snapshot", "promote", &first]));
    assert_eq!((code, &moved["channel"], &moved["before"]), (0, &"stable".into(), &serde_json::Value::Null));
    assert_eq!(files(&base, &format!("{ORIN}@stable"), "demo").len(), 1);
    let (_, moved) = json(jetwheel(&data).args(["snapshot", "promote"]));
    assert_eq!((&moved["snapshot"], &moved["before"]), (&second.as_str().into(), &first.as_str().into()));
    assert_eq!(files(&base, &format!("{ORIN}@stable"), "demo").len(), 2);
    let (code, moved) = json(jetwheel(&data).args(["snapshot", "rollback"]));
    assert_eq!((code, &moved["snapshot"]), (0, &first.as_str().into()));
    assert_eq!(files(&base, &format!("{ORIN}@stable"), "demo").len(), 1);
    assert_eq!(json(jetwheel(&data).args(["snapshot", "rollback"])).0, 1, "nothing before it");
    assert_eq!(json(jetwheel(&data).args(["snapshot", "promote", "nonsense"])).0, 2);

    // Names.
    let (code, made) = json(jetwheel(&data).args(["snapshot", "create", "--name", "before-2.0"]));
    assert_eq!((code, &made["name"]), (0, &"before-2.0".into()));
    assert_eq!(files(&base, &format!("{ORIN}@before-2.0"), "demo").len(), 2);
    for bad in ["before-2.0", "stable", "newest", "../x", "20261130T075300Z-1"] {
        assert_eq!(json(jetwheel(&data).args(["snapshot", "create", "--name", bad])).0, 2, "{bad}");
    }
    let unknown = get(&base, &format!("/{ORIN}@before-2.1/simple/demo/"), JSON);
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("before-2.0"), "{}", unknown.text());
}

/// Case C23: an upstream lists other bytes under a name that it had. Here both are taken in, as an explicit rule would.
#[test]
fn old_bytes_stay_in_old_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let old = wheel(&dir.path().join("old"), "demo", "1.0", "old");
    let new = wheel(&dir.path().join("new"), "demo", "1.0", "new");
    let first = add(&data, &[&old]).unwrap();
    let second = add(&data, &[&new]).unwrap();
    let mirror = Mirror::serving(&data);
    for (selector, seen) in [(format!("@{first}"), &old), (format!("@{second}"), &old), (String::new(), &old)]
    {
        let page = get(&mirror.url(""), &format!("/{ORIN}{selector}/simple/demo/"), JSON).json();
        assert_eq!(page["files"].as_array().unwrap().len(), 1);
        let digest = Sha256::of(&fs_err::read(seen).unwrap()).to_string();
        assert_eq!(page["files"][0]["hashes"]["sha256"], digest.as_str(), "{selector}");
        let url = format!("/{ORIN}{selector}/files/{digest}/demo-1.0-cp310-cp310-linux_aarch64.whl");
        assert_eq!(get(&mirror.url(""), &url, &[]).body, fs_err::read(seen).unwrap());
    }
}

#[test]
fn a_later_advisory_hides_what_a_snapshot_lists_and_diff_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (data, policies) = (dir.path().join("data"), dir.path().join("policies"));
    fs_err::create_dir_all(policies.join("advisories")).unwrap();
    let (one, two) = (wheel(dir.path(), "demo", "1.0", ""), wheel(dir.path(), "demo", "2.0", ""));
    let id = add(&data, &[&one, &two]).unwrap();
    let advisory = "[[advisory]]\nid = \"X-1\"\nproject = \"demo\"\nversions = \">=2\"\ndevices = [\"orin-*\"]\n\
        action = \"refuse\"\ntext = \"computes wrongly\"\nsources = [\"https://bugs.example/1\"]\n";
    fs_err::write(policies.join("advisories/x.toml"), advisory).unwrap();

    let (code, diff) = json(
        jetwheel(&data).arg("--policies").arg(&policies).args(["snapshot", "diff", &id, "live", "-d", ORIN]),
    );
    assert_eq!(code, 0, "{diff}");
    let verdict = &diff["verdicts"][0];
    assert_eq!((&verdict["from"], &verdict["to"]), (&"admit".into(), &"refuse".into()), "{diff}");
    assert_eq!(diff["verdicts"].as_array().unwrap().len(), 1);

    let store = std::sync::Arc::new(Store::open(&data).unwrap());
    let load = |dir: &Path| jetwheel::cli::load_policy(dir).map_err(|error| error.to_string());
    let source = jetwheel::server::PolicySource::folder(policies, Box::new(load)).unwrap();
    let server = http::InProcess::with(store, source, jetwheel::server::Limits::default());
    let page = get(&server.base, &format!("/{ORIN}@{id}/simple/demo/"), JSON).json();
    assert_eq!(page["files"].as_array().unwrap().len(), 1);
    let note = page["project-status"]["reason"].as_str().unwrap();
    assert!(note.contains("demo-2.0") && note.contains("computes wrongly"), "{note}");
}

/// An advisory against torch takes along what is built for that torch: the comparison says of both what the index does.
#[test]
fn diff_counts_the_verdicts_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let (data, policies) = (dir.path().join("data"), dir.path().join("policies"));
    fs_err::create_dir_all(policies.join("advisories")).unwrap();
    let torch = wheel(dir.path(), "torch", "2.8.0", "");
    let vision = dir.path().join("torchvision-0.23.0-cp310-cp310-linux_aarch64.whl");
    let spec = serde_json::json!([{"filename": vision.file_name().unwrap().to_str().unwrap(),
        "requires_dist": ["torch==2.8.0"],
        "elfs": [{"path": "torchvision/_C.so", "needed": ["libcudart.so.12"], "fatbins": [["sm_87"]]}]}]);
    make_wheels(&spec, dir.path());
    let id = add(&data, &[&torch, &vision]).unwrap();
    let advisory = "[[advisory]]\nid = \"X-2\"\nproject = \"torch\"\naction = \"refuse\"\ntext = \"hangs\"\nsources = []\n";
    fs_err::write(policies.join("advisories/x.toml"), advisory).unwrap();
    let with = |arguments: &[&str]| json(jetwheel(&data).arg("--policies").arg(&policies).args(arguments));
    let (code, diff) = with(&["snapshot", "diff", &id, "live", "--device", ORIN]);
    assert_eq!(code, 0, "{diff}");
    let told: Vec<_> = diff["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| [&one["project"], &one["from"], &one["to"], &one["reasons"][0]["code"]])
        .map(|fields| fields.map(|field| field.as_str().unwrap_or_default().to_owned()).join(" "))
        .collect();
    assert_eq!(told, ["torch admit refuse advisory", "torchvision admit refuse pair-mismatch"], "{diff}");
    for (at, project) in ["torch", "torchvision"].iter().enumerate() {
        let (_, explained) = with(&["explain", project, "--device", ORIN]);
        assert_eq!(explained["files"][0]["reasons"], diff["verdicts"][at]["reasons"], "{diff}");
    }
    assert_eq!(
        json(jetwheel(&data).args(["snapshot", "diff", &id, "live", "-d", ORIN])).1["verdicts"],
        serde_json::json!([])
    );
}

#[test]
fn the_configuration_says_what_a_plain_url_stands_for_and_how_many_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let config = dir.path().join("jetwheel.toml");
    fs_err::write(&config, "channel = \"stable\"\nkeep_snapshots = 3\n").unwrap();
    let configured = || {
        let mut command = jetwheel(&data);
        command.arg("--config").arg(&config);
        command
    };
    let first = wheel(dir.path(), "demo", "0.0", "");
    add(&data, &[&first]);
    json(configured().args(["snapshot", "create", "--name", "kept"]));
    json(configured().args(["snapshot", "promote"]));
    for number in 1..6 {
        let next = wheel(dir.path(), "demo", &format!("{number}.0"), "");
        let (code, answer) = json(configured().arg("add").arg(&next));
        assert_eq!(code, 0, "{answer}");
    }
    let (_, list) = json(jetwheel(&data).args(["snapshot", "list"]));
    let snapshots = list["snapshots"].as_array().unwrap();
    // Three, and the one that has a name and is stable.
    assert_eq!(snapshots.len(), 4, "{list}");
    assert_eq!(
        (&snapshots[0]["name"], &snapshots[0]["channels"]),
        (&"kept".into(), &serde_json::json!(["stable"]))
    );

    let store = std::sync::Arc::new(Store::open(&data).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let policy = jetwheel::server::PolicySource::fixed(Policy::builtin());
    let any = "127.0.0.1:0".parse().unwrap();
    let limits = jetwheel::server::Limits::default();
    let server = runtime.block_on(jetwheel::server::Server::bind(any, store, policy, limits)).unwrap();
    let server = server.with_channel("stable".to_owned());
    let base = format!("http://{}", server.address().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = runtime.spawn(server.run(async { drop(stopped.await) }));
    assert_eq!(files(&base, ORIN, "demo").len(), 1);
    assert_eq!(files(&base, &format!("{ORIN}@newest"), "demo").len(), 6);
    drop(stop);
    runtime.block_on(running).unwrap();
}

#[test]
fn a_damaged_snapshot_is_found_out_and_hinders_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let id = add(&data, &[&wheel(dir.path(), "demo", "1.0", "")]).unwrap();
    let path = data.join(format!("snapshots/{id}.json"));
    let mut bytes = fs_err::read(&path).unwrap();
    let place = bytes.len() - 20;
    bytes[place] ^= 1;
    fs_err::write(&path, &bytes).unwrap();
    let (code, answer) = json(jetwheel(&data).args(["snapshot", "show", &id]));
    assert_eq!(code, 3);
    assert!(
        answer.as_str().unwrap().contains("checksum") || answer.as_str().unwrap().contains("column"),
        "{answer}"
    );
    let (code, report) = json(jetwheel(&data).arg("verify"));
    assert_eq!((code, &report["damaged_snapshots"][0]["snapshot"]), (1, &id.as_str().into()), "{report}");
    // Nothing of it is needed to make another.
    let store = Store::open(&data).unwrap();
    let new = NewSnapshot { reason: "create".to_owned(), always: true, ..NewSnapshot::default() };
    let next = store.take_snapshot(&new).unwrap().unwrap();
    assert!(next > id.parse().unwrap());
    assert_eq!(store.snapshot(&next).unwrap().files.len(), 1);
}

/// Puts a file of that content where the blob of its digest lies.
pub(crate) fn orphan(data: &Path, content: &str) -> PathBuf {
    let digest = Sha256::of(content.as_bytes()).to_string();
    let folder = data.join("blobs/sha256").join(&digest[..2]);
    fs_err::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{digest}.whl"));
    fs_err::write(&path, content).unwrap();
    path
}

/// Case C30 in small: half of the blobs are named by nothing.
#[test]
fn gc_takes_what_nothing_names_and_is_old_enough() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let wheel = wheel(dir.path(), "demo", "1.0", "");
    let id = add(&data, &[&wheel]).unwrap();
    let orphans: Vec<PathBuf> = (0..200).map(|number| orphan(&data, &number.to_string())).collect();

    let (code, sweep) = json(jetwheel(&data).arg("gc"));
    assert_eq!((code, &sweep["blobs"], &sweep["younger"]), (0, &0.into(), &200.into()), "{sweep}");
    let mirror = Mirror::serving(&data);
    let (_, sweep) = json(jetwheel(&data).args(["gc", "--older-than", "0s", "--dry-run"]));
    assert_eq!((&sweep["blobs"], &sweep["dry_run"]), (&200.into(), &true.into()));
    assert!(orphans.iter().all(|path| path.exists()));
    let (_, sweep) = json(jetwheel(&data).args(["gc", "--older-than", "0s"]));
    assert_eq!((&sweep["blobs"], &sweep["bytes"]), (&200.into(), &490.into()));
    assert!(!orphans.iter().any(|path| path.exists()));
    assert_eq!(files(&mirror.url(""), ORIN, "demo").len(), 1);
    drop(mirror);

    // What only a snapshot names stays, and while a snapshot cannot be read everything does.
    let digest = Sha256::of(&fs_err::read(&wheel).unwrap()).to_string();
    let blob = data.join("blobs/sha256").join(&digest[..2]).join(format!("{digest}.whl"));
    let sidecar = blob.with_extension("json");
    let kept = fs_err::read(&sidecar).unwrap();
    fs_err::remove_file(&sidecar).unwrap();
    json(jetwheel(&data).args(["gc", "--older-than", "0s"]));
    assert!(blob.exists());
    fs_err::write(&sidecar, kept).unwrap();
    let stray = orphan(&data, "stray");
    let path = data.join(format!("snapshots/{id}.json"));
    let whole = fs_err::read(&path).unwrap();
    fs_err::write(&path, &whole[..whole.len() - 9]).unwrap();
    assert_eq!(json(jetwheel(&data).args(["gc", "--older-than", "0s"])).0, 3);
    assert!(stray.exists());
    fs_err::write(&path, whole).unwrap();
    let (code, sweep) = json(jetwheel(&data).args(["gc", "--older-than", "0s"]));
    assert_eq!((code, &sweep["blobs"]), (0, &1.into()));
}

/// At random moments `kill -9` falls into commands that change the store; what was there before, and all that was
/// acknowledged, is there after, whole.
pub(crate) fn kill_at_any_moment_leaves_every_snapshot_and_channel_whole(site: &Site, rounds: usize) {
    let dir = tempfile::tempdir().unwrap();
    let wheels: Vec<PathBuf> =
        (0..rounds).map(|number| wheel(dir.path(), "demo", &format!("1.{number}"), "")).collect();
    let (code, answer) = json(site.command().arg("add").arg(&wheels[0]));
    assert_eq!(code, 0, "{answer}");
    let mut newest = answer["snapshot"].as_str().unwrap().to_owned();
    json(site.command().args(["snapshot", "create", "--name", "first"]));
    let verbs: [&[&str]; 5] = [
        &["add"],
        &["snapshot", "create"],
        &["snapshot", "promote"],
        &["snapshot", "promote", "first"],
        &["gc", "--older-than", "0s"],
    ];
    let mut chance = 2026_u64;
    let (mut acknowledged, mut killed) = (1_usize, 0_usize);
    for (round, added) in wheels.iter().enumerate() {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let verb = verbs[round % verbs.len()];
        let mut command = site.command();
        command.args(verb).args((verb == ["add"]).then_some(added));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let moment = std::time::Instant::now() + std::time::Duration::from_micros((chance >> 33) % 60_000);
        while std::time::Instant::now() < moment {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        let done = child.wait().unwrap().success();
        killed += usize::from(!done);
        acknowledged += usize::from(done && verb == ["add"] && round > 0);

        let store = site.open();
        assert_eq!(store.recovery(), None, "round {round}: a killed process is no damage");
        let snapshots = store.snapshots();
        let last = snapshots.last().unwrap().id.to_string();
        assert!(last >= newest, "round {round}: {newest} is lost");
        newest = last;
        for head in &snapshots {
            let snapshot = store.snapshot(&head.id).unwrap();
            assert_eq!(snapshot.files.len() as u64, head.count);
            for file in snapshot.files {
                let bytes = read_blob(&store, &file.sha256);
                assert_eq!(Sha256::of(&bytes), file.sha256, "round {round}");
            }
        }
        for (name, channel) in store.channels() {
            assert!(store.find_snapshot(name).is_some());
            assert!(snapshots.iter().any(|head| head.id == channel.current), "round {round}: {name}");
        }
        let held = store.held_files().unwrap().len();
        assert!(held >= acknowledged, "round {round}: {held} of {acknowledged}");
    }
    assert!(killed > 0, "no kill fell into a command");
    let (code, answer) = json(site.command().arg("add").args(&wheels));
    assert_eq!(code, 0, "{answer}");
    let (code, report) = json(site.command().arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(rounds as u64)), "{report}");
}

/// A kill between a snapshot and the move of `candidate`: the next run catches up, also where it changes nothing.
#[test]
fn candidate_follows_a_snapshot_that_a_crash_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (one, two) = (wheel(dir.path(), "demo", "1.0", ""), wheel(dir.path(), "demo", "2.0", ""));
    let first = add(&data, &[&one]).unwrap();
    let channel = fs_err::read(data.join("channels/candidate.json")).unwrap();
    let second = add(&data, &[&two]).unwrap();
    let candidate =
        || json(jetwheel(&data).args(["snapshot", "list"])).1["channels"]["candidate"]["current"].clone();
    fs_err::write(data.join("channels/candidate.json"), channel).unwrap();
    assert_eq!(candidate(), first.as_str());
    assert_eq!(add(&data, &[&two]), None);
    assert_eq!(candidate(), second.as_str());
    // Whoever moved it back by hand meant that.
    let (code, said) = json(jetwheel(&data).args(["snapshot", "rollback", "candidate"]));
    assert_eq!(code, 0, "{said}");
    assert_eq!(add(&data, &[&two]), None);
    assert_eq!(candidate(), first.as_str());
}

/// A report of a device, as `check.py` sends it.
fn report(unit: &str, passed: bool, on_gpu: bool, metadata: Sha256) -> DeviceReport {
    let status = if passed { "pass" } else { "fail" };
    let gpu = on_gpu.then(|| serde_json::json!({"name": "Orin", "compute_capability": "8.7"}));
    let body = serde_json::json!({"device": ORIN, "passed": passed, "unit": unit, "gpu": gpu, "torch": "2.8.0",
        "wheels": [{"name": "torch", "version": "2.8.0", "metadata_sha256": metadata}],
        "checks": [{"name": "matmul float32", "status": status, "seconds": 1.0}]});
    DeviceReport::now(serde_json::from_value(body).unwrap())
}

#[test]
fn a_promotion_can_wait_for_reports_of_devices() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    add(&data, &[&wheel(dir.path(), "torch", "2.8.0", "")]).unwrap();
    let torch: &[&str] = &["--format", "json", "snapshot", "promote", "--require-reports", "2"];
    let promote = |more: &[&str]| json(jetwheel(&data).args(torch).args(more));
    let without = jetwheel(&data).args(torch).output().unwrap();
    assert_eq!(without.status.code(), Some(2), "nobody has sent a report, and no profile is named");
    let (code, answer) = promote(&["--device", ORIN]);
    assert_eq!((code, answer["lacking"][0]["passed"].as_u64()), (1, Some(0)), "{answer}");
    assert_eq!(answer["lacking"][0]["file"], "torch-2.8.0-cp310-cp310-linux_aarch64.whl");

    let metadata = {
        let store = Store::open(&data).unwrap();
        store.rows(&"torch".parse().unwrap()).unwrap()[0].facts.metadata_sha256.unwrap()
    };
    let send = |unit, passed, on_gpu, metadata| {
        Store::open(&data).unwrap().put_report(&report(unit, passed, on_gpu, metadata)).unwrap();
    };
    // One device twice, one that computed on its CPU, one with another wheel, and one that fails.
    for _ in 0..2 {
        send("a", true, true, metadata);
    }
    send("b", true, false, metadata);
    send("c", true, true, Sha256::of(b"another"));
    send("d", false, true, metadata);
    let (code, answer) = promote(&[]);
    let lack = &answer["lacking"][0];
    assert_eq!((code, lack["passed"].as_u64(), lack["failed"].as_u64()), (1, Some(1), Some(1)), "{answer}");
    let text = jetwheel(&data).args(["snapshot", "promote", "--require-reports", "2"]).output().unwrap();
    let said = String::from_utf8(text.stdout).unwrap();
    assert!(said.contains("linux_aarch64.whl: 1 of 2 devices ran it well, 1 say that it fails"), "{said}");

    let text = jetwheel(&data).args(["advisories", "--suggested"]).output().unwrap();
    let said = String::from_utf8(text.stdout).unwrap();
    assert!(said.starts_with("# advisories/torch-2.8.0-on-orin-jp6.2.toml (failing reports: 1)\n"), "{said}");
    let file = ("advisories/x.toml".to_owned(), said);
    assert!(Policy::with_site(&[file]).is_ok(), "what is suggested can be put there as it stands");

    // The last report of a device counts.
    send("d", true, true, metadata);
    let (code, answer) = promote(&[]);
    assert_eq!((code, answer["channel"].as_str()), (0, Some("stable")), "{answer}");
}

/// A store that a program from before snapshots wrote (tests/data/README.md), unpacked.
fn store_of_format_1() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let packed = crate::support::data("store-format-1.tar.gz");
    let unpacked = Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success());
    let data = dir.path().join("data");
    assert_eq!(fs_err::read_to_string(data.join("FORMAT")).unwrap(), "1\n");
    (dir, data)
}

#[test]
fn a_store_of_an_older_format_is_brought_up_to_date_whenever_that_is_cut_short() {
    let mut before = 0;
    for round in 0..16_u64 {
        let (_dir, data) = store_of_format_1();
        if round > 0 {
            let mut command = jetwheel(&data);
            command.args(["snapshot", "list"]).stdout(std::process::Stdio::null());
            let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(round * 2));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let format = fs_err::read_to_string(data.join("FORMAT")).unwrap();
        assert!(format == "1\n" || format == "2\n", "{format:?}");
        before += usize::from(format == "1\n");
        let (code, list) = json(jetwheel(&data).args(["snapshot", "list"]));
        assert_eq!(code, 0, "{list}");
        let snapshots = list["snapshots"].as_array().unwrap();
        assert_eq!((snapshots.len(), &snapshots[0]["count"]), (1, &2.into()), "round {round}: {list}");
        assert_eq!(list["channels"]["candidate"]["current"], snapshots[0]["id"]);
        assert_eq!(fs_err::read_to_string(data.join("FORMAT")).unwrap(), "2\n");
        if round % 8 == 0 {
            let mirror = Mirror::serving(&data);
            assert_eq!(files(&mirror.url(""), ORIN, "demo").len(), 2);
            assert_eq!(files(&mirror.url(""), &format!("{ORIN}@candidate"), "demo").len(), 2);
        }
    }
    assert!(before > 1, "no kill fell before the end");
}

/// Peak memory of a command in KiB, as `getrusage` tells it to a Python that runs it.
fn peak(command: &Command) -> u64 {
    let script = "import resource, subprocess, sys\n\
        subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n\
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(command.get_program()).args(command.get_args());
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Case C30: memory does not grow by more than the digests. 200,000 blobs are `tests/bench/blobs.py`.
#[test]
fn verify_and_gc_work_in_flat_memory() {
    const MANY: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    add(&data, &[&wheel(dir.path(), "demo", "1.0", "")]);
    let verify = || peak(jetwheel(&data).arg("verify"));
    let gc = || peak(jetwheel(&data).args(["gc", "--dry-run", "--older-than", "0s"]));
    let few = (verify(), gc());
    for number in 0..MANY {
        orphan(&data, &number.to_string());
    }
    let many = (verify(), gc());
    // 32 bytes of digest each, doubled while a list grows, and as much for each of the lists that are compared.
    let grown = MANY * 32 * 8 / 1024 + 4096;
    assert!(many.0 < few.0 + grown && many.1 < few.1 + 4096, "KiB of verify and gc: {few:?}, then {many:?}");
    let (code, sweep) = json(jetwheel(&data).args(["gc", "--older-than", "0s"]));
    assert_eq!((code, &sweep["blobs"]), (0, &MANY.into()));
    assert_eq!(json(jetwheel(&data).arg("verify")).1["blobs"], 1);
}

/// Nothing that a sync takes in, and nothing that a server serves, is swept, however short the delay.
#[test]
fn gc_is_safe_beside_a_sync_and_a_serving_mirror() {
    const WHEELS: usize = 24;
    let dir = tempfile::tempdir().unwrap();
    let (data, input) = (dir.path().join("data"), dir.path().join("in"));
    let first = wheel(dir.path(), "first", "1.0", "");
    add(&data, &[&first]);
    fs_err::create_dir(&input).unwrap();
    let projects: Vec<String> = (0..WHEELS).map(|number| format!("p{number}")).collect();
    let specs = projects.iter().map(|project| {
        serde_json::json!({"filename": format!("{project}-1.0-cp310-cp310-linux_aarch64.whl"),
            "elfs": [{"path": "p/_C.so", "payload": 100_000, "fatbins": [["sm_87"]]}]})
    });
    make_wheels(&specs.collect::<Vec<_>>().into(), &input);
    let upstream = crate::support::upstream::Upstream::serving(&input);
    let mirror = Mirror::serving(&data);
    let url = upstream.url("/simple/");
    let mut sync = jetwheel(&data);
    sync.args(["sync", "--device", ORIN, "--upstream", &url]).args(&projects);
    let mut sync =
        sync.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut swept = 0;
    while sync.try_wait().unwrap().is_none() {
        for stray in 0..20 {
            orphan(&data, &format!("{swept} {stray}"));
        }
        let (code, sweep) = json(jetwheel(&data).args(["gc", "--older-than", "0s"]));
        assert_eq!(code, 0, "{sweep}");
        swept += sweep["blobs"].as_u64().unwrap();
        assert_eq!(files(&mirror.url(""), ORIN, "first").len(), 1);
    }
    assert!(sync.wait().unwrap().success());
    assert!(swept >= 20, "no sweep fell beside the sync");
    let base = mirror.url("");
    for project in &projects {
        let name = format!("{project}-1.0-cp310-cp310-linux_aarch64.whl");
        let bytes = fs_err::read(input.join(&name)).unwrap();
        let path = format!("/{ORIN}/files/{}/{name}", Sha256::of(&bytes));
        assert_eq!(get(&base, &path, &[]).body, bytes, "{name}");
    }
    let (code, report) = json(jetwheel(&data).arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(WHEELS as u64 + 1)), "{report}");
}
