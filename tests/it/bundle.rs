//! Bundles for sites without network: round trip, delta, and everything that can be wrong with one.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jetwheel::digest::Sha256;

use crate::snapshot::{add, json, wheel};
use crate::support::clients::{JETPACK_6, Pip};
use crate::support::disk::{SmallDisk, free};
use crate::support::http::get;
use crate::support::jetwheel;
use crate::support::mirror::Mirror;

const ORIN: &str = "orin-jp6.2";

/// A site with some wheels, and a key.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn with_wheels(count: usize) -> Self {
        let site = Self { dir: tempfile::tempdir().unwrap() };
        let wheels: Vec<PathBuf> =
            (0..count).map(|number| wheel(&site.path("in"), "demo", &format!("1.{number}"), "")).collect();
        add(&site.data(), &wheels.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        assert_eq!(json(jetwheel(&site.data()).args(["export", "--make-key"]).arg(site.path("key"))).0, 0);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Exports with more arguments; yields the bundle and the report.
    fn export(&self, name: &str, arguments: &[&str]) -> (PathBuf, serde_json::Value) {
        let bundle = self.path(name);
        let mut command = jetwheel(&self.data());
        command.args(["export", "--device", ORIN, "--output"]).arg(&bundle);
        let (code, report) = json(command.arg("--key").arg(self.path("key")).args(arguments));
        assert_eq!(code, 0, "{report}");
        (bundle, report)
    }

    /// Imports into another data folder with this site's key; yields exit code and report.
    fn import(&self, data: &Path, bundle: &Path, arguments: &[&str]) -> (i32, serde_json::Value) {
        let mut command = jetwheel(data);
        command.arg("import").arg(bundle).arg("--public-key").arg(self.path("key.pub"));
        json(command.args(arguments))
    }
}

fn minisign_agrees(bundle: &Path, key: &Path) -> bool {
    let output = Command::new("minisign").arg("-Vm").arg(bundle).arg("-p").arg(key).output();
    output.expect("minisign is needed: install it, or run ./ci.sh test, which does").status.success()
}

fn count(data: &Path) -> u64 {
    let (_, inventory) = json(jetwheel(data).arg("inventory"));
    inventory["files"].as_array().unwrap().len() as u64
}

