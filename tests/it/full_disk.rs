//! A disk that is full: every command says so, loses nothing, and goes on when there is space.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::snapshot::{add, json as run, orphan, wheel};
use crate::support::disk::{SmallDisk, fill_up};
use crate::support::http::get;
use crate::support::mirror::Mirror;
use crate::support::upstream::Upstream;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];

fn listed(mirror: &Mirror, selector: &str, project: &str) -> usize {
    let answer = get(&mirror.url(""), &format!("/{ORIN}{selector}/simple/{project}/"), JSON);
    if answer.status == 404 { 0 } else { answer.json()["files"].as_array().unwrap().len() }
}

/// Case C28: five files of 30 MB, a store of 100 MB.
#[test]
fn a_sync_keeps_the_whole_files_and_says_what_is_needed() {
    let test = "full_disk::a_sync_keeps_the_whole_files_and_says_what_is_needed";
    let Some(disk) = SmallDisk::mount(test, 100_000_000) else { return };
    let folder = tempfile::tempdir().unwrap();
    let projects = ["p0", "p1", "p2", "p3", "p4"];
    let specs = projects.map(|project| {
        json!({"filename": format!("{project}-1.0-cp310-cp310-linux_aarch64.whl"),
            "files": {"p/large.txt": "x".repeat(30_000_000)},
            "elfs": [{"path": "p/_C.so", "cuda": "12.6", "fatbins": [["sm_87"]]}]})
    });
    make_wheels(&json!(specs), folder.path());
    let upstream = Upstream::serving(folder.path());
    let data = disk.path().join("data");
    let small = wheel(&folder.path().join("small"), "demo", "1.0", "");
    let snapshot = add(&data, &[&small]).unwrap();
    let url = upstream.url("/simple/");
    let sync = || {
        let mut command = jetwheel(&data);
        run(command.args(["sync", "--device", ORIN, "--upstream", &url]).args(projects))
    };
    for attempt in 1..=2 {
        let (code, said) = sync();
        assert_eq!(code, 3, "{said}");
        let said = said.as_str().unwrap();
        assert!(
            said.contains("no space") && said.contains("to be fetched: 2 (60"),
            "attempt {attempt}: {said}"
        );
        assert!(said.contains("are needed"), "{said}");
        let mirror = Mirror::serving(&data);
        let held: usize = projects.iter().map(|project| listed(&mirror, "", project)).sum();
        assert_eq!(held, 3, "attempt {attempt}: the whole files are kept");
        assert_eq!(listed(&mirror, "@candidate", "demo"), 1);
        let (_, list) = run(jetwheel(&data).args(["snapshot", "list"]));
        assert_eq!(
            list["channels"]["candidate"]["current"],
            snapshot.as_str(),
            "the last snapshot is served"
        );
        let (code, report) = run(jetwheel(&data).arg("verify"));
        assert_eq!(
            (code, &report["findings"], report["blobs"].as_u64()),
            (0, &json!([]), Some(4)),
            "{report}"
        );
        assert_eq!(report["orphans"], json!([]));
    }
    disk.resize(200_000_000);
    upstream.seen();
    let (code, report) = sync();
    assert_eq!((code, &report["downloads"]), (0, &2.into()), "{report}");
    assert_eq!(upstream.fetched().len(), 2, "those that were kept are not fetched again");
    assert_eq!(run(jetwheel(&data).arg("verify")).0, 0);
}

/// Every other command, with so much free that it fails at one place or another.
#[test]
fn every_command_ends_well_or_says_that_there_is_no_space() {
    let test = "full_disk::every_command_ends_well_or_says_that_there_is_no_space";
    let Some(disk) = SmallDisk::mount(test, 48 << 20) else { return };
    let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
    let outside = tempfile::tempdir().unwrap();
    let wheels: Vec<PathBuf> =
        (0..12).map(|number| wheel(outside.path(), "demo", &format!("1.{number}"), "")).collect();
    let origin = outside.path().join("origin");
    add(&origin, &[&wheel(outside.path(), "carried", "1.0", "")]);
    let bundle = outside.path().join("bundle.jwb");
    let mut export = jetwheel(&origin);
    assert_eq!(run(export.args(["export", "--device", ORIN, "--output"]).arg(&bundle)).0, 0);
    add(&data, &[&wheels[0]]);
    add(&data, &[&wheels[1]]);

    let commands: [&[&str]; 5] = [
        &["add"],
        &["import"],
        &["snapshot", "create"],
        &["snapshot", "promote"],
        &["gc", "--older-than", "0s"],
    ];
    let (mut full, mut held) = (0, 2);
    let lefts = [0, 4 << 10, 100 << 10, 1 << 20, (2 << 20) + (40 << 10)];
    for (round, left) in lefts.into_iter().enumerate() {
        for verb in commands {
            let when = format!("{verb:?} with {left} bytes free");
            let stray = (verb[0] == "gc").then(|| orphan(&data, &left.to_string()));
            fill_up(disk.path(), &ballast, left);
            let mut command = jetwheel(&data);
            command.args(verb);
            match verb[0] {
                "add" => command.arg(&wheels[2 + round]),
                "import" => command.arg(&bundle),
                _ => &mut command,
            };
            let output = command.output().unwrap();
            let code = output.status.code().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let lower = said.to_lowercase();
            assert!(code == 0 || (code == 3 && lower.contains("no space")), "{when}: {code} {said}");
            assert!(!lower.contains("panic"), "{when}: {said}");
            full += usize::from(code == 3);
            held += usize::from(verb[0] == "add" && code == 0);
            if let Some(stray) = stray {
                assert!(code == 0 && !stray.exists(), "{when}: it is gc that makes space: {said}");
            }
            // It is served as it is, with the disk still full.
            let mirror = Mirror::serving(&data);
            let pages = listed(&mirror, "", "demo");
            assert!(pages >= held, "{when}: {pages} of {held}");
            drop(mirror);
            fs_err::remove_file(&ballast).unwrap();
            let (code, report) = run(jetwheel(&data).arg("verify"));
            assert_eq!((code, &report["findings"]), (0, &json!([])), "{when}: {report}");
        }
    }
    assert!(full > lefts.len(), "the disk was hardly ever full: {full}");
    let paths: Vec<&Path> = wheels.iter().map(PathBuf::as_path).collect();
    add(&data, &paths);
    assert_eq!(run(jetwheel(&data).arg("import").arg(&bundle)).0, 0);
    let (code, promoted) = run(jetwheel(&data).args(["snapshot", "promote"]));
    assert_eq!(code, 0, "{promoted}");
    let incidents = fs_err::read_to_string(data.join("incidents.jsonl")).unwrap_or_default();
    assert!(!incidents.contains("catalogue-rebuilt"), "{incidents}");
    let (code, report): (i32, Value) = run(jetwheel(&data).arg("verify"));
    assert_eq!((code, report["blobs"].as_u64()), (0, Some(13)), "{report}");
}
