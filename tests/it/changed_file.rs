//! Case C23: an upstream has other bytes under a name that it had. They are taken by an explicit rule alone, into new snapshots.

use jetwheel::digest::Sha256;
use serde_json::{Value, json};

use crate::snapshot::json as run_json;
use crate::support::http::get;
use crate::support::mirror::Mirror;
use crate::support::site::Servers;
use crate::support::upstream::Upstream;
use crate::sync::{Site, each, wheels};

const ORIN: &str = "orin-jp6.2";
const FILE: &str = "demo-1.0-cp310-cp310-linux_aarch64.whl";
const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];

/// A folder with the wheel, in another version of its bytes for each note; and their digest.
fn wheel(note: &str) -> (tempfile::TempDir, Sha256) {
    let folder = wheels(&json!([{"filename": FILE, "files": {"demo/note.txt": note},
        "elfs": [{"path": "demo/_C.so", "cuda": "12.6", "fatbins": [["sm_87"]]}]}]));
    let digest = Sha256::of(&fs_err::read(folder.path().join(FILE)).unwrap());
    (folder, digest)
}

/// The newest snapshot, and how many there are.
fn newest(site: &Site) -> (String, usize) {
    let (_, list) = run_json(site.jetwheel().args(["snapshot", "list"]));
    let all = list["snapshots"].as_array().unwrap();
    (all.last().unwrap()["id"].as_str().unwrap().to_owned(), all.len())
}

/// Each address lists the bytes that belong there, and serves them; the old ones are still at the address of their digest.
fn assert_served(site: &Site, addresses: &[(String, Sha256)]) {
    let config = site.config();
    let mirror = Mirror::serving_with(&site.data(), &["--config".as_ref(), config.as_ref()]);
    for (address, digest) in addresses {
        let page = get(&mirror.url(""), &format!("/{address}/simple/demo/"), JSON).json();
        let digests: Vec<Value> =
            page["files"].as_array().unwrap().iter().map(|file| file["hashes"]["sha256"].clone()).collect();
        assert_eq!(digests, [json!(digest)], "{address}: {page}");
        let file = get(&mirror.url(""), &format!("/{address}/files/{digest}/{FILE}"), &[]);
        assert_eq!((file.status, Sha256::of(&file.body)), (200, *digest), "{address}");
    }
    for (_, digest) in addresses {
        assert_eq!(get(&mirror.url(""), &format!("/{ORIN}/files/{digest}/{FILE}"), &[]).status, 200);
    }
}

#[test]
fn c23_an_explicit_rule_takes_changed_bytes_into_a_new_snapshot_and_the_old_one_keeps_the_old() {
    for no_digests in [false, true] {
        takes_changed_bytes_by_the_rule_alone(&Site::new(), no_digests);
    }
}

#[test]
fn c23_holds_in_a_store_of_every_kind() {
    let kinds = Servers::start();
    for ((name, settings), no_digests) in kinds.pairs().into_iter().zip([false, true, false, true]).skip(1) {
        eprintln!("{name}");
        takes_changed_bytes_by_the_rule_alone(&Site::kept_in(&settings), no_digests);
    }
}