#[test]
fn a_bundle_goes_round_and_a_delta_after_it() {
    let (a, b) = (Site::with_wheels(20), tempfile::tempdir().unwrap());
    let data = b.path().join("data");
    let (full, report) = a.export("full.jwb", &[]);
    assert_eq!((&report["listed"], &report["packed"]), (&20.into(), &20.into()));
    assert!(minisign_agrees(&full, &a.path("key.pub")));
    // Any tar reads it; the manifest comes first, and its own signature is good as well.
    let listing = Command::new("tar").arg("-tf").arg(&full).output().unwrap();
    let names = String::from_utf8(listing.stdout).unwrap();
    assert!(names.starts_with("manifest.json\nmanifest.json.minisig\nwheels/"), "{names}");
    let unpacked = a.path("unpacked");
    fs_err::create_dir(&unpacked).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(&full).arg("-C").arg(&unpacked).status().unwrap().success());
    assert!(minisign_agrees(&unpacked.join("manifest.json"), &a.path("key.pub")));

    let (code, imported) = a.import(&data, &full, &[]);
    assert_eq!(
        (code, &imported["taken"], &imported["signature"]),
        (0, &20.into(), &"verified".into()),
        "{imported}"
    );
    assert_eq!(imported["facts_differ"], serde_json::json!([]));
    let (_, list) = json(jetwheel(&data).args(["snapshot", "list"]));
    assert_eq!(list["channels"]["candidate"]["current"], imported["snapshot"]);
    let mirror = Mirror::serving(&data);
    let fetched = Pip::newest().download(&mirror.index_url(ORIN), JETPACK_6, "demo==1.7");
    assert!(fetched.done, "{}", fetched.said);
    let name = "demo-1.7-cp310-cp310-linux_aarch64.whl";
    assert_eq!(fetched.bytes(name), fs_err::read(a.path("in").join(name)).unwrap());

    // The same once more changes nothing, also beside the running server.
    let (code, again) = a.import(&data, &full, &[]);
    assert_eq!((code, &again["taken"], &again["known"]), (0, &0.into(), &20.into()), "{again}");
    assert_eq!(again["snapshot"], imported["snapshot"]);

    let receipt = b.path().join("receipt.json");
    fs_err::write(&receipt, jetwheel(&data).arg("inventory").output().unwrap().stdout).unwrap();
    add(&a.data(), &[&wheel(&a.path("in"), "demo", "2.0", "")]);
    let (delta, report) = a.export("delta.jwb", &["--since", receipt.to_str().unwrap()]);
    assert_eq!((&report["listed"], &report["packed"]), (&21.into(), &1.into()));
    let (small, large) = (fs_err::metadata(&delta).unwrap().len(), fs_err::metadata(&full).unwrap().len());
    assert!(small * 5 < large, "{small} of {large} bytes");
    let (code, imported) = a.import(&data, &delta, &[]);
    assert_eq!((code, &imported["taken"]), (0, &1.into()), "{imported}");
    assert!(Pip::newest().download(&mirror.index_url(ORIN), JETPACK_6, "demo==2.0").done);
    drop(mirror);
    assert_eq!(json(jetwheel(&data).arg("verify")).0, 0);

    // An older bundle is refused from now on, unless that is meant.
    let (code, said) = a.import(&data, &full, &[]);
    assert_eq!(code, 1);
    assert!(said.as_str().unwrap().contains("older than what this site has"), "{said}");
    let (code, back) = a.import(&data, &full, &["--allow-older"]);
    assert_eq!(code, 0, "{back}");
    // The delta is for another state than that of an empty site.
    let (code, said) = a.import(&b.path().join("empty"), &delta, &[]);
    assert_eq!(code, 3);
    assert!(said.as_str().unwrap().contains("delta for another state"), "{said}");
    assert_eq!(count(&b.path().join("empty")), 0);
}

#[test]
fn every_wrong_bundle_is_refused_by_its_own_message_and_changes_nothing() {
    let (a, other) = (Site::with_wheels(3), Site::with_wheels(1));
    let (full, _) = a.export("full.jwb", &[]);
    let good = fs_err::read(&full).unwrap();
    let signature = fs_err::read(a.path("full.jwb.minisig")).unwrap();
    let b = tempfile::tempdir().unwrap();
    let data = b.path().join("data");
    let bundle = b.path().join("bundle.jwb");
    let try_with = |bytes: &[u8], signed: bool, key: &Path| -> (i32, String) {
        fs_err::write(&bundle, bytes).unwrap();
        let beside = b.path().join("bundle.jwb.minisig");
        if signed {
            fs_err::write(&beside, &signature).unwrap();
        } else if beside.exists() {
            fs_err::remove_file(&beside).unwrap();
        }
        let mut command = jetwheel(&data);
        let output = command.arg("import").arg(&bundle).arg("--public-key").arg(key).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let place = |needle: &[u8]| good.windows(needle.len()).rposition(|window| window == needle).unwrap();
    let (key, foreign) = (a.path("key.pub"), other.path("key.pub"));

    // A byte of the second wheel, with and without the signature beside the bundle.
    let mut flipped = good.clone();
    let name = "demo-1.1-cp310-cp310-linux_aarch64.whl";
    // Behind the long name comes a header of 512 bytes.
    flipped[place(name.as_bytes()) + 1100] ^= 1;
    for signed in [true, false] {
        let (code, said) = try_with(&flipped, signed, &key);
        assert_eq!(code, if signed { 1 } else { 3 }, "{said}");
        assert!(said.contains(name) && said.contains("sha256"), "{said}");
    }
    let mut manifest = good.clone();
    let at = manifest.windows(7).position(|window| window == b"created").unwrap();
    manifest[at + 12] ^= 1;
    for signed in [true, false] {
        let (code, said) = try_with(&manifest, signed, &key);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("manifest.json differs"), "{said}");
    }
    // Padding between members is under the signature alone.
    let mut padding = good.clone();
    *padding.last_mut().unwrap() ^= 1;
    let (code, said) = try_with(&padding, true, &key);
    assert_eq!(code, 1);
    assert!(said.contains("changed after it was signed"), "{said}");
    for length in [good.len() - 1024, good.len() - 4096, place(name.as_bytes()) + 1100, 700, 0] {
        for signed in [true, false] {
            let (code, said) = try_with(&good[..length], signed, &key);
            assert!(code != 0 && said.contains("cut short"), "{length}: {said}");
        }
    }
    let (code, said) = try_with(&good, true, &foreign);
    assert_eq!(code, 1);
    assert!(said.contains("signed by the key"), "{said}");
    // Signed by nobody.
    let bare = a.path("bare.jwb");
    let mut command = jetwheel(&a.data());
    command.args(["export", "--device", ORIN, "--output"]).arg(&bare);
    assert_eq!(json(&mut command).0, 0);
    let (code, said) = try_with(&fs_err::read(&bare).unwrap(), false, &key);
    assert_eq!(code, 1);
    assert!(said.contains("is not signed"), "{said}");

    assert_eq!(count(&data), 0, "nothing was switched");
    let (_, list) = json(jetwheel(&data).args(["snapshot", "list"]));
    assert_eq!(list["snapshots"], serde_json::json!([]));
    assert_eq!(try_with(&good, true, &key).0, 0, "what was unpacked before does no harm");
    assert_eq!(count(&data), 3);
}

