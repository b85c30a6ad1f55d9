//! The machines that `detect` sees: imitated roots, and pasted output.

use jetwheel::policy::Policy;
use serde_json::{Value, json};

use crate::support::{data, jetwheel};

/// What `jetwheel detect` answers, with its exit code.
fn detect(arguments: &[&std::ffi::OsStr]) -> (Value, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let output =
        jetwheel(folder.path()).args(["detect", "--format", "json"]).args(arguments).output().unwrap();
    let answer = serde_json::from_slice(&output.stdout);
    (answer.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))), output.status.code())
}

fn detect_root(name: &std::path::Path) -> (Value, Option<i32>) {
    detect(&["--root".as_ref(), name.as_os_str()])
}

#[test]
fn detects_every_chip_and_release() {
    let policy = Policy::builtin();
    let mut seen = 0;
    for entry in fs_err::read_dir(data("roots")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !path.is_dir() || name.starts_with("odd-") {
            continue;
        }
        let (answer, code) = detect_root(&path);
        // A TX1 has the profile of the same chip in the Nano.
        assert_eq!(answer["device"], policy.device(&name).unwrap().id, "{answer}");
        assert_eq!((code, &answer["notes"]), (Some(0), &json!([])), "{name}: {answer}");
        assert!(!answer["evidence"].as_array().unwrap().is_empty());
        seen += 1;
    }
    assert_eq!(seen, 11);
}

#[test]
fn tells_what_does_not_fit() {
    let notes = |answer: &Value| answer["notes"].to_string();
    let (answer, _) = detect_root(&data("roots/odd-unknown-l4t"));
    assert_eq!(answer["device"], "orin-jp6.2.1", "{answer}");
    assert_eq!(answer["notes"][0]["code"], "nearest-profile");

    let (answer, _) = detect_root(&data("roots/odd-container"));
    assert_eq!(answer["device"], "orin-jp6.0", "{answer}");
    for word in ["12345678", "differ", "tegra234 alone", "12.8", "5.15.148-tegra"] {
        assert!(notes(&answer).contains(word), "{word}: {answer}");
    }

    let (answer, code) = detect_root(&data("roots/odd-arm-server"));
    assert_eq!((&answer["device"], code), (&Value::Null, Some(1)), "{answer}");
}

#[test]
fn links_do_not_lead_out_of_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    for path in ["proc/device-tree", "etc", "usr/local/cuda-12.6"] {
        fs_err::create_dir_all(root.join(path)).unwrap();
    }
    fs_err::create_dir_all(&outside).unwrap();
    fs_err::write(root.join("proc/device-tree/compatible"), b"nvidia,tegra234\0").unwrap();
    let release = "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic, EABI: aarch64, DATE: x\n";
    fs_err::write(outside.join("release"), release).unwrap();
    std::os::unix::fs::symlink("../../outside/release", root.join("etc/nv_tegra_release")).unwrap();
    // An absolute link starts at the root that is looked at.
    std::os::unix::fs::symlink("/usr/local/cuda-12.6", root.join("usr/local/cuda")).unwrap();
    fs_err::write(root.join("usr/local/cuda-12.6/version.json"), "{\"cuda\": {\"version\": \"12.6.68\"}}")
        .unwrap();
    let (answer, code) = detect_root(&root);
    assert_eq!(code, Some(1), "{answer}");
    assert!(answer["evidence"].to_string().contains("CUDA 12.6.68"), "{answer}");
    fs_err::write(root.join("release"), release).unwrap();
    fs_err::remove_file(root.join("etc/nv_tegra_release")).unwrap();
    std::os::unix::fs::symlink("../../../release", root.join("etc/nv_tegra_release")).unwrap();
    assert_eq!(detect_root(&root).0["device"], "orin-jp6.2");
}

/// The first output follows `jetson_stats` issue 603, with a terminal's colours put in; the others are the same program's
/// other forms.
#[test]
fn detects_by_pasted_output() {
    let folder = tempfile::tempdir().unwrap();
    let pasted = folder.path().join("pasted.txt");
    for (text, device) in [
        (
            "Software part of jetson-stats 4.3.0 - (c) 2024, Raffaello Bonghi\n\u{1b}[1;31mJetpack missing!\u{1b}[0m\n - \
             Model: NVIDIA Jetson Orin NX Engineering Reference Developer Kit\n - \u{1b}[1mL4T:\u{1b}[0m 36.4.3\nHardware:\n \
             - P-Number: p3767-0001\n - Module: NVIDIA Jetson Orin NX (8GB ram)\nPlatform:\n - Release: \
             5.15.148-tegra\nLibraries:\n - CUDA: 12.6.68\n",
            json!("orin-jp6.2"),
        ),
        ("Model: Jetson AGX Orin - Jetpack 5.1.1 [L4T 35.3.1]\n - SoC: tegra23x\n", json!("orin-jp5.1.1")),
        ("NVIDIA Jetson Nano (Developer Kit Version) - Jetpack 4.6.1 [L4T 32.7.1]\n", json!("nano-jp4.6.1")),
        ("Model: NVIDIA Jetson Orin Nano Super - Jetpack 6.2 [L4T 36.4.3]\n", json!("orin-jp6.2")),
        ("Model: NVIDIA Jetson AGX Thor Developer Kit - Jetpack 7.0 [L4T 38.2.0]\n", json!("thor-jp7.0")),
        ("Hello\n", Value::Null),
    ] {
        fs_err::write(&pasted, text).unwrap();
        let (answer, _) = detect(&["--jetson-release".as_ref(), pasted.as_os_str()]);
        assert_eq!(answer["device"], device, "{answer}");
    }
}
