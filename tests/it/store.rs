//! What the store promises, through its interface and through the real binary.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;
use jetwheel::store::{Error, Incident, IncidentKind, Provenance, Put, Row, Store};
use jetwheel::wheel::{Facts, ProjectName};

use crate::support::disk::{SmallDisk, fill_up};
use crate::support::site::Site;
use crate::support::{jetwheel, make_wheels};

pub(crate) const MEMBER: &[u8] = b"Metadata-Version: 2.1\nName: demo\n";

/// Facts of a wheel with these bytes; only their keeping is tested here, so they say little.
pub(crate) fn facts(file: &str, bytes: &[u8]) -> Facts {
    let (project, rest) = file.split_once('-').unwrap();
    Facts {
        project: Some(project.parse().unwrap()),
        version: Some(rest.split_once('-').unwrap().0.to_owned()),
        tags: vec!["py3-none-any".to_owned()],
        requires_python: Some(">=3.8".to_owned()),
        requires_dist: vec!["numpy".to_owned()],
        metadata_sha256: Some(Sha256::of(MEMBER)),
        ..Facts::blank(file.to_owned(), Sha256::of(bytes), bytes.len() as u64)
    }
}

pub(crate) fn seen(upstream: &str, url: &str) -> Provenance {
    Provenance {
        upstream: upstream.to_owned(),
        url: Some(url.to_owned()),
        first_seen: "2026-11-30T00:00:00Z".to_owned(),
        ..Provenance::default()
    }
}

pub(crate) fn put(store: &Store, file: &str, bytes: &[u8], provenance: &Provenance) -> Result<Put, Error> {
    let mut spooled = store.spool().unwrap();
    spooled.write_all(bytes).unwrap();
    store.put(spooled, &facts(file, bytes), MEMBER, provenance)
}

pub(crate) fn project(name: &str) -> ProjectName {
    name.parse().unwrap()
}

/// The bytes of a wheel, wherever they lie.
pub(crate) fn read_blob(store: &Store, sha256: &Sha256) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.open_blob(sha256).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Everything that the store answers, for comparisons.
pub(crate) fn answers(store: &Store) -> Vec<(ProjectName, Vec<Row>, (u64, u64))> {
    let held = store.projects(true).unwrap();
    let all = store.projects(false).unwrap();
    assert!(held.iter().all(|project| all.contains(project)));
    all.into_iter()
        .map(|project| {
            let rows = store.rows(&project).unwrap();
            for row in &rows {
                assert!(store.row_named(&row.facts.sha256, &row.facts.file).unwrap().as_ref() == Some(row));
                if row.held {
                    let bytes = read_blob(store, &row.facts.sha256);
                    assert_eq!(Sha256::of(&bytes), row.facts.sha256);
                    assert_eq!(store.metadata(&row.facts.sha256).unwrap().as_deref(), Some(MEMBER));
                }
            }
            let counts = store.count(&project).unwrap();
            (project, rows, counts)
        })
        .collect()
}

/// A store with some of everything.
pub(crate) fn fill(store: &Store) {
    for number in 0..30_u8 {
        let file = format!("demo-1.{number}-py3-none-any.whl");
        let url = format!("https://one.example/{file}");
        assert_eq!(put(store, &file, &[number], &seen("one", &url)).unwrap(), Put::New);
    }
    let refused = facts("torch-2.9.1-py3-none-any.whl", b"cpu");
    store.put_facts(&refused, &seen("one", "https://one.example/torch")).unwrap();
    put(store, "torch-2.9.1-py3-none-any.whl", b"cuda", &seen("two", "https://two.example/torch")).unwrap();
}

#[test]
fn incidents_are_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let incident = Incident {
        upstream: Some("one".to_owned()),
        ..Incident::now(IncidentKind::ChangedFile, "demo has other bytes".to_owned())
    };
    store.put_incident(&incident).unwrap();
    store.put_incident(&Incident { time: "2027-01-01T00:00:00Z".to_owned(), ..incident.clone() }).unwrap();
    // A power cut leaves half a line.
    let log = dir.path().join("incidents.jsonl");
    let mut file = fs_err::OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(b"{\"time\":\"20").unwrap();
    let other = Incident::now(IncidentKind::HashMismatch, "other".to_owned());
    store.put_incident(&other).unwrap();
    assert_eq!(store.incidents().unwrap(), [incident, other]);
}