/// A tar whose manifest is right and whose members are not those that it promises.
#[test]
fn hostile_archives_lead_nowhere() {
    let a = Site::with_wheels(1);
    let (full, _) = a.export("full.jwb", &[]);
    let unpacked = a.path("unpacked");
    fs_err::create_dir(&unpacked).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(&full).arg("-C").arg(&unpacked).status().unwrap().success());
    let digest = Sha256::of(&fs_err::read(a.path("in/demo-1.0-cp310-cp310-linux_aarch64.whl")).unwrap());
    let wheel = format!("wheels/{digest}/demo-1.0-cp310-cp310-linux_aarch64.whl");
    fs_err::write(unpacked.join("evil"), "evil").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", unpacked.join("link")).unwrap();
    let transforms: [(&str, &[&str]); 4] = [
        ("s,^evil,../../evil,", &["manifest.json", "evil", &wheel]),
        ("s,^evil,/tmp/evil-of-a-bundle,", &["manifest.json", "evil", &wheel]),
        ("s,^nothing,nothing,", &["manifest.json", "link", &wheel]),
        ("s,^nothing,nothing,", &["manifest.json", &wheel, &wheel]),
    ];
    for (number, (transform, members)) in transforms.iter().enumerate() {
        let (bundle, data) = (a.path("evil.jwb"), a.path(&format!("data-{number}")));
        let mut tar = Command::new("tar");
        tar.arg("-cPf").arg(&bundle).arg("-C").arg(&unpacked).args([
            "--hard-dereference",
            "--transform",
            transform,
        ]);
        assert!(tar.args(*members).status().unwrap().success());
        let (code, said) = json(jetwheel(&data).arg("import").arg(&bundle));
        assert_eq!(code, 3, "{members:?}: {said}");
        assert_eq!(count(&data), 0);
    }
    assert!(!Path::new("/tmp/evil-of-a-bundle").exists());
}

