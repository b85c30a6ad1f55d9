//! What a device fetches from the mirror and runs: the set-up script under real shells, the GPU check with a real torch.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::snapshot::json;
use crate::support::clients::client_program;
use crate::support::http::{get, send};
use crate::support::mirror::Mirror;
use crate::support::{data, jetwheel, make_wheels};

/// Imitated roots (`tests/data/roots`) and what they are.
const ROOTS: [(&str, &str); 5] = [
    ("xavier-jp5.1.5", "xavier-jp5.1.5"),
    ("orin-jp5.1.1", "orin-jp5.1.1"),
    ("orin-jp6.2.1", "orin-jp6.2.1"),
    ("orin-jp7.2", "orin-jp7.2"),
    ("thor-jp7.0", "thor-jp7.0"),
];

fn run(shell: &[&str], script: &Path, root: &Path, home: &str, arguments: &[&str]) -> Output {
    let (program, before) = shell.split_first().unwrap();
    Command::new(program)
        .args(before)
        .arg(script)
        .arg("--root")
        .arg(root)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", home)
        .output()
        .unwrap_or_else(|error| {
            panic!("{program} is needed for this test ({error}): run ./ci.sh test, which installs it")
        })
}

/// A copy of an imitated root, in which the script may write.
fn copied(name: &str, into: &Path) -> std::path::PathBuf {
    let status = Command::new("cp").arg("-r").arg(data("roots").join(name)).arg(into).status().unwrap();
    assert!(status.success());
    into.join(name)
}

#[test]
fn set_up_names_the_profile_writes_both_files_and_takes_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::serving(&dir.path().join("store"));
    for (root, device) in ROOTS {
        let script = dir.path().join("setup.sh");
        let answer = get(&mirror.url(""), &format!("/{device}/setup.sh"), &[]);
        assert_eq!(answer.status, 200, "{device}");
        fs_err::write(&script, &answer.body).unwrap();
        for (number, shell) in [&["dash"][..], &["busybox", "sh"]].into_iter().enumerate() {
            let copies = dir.path().join(format!("{device}-{number}"));
            fs_err::create_dir(&copies).unwrap();
            let root = copied(root, &copies);
            let pip = root.join("home/user/.config/pip/pip.conf");
            let uv = root.join("home/user/.config/uv/uv.toml");
            fs_err::create_dir_all(pip.parent().unwrap()).unwrap();
            fs_err::write(&pip, "[global]\ntimeout = 60\n").unwrap();

            let output = run(shell, &script, &root, "/home/user", &[]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                output.status.success(),
                "{shell:?} {device}: {said} {}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(said.contains(&format!("this machine: {device} ")), "{shell:?} {device}: {said}");
            let index = format!("http://mirror.test/{device}/simple/");
            let written = fs_err::read_to_string(&pip).unwrap();
            assert!(
                written.contains(&format!("index-url = {index}\ntrusted-host = mirror.test\n")),
                "{written}"
            );
            let written: toml::Table = fs_err::read_to_string(&uv).unwrap().parse().unwrap();
            assert_eq!(written["index"][0]["url"].as_str(), Some(index.as_str()));

            assert!(run(shell, &script, &root, "/home/user", &["--undo"]).status.success());
            assert_eq!(fs_err::read_to_string(&pip).unwrap(), "[global]\ntimeout = 60\n");
            assert!(!uv.exists());
        }
    }
}

/// Runs a script with something on its standard input.
fn told(shell: &[&str], script: &Path, root: &Path, input: &str, arguments: &[&str]) -> Output {
    let file = root.join("input");
    fs_err::write(&file, input).unwrap();
    let (program, before) = shell.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(before).arg(script).arg("--root").arg(root).args(arguments).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", "/home/user");
    command.stdin(fs_err::File::open(&file).unwrap().into_file()).output().unwrap()
}