#[test]
fn a_lost_catalogue_is_made_anew_with_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    fill(&store);
    let before = answers(&store);
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!((answers(&store), store.recovery()), (before.clone(), None));
    drop(store);
    fs_err::remove_dir_all(dir.path().join("catalogue")).unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(answers(&store), before);
    assert_eq!(store.recovery().unwrap().files, 32);
    assert_eq!(store.incidents().unwrap()[0].kind, IncidentKind::CatalogueRebuilt);
}

/// A catalogue from before the last change is whole in itself, yet old.
#[test]
fn an_older_catalogue_is_found_out() {
    for orderly in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (catalogue, old) = (dir.path().join("catalogue"), dir.path().join("old"));
        let store = Store::open(dir.path()).unwrap();
        fill(&store);
        drop(store);
        copy(&catalogue, &old);
        let store = Store::open(dir.path()).unwrap();
        for number in 0..3 {
            put(&store, &format!("late-1.{number}-py3-none-any.whl"), &[number, 1], &seen("one", "late"))
                .unwrap();
        }
        let before = answers(&store);
        drop(store);
        fs_err::remove_dir_all(&catalogue).unwrap();
        copy(&old, &catalogue);
        if !orderly {
            fs_err::remove_file(dir.path().join("CLEAN")).unwrap();
        }
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(answers(&store), before, "orderly: {orderly}");
        assert!(store.recovery().is_some());
    }
}

/// One sidecar may be ahead of its row when a process is killed: that is no damage.
#[test]
fn a_sidecar_without_its_row_is_made_up_for() {
    let dir = tempfile::tempdir().unwrap();
    let (catalogue, old) = (dir.path().join("catalogue"), dir.path().join("old"));
    let store = Store::open(dir.path()).unwrap();
    fill(&store);
    drop(store);
    copy(&catalogue, &old);
    let store = Store::open(dir.path()).unwrap();
    put(&store, "late-1.0-py3-none-any.whl", b"late", &seen("one", "late")).unwrap();
    let before = answers(&store);
    drop(store);
    fs_err::remove_dir_all(&catalogue).unwrap();
    copy(&old, &catalogue);
    fs_err::remove_file(dir.path().join("CLEAN")).unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!((answers(&store), store.recovery()), (before, None));
}

/// Copies a folder of files.
fn copy(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs_err::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_damaged_catalogue_is_made_anew_with_the_same_answers() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    fill(&store);
    let before = answers(&store);
    drop(store);
    let db = dir.path().join("catalogue/db");
    let (whole, clean) = (fs_err::read(&db).unwrap(), fs_err::read(dir.path().join("CLEAN")).unwrap());
    let catalogue = dir.path().join("catalogue");
    let pristine = dir.path().join("pristine");
    copy(&catalogue, &pristine);
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap();
    let flips = (0..20).map(|step| {
        let mut damaged = whole.clone();
        damaged[used * step / 20] ^= 0x10;
        (format!("flipped at {}", used * step / 20), damaged)
    });
    let cuts = (0..8).map(|step| {
        let len = used * step / 8;
        (format!("cut to {len}"), whole[..len].to_vec())
    });
    let mut told = 0;
    for (what, damaged) in flips.chain(cuts) {
        for orderly in [true, false] {
            fs_err::remove_dir_all(&catalogue).unwrap();
            copy(&pristine, &catalogue);
            fs_err::write(&db, &damaged).unwrap();
            if orderly {
                fs_err::write(dir.path().join("CLEAN"), &clean).unwrap();
            } else {
                fs_err::remove_file(dir.path().join("CLEAN")).unwrap();
            }
            let store = Store::open(dir.path()).unwrap();
            assert_eq!(answers(&store), before, "{what}, orderly: {orderly}");
            told += usize::from(store.recovery().is_some());
            drop(store);
        }
    }
    // A flip in a byte that sled no longer reads changes nothing, and is not told.
    assert!(told >= 20, "only {told} of 56 damages were noticed");
}