#[test]
fn parts_policy_and_locks_travel() {
    let a = Site::with_wheels(4);
    let policies = a.path("policies");
    fs_err::create_dir_all(policies.join("advisories")).unwrap();
    let advisory = "[[advisory]]\nid = \"X-1\"\nproject = \"demo\"\nversions = \"==1.0\"\ndevices = [\"orin-*\"]\n\
        action = \"refuse\"\ntext = \"computes wrongly\"\nsources = [\"https://bugs.example/1\"]\n";
    fs_err::write(policies.join("advisories/x.toml"), advisory).unwrap();
    fs_err::write(a.path("robots.lock"), "demo==1.1\n").unwrap();
    let (lock, folder) = (a.path("robots.lock"), policies.to_str().unwrap());
    let (bundle, report) =
        a.export("parts.jwb", &["--split", "9000", "--lock", lock.to_str().unwrap(), "--policies", folder]);
    let parts = report["files"].as_array().unwrap();
    assert!(parts.len() > 2, "{report}");
    assert_eq!(report["listed"], 3, "an advisory hides one");
    let whole: Vec<u8> =
        parts.iter().flat_map(|part| fs_err::read(part.as_str().unwrap()).unwrap()).collect();
    fs_err::write(a.path("joined"), whole).unwrap();
    fs_err::copy(a.path("parts.jwb.minisig"), a.path("joined.minisig")).unwrap();
    assert!(minisign_agrees(&a.path("joined"), &a.path("key.pub")));

    let b = tempfile::tempdir().unwrap();
    let data = b.path().join("data");
    fs_err::rename(a.path("parts.jwb.002"), a.path("lost")).unwrap();
    let (code, said) = a.import(&data, &bundle, &[]);
    assert_eq!(code, 3);
    assert!(said.as_str().unwrap().contains("parts.jwb.002"), "{said}");
    fs_err::rename(a.path("lost"), a.path("parts.jwb.002")).unwrap();
    let last = PathBuf::from(parts.last().unwrap().as_str().unwrap());
    let bytes = fs_err::read(&last).unwrap();
    fs_err::remove_file(&last).unwrap();
    let (code, said) = a.import(&data, &bundle, &[]);
    assert_ne!(code, 0);
    assert!(said.as_str().unwrap().contains(last.to_str().unwrap()), "{said}");
    fs_err::write(&last, bytes).unwrap();
    let (code, imported) = a.import(&data, &a.path("parts.jwb.001"), &[]);
    assert_eq!((code, &imported["policy"]), (0, &serde_json::json!(["advisories/x.toml"])), "{imported}");
    assert_eq!(fs_err::read_to_string(data.join("locks/robots.lock")).unwrap(), "demo==1.1\n");
    let (_, advisories) = json(jetwheel(&data).args(["advisories", "--device", ORIN]));
    let ids: Vec<_> = advisories["advisories"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert!(ids.contains(&&"X-1".into()), "{ids:?}");
}

#[test]
fn an_interrupted_import_goes_on_and_shows_nothing_before_its_end() {
    let a = Site::with_wheels(20);
    let (full, _) = a.export("full.jwb", &[]);
    let b = tempfile::tempdir().unwrap();
    let data = b.path().join("data");
    let page = |mirror: &Mirror| get(&mirror.url(""), &format!("/{ORIN}@candidate/simple/demo/"), &[]).status;
    for round in 0..4_u64 {
        let mut child = jetwheel(&data)
            .arg("import")
            .arg(&full)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begin = std::time::Instant::now();
        while begin.elapsed() < std::time::Duration::from_millis(10 + round * 35) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        let ended = child.wait().unwrap().success();
        let (_, list) = json(jetwheel(&data).args(["snapshot", "list"]));
        let snapshots = list["snapshots"].as_array().unwrap();
        assert!(snapshots.len() <= 1 && (!ended || snapshots.len() == 1), "{list}");
        assert!(snapshots.iter().all(|snapshot| snapshot["count"] == 20), "the whole or nothing: {list}");
    }
    let (code, imported) = a.import(&data, &full, &[]);
    assert_eq!(code, 0, "{imported}");
    assert_eq!(count(&data), 20);
    assert_eq!(json(jetwheel(&data).arg("verify")).0, 0);
    assert_eq!(page(&Mirror::serving(&data)), 200);
    assert_eq!(fs_err::read_dir(data.join("incoming")).unwrap().count(), 0);
}

/// C31, from bandersnatch#1472 and #736: every place of every blob, and of the manifest, is under watch.
#[test]
fn a_flipped_byte_anywhere_stops_the_import_and_is_told_by_its_item() {
    let a = Site::with_wheels(3);
    let (full, _) = a.export("full.jwb", &[]);
    let good = fs_err::read(&full).unwrap();
    let b = tempfile::tempdir().unwrap();
    let data = b.path().join("data");
    let place_of = |bytes: &[u8]| good.windows(bytes.len()).position(|window| window == bytes).unwrap();
    let mut items = Vec::new();
    for version in 0..3 {
        let name = format!("demo-1.{version}-cp310-cp310-linux_aarch64.whl");
        let blob = fs_err::read(a.path("in").join(&name)).unwrap();
        items.push((name, place_of(&blob), blob.len()));
    }
    let unpacked = Command::new("tar").arg("-xOf").arg(&full).arg("manifest.json").output().unwrap().stdout;
    items.push(("manifest.json".to_owned(), place_of(&unpacked), unpacked.len()));
    for (item, start, length) in items {
        for at in [start, start + 1, start + length / 3, start + length / 2, start + length - 1] {
            let mut flipped = good.clone();
            flipped[at] ^= 0x10;
            let bundle = b.path().join("flipped.jwb");
            fs_err::write(&bundle, flipped).unwrap();
            for signed in [true, false] {
                let beside = b.path().join("flipped.jwb.minisig");
                if signed {
                    fs_err::copy(a.path("full.jwb.minisig"), &beside).unwrap();
                } else {
                    fs_err::remove_file(&beside).unwrap();
                }
                let (code, said) = a.import(&data, &bundle, &[]);
                assert!([1, 3].contains(&code), "byte {at}: {said}");
                assert!(said.as_str().unwrap().contains(&item), "byte {at}, {item}: {said}");
            }
        }
    }
    assert_eq!(count(&data), 0, "nothing was switched");
    assert_eq!(a.import(&data, &full, &[]).0, 0);
    assert_eq!(count(&data), 3);
}

#[test]
fn requirements_choose_the_closure_for_each_device_from_the_snapshot_alone() {
    let a = Site::with_wheels(2);
    let thor = serde_json::json!([{
        "filename": "demo-1.1-cp312-cp312-linux_aarch64.whl",
        "elfs": [{"path": "demo/_C.so", "needed": ["libcudart.so.13"], "cuda": "13.0", "fatbins": [["sm_110"]]}],
    }, {"filename": "other-1.0-py3-none-any.whl"}]);
    crate::support::make_wheels(&thor, &a.path("in"));
    let first = add(
        &a.data(),
        &[&a.path("in/demo-1.1-cp312-cp312-linux_aarch64.whl"), &a.path("in/other-1.0-py3-none-any.whl")],
    );
    add(&a.data(), &[&wheel(&a.path("in"), "demo", "2.0", "")]);
    fs_err::write(a.path("limits.txt"), "demo<3\n").unwrap();
    let limits = a.path("limits.txt");
    let limited = ["--device", "thor-jp7.0", "-c", limits.to_str().unwrap()];
    let files = |bundle: &Path| {
        let manifest = Command::new("tar").arg("-xOf").arg(bundle).arg("manifest.json").output().unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest.stdout).unwrap();
        let names = |list: &str, key: &str| -> Vec<String> {
            let list = manifest[list].as_array().unwrap().iter();
            list.map(|one| one[key].as_str().unwrap().to_owned()).collect()
        };
        (names("files", "file"), names("locks", "name"))
    };
    let locks = ["pylock.orin-jp6_2.toml", "pylock.thor-jp7_0.toml"].map(str::to_owned).to_vec();
    let (now, _) = a.export("now.jwb", &[&limited[..], &["demo"]].concat());
    let both = ["demo-1.1-cp312-cp312-linux_aarch64.whl", "demo-2.0-cp310-cp310-linux_aarch64.whl"];
    assert_eq!(files(&now), (both.map(str::to_owned).to_vec(), locks.clone()));
    let (then, _) =
        a.export("then.jwb", &[&limited[..], &["demo", "--snapshot", first.as_deref().unwrap()]].concat());
    let both = ["demo-1.1-cp310-cp310-linux_aarch64.whl", "demo-1.1-cp312-cp312-linux_aarch64.whl"];
    assert_eq!(files(&then), (both.map(str::to_owned).to_vec(), locks));

    // What cannot be had is a no, and writes nothing.
    let mut command = jetwheel(&a.data());
    command.args(["export", "--device", ORIN, "demo>=3", "--output"]).arg(a.path("none.jwb"));
    let (code, answer) = json(&mut command);
    assert_eq!((code, &answer["device"]), (1, &ORIN.into()), "{answer}");
    assert!(answer["error"]["text"].as_str().unwrap().contains("demo"), "{answer}");
    assert!(!a.path("none.jwb").exists());
}