#[test]
fn set_up_writes_authority_and_token_where_asked_and_takes_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::serving(&dir.path().join("store"));
    let script = dir.path().join("setup.sh");
    fs_err::write(&script, get(&mirror.url(""), "/orin-jp6.2.1/setup.sh", &[]).body).unwrap();
    let ca = data("tls/ca.pem");
    let ca = ca.to_str().unwrap();
    let secret = format!("jetwheel_{}", "Ab0-_".repeat(8));
    for (number, shell) in [&["dash"][..], &["busybox", "sh"]].into_iter().enumerate() {
        let copies = dir.path().join(number.to_string());
        fs_err::create_dir(&copies).unwrap();
        let root = copied("orin-jp6.2.1", &copies);
        let home = root.join("home/user");
        let netrc = home.join(".netrc");
        fs_err::create_dir_all(&home).unwrap();
        let before = "machine other.test login me password mine\n# and a comment\n";
        for had in [Some(before), None] {
            if let Some(had) = had {
                fs_err::write(&netrc, had).unwrap();
                fs_err::set_permissions(&netrc, std::fs::Permissions::from_mode(0o644)).unwrap();
            }
            // Twice: the second run changes nothing more.
            for _ in 0..2 {
                let output =
                    told(shell, &script, &root, &format!("{secret}\nmore"), &["--ca", ca, "--token", "-"]);
                let said =
                    [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
                assert!(output.status.success(), "{shell:?}: {said}");
                assert!(said.contains("export SSL_CERT_FILE=/home/user/.config/jetwheel/ca.pem"), "{said}");
                assert!(!said.contains(&secret), "{said}");
            }
            let written = fs_err::read_to_string(&netrc).unwrap();
            let line = format!("machine mirror.test login __token__ password {secret}\n");
            assert_eq!(written, format!("{}{line}", had.unwrap_or_default()));
            assert_eq!(fs_err::metadata(&netrc).unwrap().permissions().mode() & 0o777, 0o600);
            let pip = fs_err::read_to_string(home.join(".config/pip/pip.conf")).unwrap();
            assert!(pip.contains("cert = /home/user/.config/jetwheel/ca.pem\n"), "{pip}");
            let kept = fs_err::read_to_string(home.join(".config/jetwheel/ca.pem")).unwrap();
            assert!(kept.ends_with(&fs_err::read_to_string(data("tls/ca.pem")).unwrap()), "{kept}");

            assert!(told(shell, &script, &root, "", &["--undo"]).status.success());
            assert_eq!(fs_err::read_to_string(&netrc).ok().as_deref(), had);
            for file in [".config/pip/pip.conf", ".config/uv/uv.toml", ".config/jetwheel/ca.pem"] {
                assert!(!home.join(file).exists(), "{file}");
            }
            if had.is_some() {
                fs_err::remove_file(&netrc).unwrap();
            }
        }
        // What cannot be right changes nothing, and is not shown.
        fs_err::write(root.join("token"), format!("{secret} $(id)\n")).unwrap();
        let spaced = root.join("token");
        for (input, arguments) in [
            ("hunter2\n", &["--token", "-"][..]),
            ("", &["--token", "-"]),
            ("", &["--token", "/nowhere"]),
            ("", &["--token", spaced.to_str().unwrap()]),
            ("", &["--ca", spaced.to_str().unwrap()]),
            ("", &["--ca", "/nowhere"]),
        ] {
            let output = told(shell, &script, &root, input, arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert!(
                said.contains("Nothing was changed") && !said.contains("hunter2") && !said.contains(&secret),
                "{said}"
            );
            assert!(!home.join(".config").join("pip/pip.conf").exists() && !netrc.exists());
        }
        fs_err::write(&netrc, "machine mirror.test\n  login me password mine\n").unwrap();
        let output = told(shell, &script, &root, &secret, &["--token", "-"]);
        assert_eq!(output.status.code(), Some(2), "another login for the same host stays");
        assert!(String::from_utf8(output.stderr).unwrap().contains("has another login for mirror.test"));
    }
}

#[test]
fn set_up_stops_where_address_and_machine_differ() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::serving(&dir.path().join("store"));
    let script = dir.path().join("setup.sh");
    fs_err::write(&script, get(&mirror.url(""), "/thor-jp7.0/setup.sh", &[]).body).unwrap();
    let root = copied("orin-jp6.2.1", dir.path());
    let output = run(&["dash"], &script, &root, "/home/user", &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the address is for thor-jp7.0, this machine is orin-jp6.2.1"), "{said}");
    assert!(!root.join("home/user/.config/pip/pip.conf").exists());
}

/// An unknown L4T release falls to the newest known one of its family.
#[test]
fn set_up_passes_shellcheck() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::serving(&dir.path().join("store"));
    let script = dir.path().join("setup.sh");
    fs_err::write(&script, get(&mirror.url(""), "/orin-jp6.2/setup.sh", &[]).body).unwrap();
    let output = Command::new("shellcheck")
        .args(["--shell", "sh", "--severity", "warning"])
        .arg(&script)
        .output()
        .expect("shellcheck is needed for this test: run ./ci.sh test, which installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_host_that_would_break_out_of_a_script_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::serving(&dir.path().join("store"));
    for path in ["/orin-jp6.2/setup.sh", "/orin-jp6.2/check.py"] {
        let answer = get(&mirror.url(""), path, &[("X-Forwarded-Host", "a'$(id)")]);
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 400 || !body.contains("$(id)"), "{path}: {body}");
    }
}