#[test]
fn a_second_process_is_told_who_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    assert!(matches!(&error, Error::InUse { pid: Some(pid), .. } if *pid == std::process::id()), "{error}");
    drop(store);
    Store::open(dir.path()).unwrap();
}

#[test]
fn a_folder_of_another_kind_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::create_dir(dir.path().join("spool")).unwrap();
    fs_err::write(dir.path().join("spool/mine"), "precious").unwrap();
    assert!(matches!(Store::open(dir.path()), Err(Error::Format { .. })));
    assert!(dir.path().join("spool/mine").exists());
    let newer = tempfile::tempdir().unwrap();
    fs_err::write(newer.path().join("FORMAT"), "3\n").unwrap();
    let error = Store::open(newer.path()).unwrap_err().to_string();
    assert!(error.contains("FORMAT: is 3; this program reads formats 1 to 2: a newer jetwheel"), "{error}");
}

/// Small wheels with a library each, built by another program.
pub(crate) fn wheels(count: usize, into: &Path) {
    let specs: Vec<_> = (0..count)
        .map(|number| {
            serde_json::json!({
                "filename": format!("demo-1.{number}-cp310-cp310-linux_aarch64.whl"),
                "elfs": [{"path": "demo/_C.so", "needed": ["libcudart.so.12"], "fatbins": [["sm_87"]]}],
            })
        })
        .collect();
    make_wheels(&specs.into(), into);
}

pub(crate) fn run_json(command: &mut Command) -> (Option<i32>, serde_json::Value) {
    let output = command.args(["--format", "json"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text);
    let json =
        json.unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), json)
}

/// What `sha256sum` says of a file.
pub(crate) fn sha256sum(file: &Path) -> String {
    let output =
        Command::new("sha256sum").arg(file).output().expect("sha256sum is needed: install coreutils");
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn add_takes_wheels_and_says_what_it_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let (data, input) = (dir.path().join("data"), dir.path().join("in"));
    fs_err::create_dir_all(input.join("deeper")).unwrap();
    wheels(3, &input);
    let first = input.join("demo-1.0-cp310-cp310-linux_aarch64.whl");
    let deeper = input.join("deeper/demo-1.1-cp310-cp310-linux_aarch64.whl");
    fs_err::rename(input.join(deeper.file_name().unwrap()), &deeper).unwrap();
    // What is no whole wheel, no wheel at all, and no file.
    let bytes = fs_err::read(&first).unwrap();
    fs_err::write(input.join("cut-1.0-py3-none-any.whl"), &bytes[..bytes.len() / 2]).unwrap();
    fs_err::write(input.join("other-1.0-py3-none-any.whl"), &bytes).unwrap();
    fs_err::write(input.join("nonsense.whl"), &bytes).unwrap();
    fs_err::write(input.join("README"), "no wheel").unwrap();
    std::os::unix::fs::symlink(&first, input.join("link-1.0-py3-none-any.whl")).unwrap();
    let pipe = input.join("pipe-1.0-py3-none-any.whl");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());

    let (code, json) = run_json(jetwheel(&data).arg("add").arg(&input));
    // One of them could not be read at all.
    assert_eq!(code, Some(3));
    let files = |list: &str| -> Vec<String> {
        json[list]
            .as_array()
            .unwrap()
            .iter()
            .map(|taken| taken["file"].as_str().unwrap().to_owned())
            .collect()
    };
    let added: Vec<String> =
        [0, 1, 2].iter().map(|number| format!("demo-1.{number}-cp310-cp310-linux_aarch64.whl")).collect();
    let mut found = files("added");
    found.sort();
    assert_eq!(found, added);
    assert_eq!(files("refused"), ["cut-1.0-py3-none-any.whl", "nonsense.whl", "other-1.0-py3-none-any.whl"]);
    let refused = json["refused"].as_array().unwrap();
    assert!(refused.iter().all(|refused| refused["reason"] != ""));
    assert!(
        refused.iter().all(|one| (one["unreadable"] == true) == (one["file"] == "cut-1.0-py3-none-any.whl"))
    );
    for (file, wanted) in
        [("cut-1.0-py3-none-any.whl", 3), ("other-1.0-py3-none-any.whl", 1), ("nonsense.whl", 1)]
    {
        let output = jetwheel(&data).arg("add").arg(input.join(file)).output().unwrap();
        assert_eq!(output.status.code(), Some(wanted), "{file}");
    }
    let taken = json["added"].as_array().unwrap().iter().find(|taken| taken["file"] == *added[0]).unwrap();
    assert_eq!((&taken["sha256"], &taken["gpu"]), (&sha256sum(&first).into(), &"kernels".into()));

    let (code, json) = run_json(jetwheel(&data).arg("add").args([&first, &deeper]));
    assert_eq!((code, json["known"].as_array().unwrap().len()), (Some(0), 2));
    // A pipe or a device that is named itself is refused, too, and does not hang.
    let (code, json) = run_json(jetwheel(&data).arg("add").arg(&pipe));
    assert_eq!((code, json["refused"][0]["reason"].as_str()), (Some(1), Some("not a regular file")));
    let missing = jetwheel(&data).arg("add").arg(input.join("missing.whl")).output().unwrap();
    assert_eq!(missing.status.code(), Some(3));

    // The user's file and the store's are not one.
    fs_err::OpenOptions::new().write(true).open(&first).unwrap().write_all(b"scribble").unwrap();
    let store = Store::open(&data).unwrap();
    let rows = store.rows(&project("demo")).unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        assert_eq!(sha256sum(&store.blob(&row.facts.sha256)), row.facts.sha256.to_string());
        assert_eq!(row.provenance.upstream, "local");
        assert_eq!(row.provenance.url.as_ref(), Some(&row.facts.file));
    }
}