/// What was unpacked by an import that ran out of space is kept, and the next one needs room for the rest alone.
#[test]
fn a_full_disk_stops_an_import_before_the_switch_and_a_later_one_goes_on() {
    let test = "bundle::a_full_disk_stops_an_import_before_the_switch_and_a_later_one_goes_on";
    let Some(disk) = SmallDisk::mount(test, 32 << 20) else { return };
    let a = Site { dir: tempfile::tempdir().unwrap() };
    let heavy = |number: usize| {
        serde_json::json!({
            "filename": format!("heavy{number}-1.0-cp310-cp310-linux_aarch64.whl"),
            "elfs": [{"path": "heavy/_C.so", "payload": 3_000_000, "fatbins": [["sm_87"]]}],
        })
    };
    let folder = a.path("in");
    fs_err::create_dir(&folder).unwrap();
    crate::support::make_wheels(&(0..5).map(heavy).collect(), &folder);
    add(&a.data(), &[&folder]);
    assert_eq!(json(jetwheel(&a.data()).args(["export", "--make-key"]).arg(a.path("key"))).0, 0);
    let (full, _) = a.export("full.jwb", &[]);
    let (data, ballast) = (disk.path().join("data"), disk.path().join("ballast"));
    let fill_up_to = |left: u64| {
        let bytes = usize::try_from(free(disk.path()).saturating_sub(left)).unwrap();
        let _full = fs_err::write(&ballast, vec![1; bytes]);
    };
    let untouched = || {
        let (_, list) = json(jetwheel(&data).args(["snapshot", "list"]));
        count(&data) == 0 && list["snapshots"] == serde_json::json!([])
    };

    // Too little from the beginning: nothing is even unpacked.
    assert!(untouched());
    fill_up_to(9 << 20);
    let (code, said) = a.import(&data, &full, &[]);
    assert_eq!(code, 3, "{said}");
    assert!(said.as_str().unwrap().contains("are free on the disk"), "{said}");
    fs_err::remove_file(&ballast).unwrap();
    assert!(untouched());

    // The space goes while it is unpacked: the process is held as soon as it says that it reads the first wheel.
    let stopped = (0..10).any(|_| {
        let mut command = jetwheel(&data);
        command.arg("import").arg(&full).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("reading heavy")));
        let signal =
            |name: &str| Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
        signal("-STOP");
        fill_up_to(0);
        signal("-CONT");
        let said: Vec<String> = lines.collect();
        let code = child.wait().unwrap().code();
        fs_err::remove_file(&ballast).unwrap();
        if code == Some(0) {
            // It was done before it could be held.
            fs_err::remove_dir_all(&data).unwrap();
            return false;
        }
        assert_eq!(code, Some(3), "{said:?}");
        assert!(said.iter().any(|line| line.contains("heavy") && line.contains("No space left")), "{said:?}");
        true
    });
    assert!(stopped, "the import was always faster than the signal");
    assert!(untouched());
    let (code, imported) = a.import(&data, &full, &[]);
    assert_eq!((code, &imported["taken"]), (0, &5.into()), "{imported}");
    assert_eq!(json(jetwheel(&data).arg("verify")).0, 0);
}

