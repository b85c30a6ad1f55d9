//! Who on the machine may read and change what the mirror keeps, where the umask leaves everything to everybody.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::http::send;
use crate::support::make_wheels;
use crate::support::mirror::Mirror;

/// The binary under the umask 000.
fn lax(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_jetwheel"), "--data"]);
    command.arg(data).args(arguments).env("JETWHEEL_CONFIG", "/dev/null").env_remove("JETWHEEL_DATA");
    command
}

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Everything below a folder, and the folder.
fn all_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(path) = all.get(at).cloned() {
        at += 1;
        if path.is_dir() {
            all.extend(fs_err::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all
}

/// A store that was filled, served and changed under the umask 000; what the server logged.
fn used(data: &Path, wheels: &Path) -> String {
    let run = |arguments: &[&str]| {
        let output = lax(data, arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    run(&["add", wheels.to_str().unwrap()]);
    let token = run(&["token", "create", "boss", "--scope", "admin"]);
    let mut mirror = Mirror::started_by(lax(data, &["serve", "--listen", "127.0.0.1:0"]));
    let login = format!("Bearer {token}");
    let headers = [("Authorization", login.as_str()), ("Content-Type", "application/json")];
    let made = send(&mirror.url(""), "POST", "/api/v1/snapshots", &headers, b"{\"name\": \"named\"}");
    assert_eq!(made.status, 201, "{made:?}");
    // While it serves, with its socket and its lock.
    for path in all_below(data) {
        assert!(path == *data || mode(&path) & 0o022 == 0, "{}: {:o}", path.display(), mode(&path));
    }
    for secret in ["tokens.json", "audit.jsonl"] {
        assert_eq!(mode(&data.join(secret)), 0o600, "{secret}");
    }
    assert_eq!(mode(&data.join("run")), 0o700);
    mirror.stop()
}

#[test]
fn nobody_but_the_owner_changes_what_is_kept_or_reads_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    fs_err::create_dir(&wheels).unwrap();
    make_wheels(&json!([{"filename": "demo-1.0-py3-none-any.whl"}]), &wheels);
    let data = dir.path().join("deep/data");
    let log = used(&data, &wheels);
    assert_eq!(mode(&data), 0o750);
    assert!(!log.contains("everybody on this machine"), "{log}");
    // A folder that was there before keeps its mode, and the log says what that means.
    let open = dir.path().join("open");
    fs_err::create_dir(&open).unwrap();
    fs_err::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let log = used(&open, &wheels);
    assert_eq!(mode(&open), 0o777);
    assert!(log.contains("everybody on this machine can change the data folder"), "{log}");
}