#[test]
fn a_second_command_is_told_which_process_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let _store = Store::open(dir.path()).unwrap();
    for verb in ["verify", "rebuild"] {
        let output = jetwheel(dir.path()).arg(verb).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
    }
}

/// Numbers that look random, the same at each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

pub(crate) fn kill_at_any_moment_loses_nothing_that_was_acknowledged(site: &Site, rounds: usize) {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    fs_err::create_dir(&input).unwrap();
    wheels(100, &input);
    let mut acknowledged = std::collections::BTreeSet::new();
    let mut dice = Dice(2026);
    for round in 0..rounds {
        let mut child = site
            .command()
            .arg("add")
            .arg(&input)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        // Known files pass quickly; the kill falls among those that are new.
        let mut left = dice.below(6);
        for line in said.by_ref() {
            let line = line.unwrap();
            if let Some((_, file)) = line.split_once("] added ") {
                acknowledged.insert(file.to_owned());
                left = left.saturating_sub(1);
            }
            if left == 0 {
                break;
            }
        }
        let moment = Instant::now() + Duration::from_micros(dice.below(20_000));
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in said.map_while(Result::ok) {
            acknowledged.extend(line.split_once("] added ").map(|(_, file)| file.to_owned()));
        }
        let store = site.open();
        assert_eq!(store.recovery(), None, "round {round}: a killed process is no damage");
        let rows = if acknowledged.is_empty() { Vec::new() } else { store.rows(&project("demo")).unwrap() };
        for row in rows.iter().filter(|row| row.held) {
            let bytes = read_blob(&store, &row.facts.sha256);
            assert_eq!(Sha256::of(&bytes), row.facts.sha256);
            assert!(store.metadata(&row.facts.sha256).unwrap().is_some());
        }
        for file in &acknowledged {
            assert!(
                rows.iter().any(|row| row.held && row.facts.file == *file),
                "round {round}: {file} is lost"
            );
        }
    }
    assert!(acknowledged.len() >= rounds, "the kills fell before anything was done");
    let (code, json) = run_json(site.command().arg("add").arg(&input));
    assert_eq!(code, Some(0), "{json}");
    let (code, json) = run_json(site.command().arg("verify"));
    assert_eq!(
        (code, json["blobs"].as_u64(), &json["findings"]),
        (Some(0), Some(100), &serde_json::json!([]))
    );
}