/// What a newer program at site A knows of is in force at B; what B's program cannot read stops the import.
#[test]
fn advisories_of_a_newer_sender_are_in_force_and_a_policy_of_another_form_is_refused() {
    let a = Site::with_wheels(1);
    let (full, _) = a.export("full.jwb", &[]);
    let unpacked = a.path("unpacked");
    fs_err::create_dir(&unpacked).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(&full).arg("-C").arg(&unpacked).status().unwrap().success());
    let text = fs_err::read_to_string(unpacked.join("manifest.json")).unwrap();
    let with = |edit: &dyn Fn(&mut serde_json::Value)| {
        let mut manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        edit(&mut manifest);
        fs_err::write(unpacked.join("manifest.json"), manifest.to_string()).unwrap();
        let bundle = a.path("edited.jwb");
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(&bundle).arg("-C").arg(&unpacked).args(["manifest.json"]);
        let wheel = &manifest["wheels"][0];
        let path = ["sha256", "file"].map(|key| wheel[key].as_str().unwrap()).join("/");
        assert!(tar.arg(format!("wheels/{path}")).status().unwrap().success());
        bundle
    };
    let data = a.path("b");
    let refused = with(&|manifest| {
        manifest["policy"] = serde_json::json!([{"name": "rules.toml", "text": "unheard_of = 1\n"}]);
    });
    let (code, said) = json(jetwheel(&data).arg("import").arg(refused));
    assert_eq!(code, 3);
    assert!(said.as_str().unwrap().contains("policy cannot be used here: rules.toml"), "{said}");
    assert_eq!(json(jetwheel(&data).args(["snapshot", "list"])).1["snapshots"], serde_json::json!([]));

    let newer = with(&|manifest| {
        let advisories = manifest["advisories"].as_array_mut().unwrap();
        advisories
            .push(serde_json::json!({"id": "X-2", "project": "demo", "action": "refuse", "text": "hangs"}));
        advisories.push(serde_json::json!({"id": "X-3", "of_another_form": true}));
    });
    let (code, imported) = json(jetwheel(&data).arg("import").arg(newer));
    assert_eq!(code, 0, "{imported}");
    let (_, advisories) = json(jetwheel(&data).args(["advisories", "--device", ORIN]));
    let ids: Vec<_> = advisories["advisories"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids.iter().filter(|id| **id == "X-2").count(), 1, "{ids:?}");
    let (code, explained) = json(jetwheel(&data).args(["explain", "demo", "--device", ORIN]));
    assert_eq!(explained["files"][0]["reasons"][0]["code"], "advisory", "{code}: {explained}");
}