/// The reports under `tests/data/reports` were made by `check.py` with torch 2.11.0+cu130 on an NVIDIA H200 (compute
/// capability 9.0, driver 580.159.04), one of them with the GPU hidden.
#[test]
fn reports_are_kept_and_shown_and_a_failure_suggests_an_advisory() {
    let dir = tempfile::tempdir().unwrap();
    let mirror = Mirror::serving(&dir.path().join("store"));
    let json = [("Content-Type", "application/json")];
    for name in ["check-h200.json", "check-cpu.json"] {
        let body = fs_err::read(data("reports").join(name)).unwrap();
        let answer = send(&mirror.url(""), "POST", "/gh200-cuda13.0/reports", &json, &body);
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        let elsewhere = send(&mirror.url(""), "POST", "/thor-jp7.0/reports", &json, &body);
        assert_eq!(elsewhere.status, 400);
        let failed = String::from_utf8(body).unwrap().replace("\"passed\": true", "\"passed\": false");
        let failed = failed.replacen("\"status\": \"pass\"", "\"status\": \"fail\"", 1);
        let answer = send(&mirror.url(""), "POST", "/gh200-cuda13.0/reports", &json, failed.as_bytes());
        let said = String::from_utf8(answer.body).unwrap();
        let advisory = said.split_once("[[advisory]]").expect(&said).1;
        let advisory: toml::Table = format!("[[advisory]]{advisory}").parse().unwrap();
        assert_eq!(advisory["advisory"][0]["project"].as_str(), Some("torch"));
    }
    let kept = fs_err::read_to_string(dir.path().join("store/reports.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 4);
    assert_eq!(send(&mirror.url(""), "POST", "/gh200-cuda13.0/reports", &json, b"{}").status, 400);
    assert_eq!(get(&mirror.url(""), "/gh200-cuda13.0/reports", &[]).status, 405);
}

/// The script that a running mirror serves, under the system's Python with Debian's torch and torchvision, which have no CUDA.
/// The wheel is a small one from that mirror: what it adds to the system's torch is the name that the report goes by.
#[test]
fn check_runs_with_a_real_torch_and_a_report_of_the_cpu_is_no_evidence() {
    const XAVIER: &str = "xavier-jp5.1.2";
    let dir = tempfile::tempdir().unwrap();
    let (store, home) = (dir.path().join("store"), dir.path().join("home"));
    let wheel = "torch-1.13.0a0-cp38-cp38-linux_aarch64.whl";
    make_wheels(
        &serde_json::json!([{"filename": wheel, "elfs": [{"path": "kernels/_C.so", "fatbins": [["sm_72"]]}]}]),
        dir.path(),
    );
    let added = jetwheel(&store).arg("add").arg(dir.path().join(wheel)).output().unwrap();
    assert!(added.status.success(), "{added:?}");
    let mirror = Mirror::serving(&store);
    let python = |arguments: &[&str]| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", &home);
        command.env("OMP_NUM_THREADS", "1").current_dir(dir.path());
        command
            .output()
            .expect("Debian's python3 is needed for this test: run ./ci.sh test, which installs it")
    };
    let said = |output: &Output| {
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
    };
    let found = python(&["-c", "import site, torch, torchvision; print(site.getusersitepackages())"]);
    assert!(
        found.status.success(),
        "torch and torchvision are needed for this test, run ./ci.sh test, which installs Debian's: {}",
        said(&found)
    );
    let packages = String::from_utf8(found.stdout).unwrap();
    let installed = Command::new(client_program("pip-newest", "python"))
        .args(["-m", "pip", "install", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "torch"])
        .args(["--python-version", "3.8", "--platform", "linux_aarch64", "--target", packages.trim()])
        .args(["--index-url", &mirror.index_url(XAVIER)])
        .env_clear()
        .env("HOME", &home)
        .env("PIP_CONFIG_FILE", "/dev/null")
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", said(&installed));

    let here = mirror.url("").replace("http://", "");
    let script = get(&mirror.url(""), &format!("/{XAVIER}/check.py"), &[("X-Forwarded-Host", &here)]).body;
    fs_err::write(dir.path().join("check.py"), script).unwrap();
    let output = python(&["check.py", "--output", "report.json"]);
    assert!(output.status.success(), "{}", said(&output));
    for line in ["computes on the CPU; this report is marked so", "passed on its CPU alone"] {
        assert!(said(&output).contains(line), "{line}: {}", said(&output));
    }
    let report: Value =
        serde_json::from_slice(&fs_err::read(dir.path().join("report.json")).unwrap()).unwrap();
    let checks: Vec<(&str, &str)> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["name"].as_str().unwrap(), check["status"].as_str().unwrap()))
        .collect();
    let names =
        ["matmul float32", "convolution float32", "gemm float32", "gemm bfloat16", "torchvision.ops.nms"];
    assert_eq!(checks, names.map(|name| (name, "pass")));

    let kept = fs_err::read_to_string(store.join("reports.jsonl")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(
        (&kept["gpu"], &kept["device"], &kept["passed"]),
        (&Value::Null, &XAVIER.into(), &true.into())
    );
    assert_eq!(kept["checks"].as_array().unwrap().len(), names.len());
    let (code, explained) = json(jetwheel(&store).args(["explain", "torch", "--device", XAVIER]));
    assert_eq!(code, 0, "{explained}");
    let reports = &explained["files"][0]["reports"];
    assert_eq!((&reports[0]["gpu"], &reports[0]["passed"]), (&Value::Null, &true.into()), "{explained}");
    let text = jetwheel(&store).args(["explain", "torch", "--device", XAVIER]).output().unwrap();
    assert!(said(&text).contains(": passed on its CPU alone"), "{}", said(&text));
    let (code, lacking) = json(jetwheel(&store).args(["snapshot", "promote", "--require-reports", "1"]));
    let lack = &lacking["lacking"][0];
    assert_eq!((code, &lack["file"], &lack["passed"]), (1, &wheel.into(), &0.into()), "{lacking}");
}