fn takes_changed_bytes_by_the_rule_alone(site: &Site, no_digests: bool) {
    let ((first, old), (second, new), (third, newer)) = (wheel("old"), wheel("new"), wheel("newer"));
    let upstream = Upstream::serving(first.path());
    let tell_no_digest = || {
        if no_digests {
            upstream.change(FILE, |file| file.sha256 = None);
        }
    };
    tell_no_digest();
    let url = upstream.url("/simple/");
    let plain = ["--device", ORIN, "--upstream", &url, "demo"];
    let accepting = [&plain[..], &["--accept-changed", FILE]].concat();
    let note = |report: &Value| report["notes"][0].as_str().unwrap_or_default().to_owned();
    site.sync(0, &plain);
    let (before, _) = newest(site);

    // With nothing changed the rule changes nothing.
    let report = site.sync(0, &accepting);
    assert!(note(&report).contains("was of no use"), "{report}");
    assert_eq!(newest(site), (before.clone(), 1));

    upstream.add_all(second.path());
    tell_no_digest();
    let report = site.sync(0, &plain);
    assert_eq!(report["kept"][0]["sha256"], json!(old), "not replaced silently");
    if !no_digests {
        assert_eq!(each(&report, "incidents", "kind"), ["changed-file"]);
        let text = report["incidents"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!("--accept-changed {FILE}")), "{text}");
    }
    assert_eq!(newest(site), (before.clone(), 1));

    let report = site.sync(0, &accepting);
    assert_eq!(report["kept"][0]["sha256"], json!(new), "{report}");
    assert!(note(&report).contains(&old.to_string()) && report["incidents"] == json!([]), "{report}");
    let (after, count) = newest(site);
    assert_eq!(count, 2);
    let addresses = [
        (format!("{ORIN}@{before}"), old),
        (format!("{ORIN}@{after}"), new),
        (format!("{ORIN}@candidate"), new),
        (ORIN.to_owned(), new),
    ];
    assert_served(site, &addresses);
    let (_, set) = run_json(site.jetwheel().args(["resolve", "demo", "--device", ORIN]));
    assert_eq!(set["packages"][0]["sha256"], json!(new), "{set}");
    let (_, explained) = run_json(site.jetwheel().args(["explain", "demo", "--device", ORIN]));
    let gone: Vec<bool> =
        explained["files"].as_array().unwrap().iter().map(|file| file["gone_since"].is_string()).collect();
    assert_eq!(gone.len(), 2, "both are known: {explained}");
    assert!(gone.contains(&true) && gone.contains(&false), "{explained}");
    let (_, diff) = run_json(site.jetwheel().args(["snapshot", "diff", &before, &after]));
    assert_eq!(
        (&diff["changed"][0]["from"], &diff["changed"][0]["to"]),
        (&json!(old), &json!(new)),
        "{diff}"
    );

    // The new bytes are what counts from now on: also in a catalogue that is made anew, and beside `gc`.
    for verb in [&["rebuild"][..], &["gc", "--older-than", "0s"], &["verify"]] {
        let (code, said) = run_json(site.jetwheel().args(verb));
        assert_eq!(code, 0, "{verb:?}: {said}");
    }
    upstream.seen();
    let report = site.sync(0, &plain);
    assert_eq!((&report["kept"][0]["sha256"], &report["incidents"]), (&json!(new), &json!([])), "{report}");
    assert!(upstream.fetched().is_empty());
    assert_eq!(newest(site), (after.clone(), 2));
    assert_served(site, &addresses);
    upstream.add_all(third.path());
    assert_eq!(each(&site.sync(0, &plain), "incidents", "kind"), ["changed-file"]);

    // Back to the first bytes: again by the rule alone.
    upstream.add_all(first.path());
    tell_no_digest();
    let report = site.sync(0, &accepting);
    assert_eq!(report["kept"][0]["sha256"], json!(old), "{report}");
    assert_served(site, &[(format!("{ORIN}@{after}"), new), (ORIN.to_owned(), old)]);
    assert_ne!(old, newer);
}

#[test]
fn a_bundle_brings_changed_bytes_to_a_site_that_has_the_old_ones() {
    let ((first, old), (second, new)) = (wheel("old"), wheel("new"));
    let upstream = Upstream::serving(first.path());
    let (site, other) = (Site::new(), Site::new());
    let url = upstream.url("/simple/");
    let run = |site: &Site, arguments: &[&str]| {
        let (code, said) = run_json(site.jetwheel().current_dir(site.folder.path()).args(arguments));
        assert_eq!(code, 0, "{arguments:?}: {said}");
        said
    };
    let bundle = site.folder.path().join("site.jwb");
    let export = |more: &[&str]| {
        run(&site, &[&["export", "--device", ORIN, "--output", bundle.to_str().unwrap()][..], more].concat())
    };
    site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);
    export(&[]);
    run(&other, &["import", bundle.to_str().unwrap()]);
    let (before, _) = newest(&other);
    upstream.add_all(second.path());
    site.sync(0, &["--device", ORIN, "--upstream", &url, "demo", "--accept-changed", FILE]);
    let receipt = site.folder.path().join("receipt.json");
    fs_err::write(&receipt, run(&other, &["inventory"]).to_string()).unwrap();
    fs_err::remove_file(&bundle).unwrap();
    let delta = export(&["--since", receipt.to_str().unwrap()]);
    assert_eq!((&delta["listed"], &delta["packed"]), (&json!(1), &json!(1)), "{delta}");
    run(&other, &["import", bundle.to_str().unwrap()]);
    assert_served(&other, &[(format!("{ORIN}@{before}"), old), (ORIN.to_owned(), new)]);
}