/// A name or an extended header may be as long as the bundle: it is not read into memory to be refused.
#[test]
fn headers_without_end_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("bundle.jwb");
    for (kind, said) in [
        (tar::EntryType::GNULongName, "has 1000000000000 bytes, at most 400 are read"),
        (tar::EntryType::XHeader, "a bundle begins with manifest.json"),
        (tar::EntryType::XGlobalHeader, "a bundle begins with manifest.json"),
        (tar::EntryType::GNULongLink, "a bundle begins with manifest.json"),
        (tar::EntryType::GNUSparse, "what comes after manifest.json"),
    ] {
        let mut header = tar::Header::new_gnu();
        let path = if kind == tar::EntryType::GNUSparse { "manifest.json" } else { "long" };
        header.set_path(path).unwrap();
        header.set_entry_type(kind);
        header.set_size(if kind == tar::EntryType::GNUSparse { 512 } else { 1_000_000_000_000 });
        header.set_cksum();
        fs_err::write(&bundle, [header.as_bytes().as_slice(), &[b'a'; 4096]].concat()).unwrap();
        let output = jetwheel(&dir.path().join("data")).arg("import").arg(&bundle).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && text.contains(said), "{kind:?}: {text}");
    }
    // Nor is a signature that is a disk full of zeros.
    let site = Site::with_wheels(1);
    let (full, _) = site.export("full.jwb", &[]);
    fs_err::File::create(site.path("full.jwb.minisig")).unwrap().set_len(1 << 34).unwrap();
    assert_ne!(site.import(&dir.path().join("data"), &full, &[]).0, 0);
}