#[test]
fn verify_names_what_is_wrong_and_repair_mends_what_can_be_mended() {
    let dir = tempfile::tempdir().unwrap();
    let (data, input) = (dir.path().join("data"), dir.path().join("in"));
    fs_err::create_dir(&input).unwrap();
    wheels(6, &input);
    assert_eq!(run_json(jetwheel(&data).arg("add").arg(&input)).0, Some(0));
    assert_eq!(run_json(jetwheel(&data).arg("verify")).0, Some(0));
    let path = |number: u8, extension: &str| {
        let sum = sha256sum(&input.join(format!("demo-1.{number}-cp310-cp310-linux_aarch64.whl")));
        data.join(format!("blobs/sha256/{}/{sum}.{extension}", &sum[..2]))
    };
    let flip = |path: &Path| {
        let mut bytes = fs_err::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs_err::write(path, bytes).unwrap();
    };
    let member = fs_err::read(path(2, "metadata")).unwrap();
    flip(&path(0, "whl"));
    fs_err::remove_file(path(1, "whl")).unwrap();
    flip(&path(2, "metadata"));
    fs_err::remove_file(path(3, "metadata")).unwrap();
    flip(&path(4, "json"));
    fs_err::remove_file(path(5, "json")).unwrap();

    let kinds = |json: &serde_json::Value| -> Vec<(String, String, bool)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let findings = json["findings"].as_array().unwrap().iter();
        findings
            .map(|finding| {
                assert_eq!(finding["project"], "demo");
                (text(&finding["file"])[5..8].to_owned(), text(&finding["kind"]), finding["mended"] == true)
            })
            .collect()
    };
    let expected = |mended: [bool; 6]| {
        let kinds = [
            "damaged-blob",
            "missing-blob",
            "damaged-metadata",
            "damaged-metadata",
            "damaged-sidecar",
            "missing-sidecar",
        ];
        let numbered = kinds.iter().zip(mended).enumerate();
        numbered
            .map(|(number, (kind, mended))| (format!("1.{number}"), (*kind).to_owned(), mended))
            .collect::<Vec<_>>()
    };
    let (code, json) = run_json(jetwheel(&data).arg("verify"));
    assert_eq!((code, kinds(&json)), (Some(1), expected([false; 6])), "{json}");

    let (code, json) = run_json(jetwheel(&data).args(["verify", "--repair"]));
    assert_eq!((code, kinds(&json)), (Some(1), expected([false, false, true, true, true, true])), "{json}");
    assert!(data.join("quarantine").join(path(0, "whl").file_name().unwrap()).exists());
    assert_eq!(fs_err::read(path(2, "metadata")).unwrap(), member);
    assert_eq!(run_json(jetwheel(&data).arg("verify")).0, Some(0));
    let store = Store::open(&data).unwrap();
    let held: Vec<bool> = store.rows(&project("demo")).unwrap().iter().map(|row| row.held).collect();
    assert_eq!(held, [true, true, true, true, false, false], "newest first");
    let incidents = store.incidents().unwrap();
    assert_eq!(incidents.iter().filter(|incident| incident.kind == IncidentKind::DamagedBlob).count(), 2);
    drop(store);

    let (code, json) = run_json(jetwheel(&data).arg("add").arg(&input));
    assert_eq!((code, json["added"].as_array().unwrap().len()), (Some(0), 2));
    assert_eq!(run_json(jetwheel(&data).arg("verify")).0, Some(0));
}

#[test]
fn a_damaged_blob_is_fetched_again_where_that_is_possible() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    fs_err::create_dir(&input).unwrap();
    wheels(2, &input);
    let data = dir.path().join("data");
    assert_eq!(run_json(jetwheel(&data).arg("add").arg(&input)).0, Some(0));
    let store = Store::open(&data).unwrap();
    for row in store.rows(&project("demo")).unwrap() {
        fs_err::write(store.blob(&row.facts.sha256), "damaged").unwrap();
    }
    let mut report = store.verify(&|_, _| {}).unwrap();
    let good = "demo-1.1-cp310-cp310-linux_aarch64.whl";
    let fetch = |row: &Row, file: &mut fs_err::File| {
        // One upstream still has the file, the other has another one by now.
        let bytes =
            if row.facts.file == good { fs_err::read(input.join(good)).unwrap() } else { b"other".to_vec() };
        file.write_all(&bytes).map_err(|error| error.to_string())
    };
    store.repair(&mut report, Some(&fetch)).unwrap();
    let mended: Vec<_> =
        report.findings.iter().map(|finding| (finding.file.as_deref().unwrap(), finding.mended)).collect();
    assert_eq!(mended, [("demo-1.0-cp310-cp310-linux_aarch64.whl", false), (good, true)]);
    let rows = store.rows(&project("demo")).unwrap();
    assert_eq!(rows.iter().map(|row| row.held).collect::<Vec<_>>(), [true, false]);
    assert_eq!(sha256sum(&store.blob(&rows[0].facts.sha256)), sha256sum(&input.join(good)));
}

