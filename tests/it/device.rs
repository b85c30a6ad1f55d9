//! What a device fetches from the mirror and runs: the set-up script under real shells, the GPU check with a real torch.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::data;
use crate::support::http::{get, send};
use crate::support::mirror::Mirror;

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