/// A sidecar that cannot be read refuses its file, and no other.
#[test]
fn a_damaged_sidecar_shows_as_a_damaged_file() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    fill(&store);
    let sidecar = store.blob(&Sha256::of(&[7])).with_extension("json");
    fs_err::write(&sidecar, "{}").unwrap();
    let rows = store.rows(&project("demo")).unwrap();
    assert_eq!(rows.len(), 30);
    let damaged: Vec<_> = rows.iter().filter(|row| !row.facts.damage.is_empty()).collect();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].facts.file, "demo-1.7-py3-none-any.whl");
}

#[test]
fn a_full_disk_loses_nothing_and_is_got_over() {
    let Some(disk) = SmallDisk::mount("store::a_full_disk_loses_nothing_and_is_got_over", 24 << 20) else {
        return;
    };
    let (dir, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
    let store = Store::open(&dir).unwrap();
    fill(&store);
    let before = answers(&store);

    // Too little is left: refused before anything is written.
    fill_up(&dir, &ballast, 1 << 20);
    let refused = put(&store, "late-1.0-py3-none-any.whl", b"late", &seen("one", "late"));
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert!(matches!(store.spool_for(1), Err(Error::Full { .. })));
    assert_eq!(answers(&store), before);
    fs_err::remove_file(&ballast).unwrap();
    put(&store, "late-1.0-py3-none-any.whl", b"late", &seen("one", "late")).unwrap();
    let before = answers(&store);

    // The space runs out in the middle: the sidecar takes the most of it, and sled has no room for the row.
    fill_up(&dir, &ballast, (2 << 20) + (600 << 10));
    let huge = Facts {
        requires_dist: vec!["x".repeat(2 << 20)],
        requires_python: Some("x".repeat(2 << 20)),
        ..facts("huge-1.0-py3-none-any.whl", b"huge")
    };
    let failed = store.put_facts(&huge, &seen("one", "huge"));
    assert!(failed.is_err(), "{failed:?}");
    let without_huge = |mut all: Vec<(ProjectName, Vec<Row>, (u64, u64))>| {
        all.retain(|(name, ..)| *name != project("huge"));
        all
    };
    assert_eq!(without_huge(answers(&store)), before, "reads go on");
    fs_err::remove_file(&ballast).unwrap();
    put(&store, "later-1.0-py3-none-any.whl", b"later", &seen("one", "later")).unwrap();
    let after = answers(&store);
    assert!(before.iter().all(|row| after.contains(row)));
    assert!(store.projects(true).unwrap().contains(&project("later")));
    drop(store);
    let store = Store::open(&dir).unwrap();
    assert_eq!((answers(&store), store.recovery()), (after.clone(), None));

    // A mirror also starts on a disk without a free byte. Sled may have to begin a segment (512 KiB) to open: the reserve
    // makes room for it.
    drop(store);
    for time in 0..40 {
        fill_up(&dir, &ballast, 0);
        let store = Store::open(&dir).unwrap_or_else(|error| panic!("{time}: {error:?}"));
        assert_eq!(answers(&store), after, "{time}");
    }
    fs_err::remove_file(&ballast).unwrap();
    let store = Store::open(&dir).unwrap();
    assert_eq!((answers(&store), store.recovery()), (after, None));
    assert_eq!(fs_err::metadata(dir.join("reserve")).unwrap().len(), 2 << 20);
}
