//! The configuration: what is in force, where it came from, and its reference.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::jetwheel;

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("jetwheel.toml"), configuration).unwrap();
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("jetwheel.toml")
    }

    /// Without a data folder, so that the configuration can name one.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jetwheel"));
        command.current_dir(self.folder.path());
        for variable in ["JETWHEEL_DATA", "JETWHEEL_CONFIG", "XDG_CONFIG_HOME"] {
            command.env_remove(variable);
        }
        command.env("HOME", self.folder.path());
        command
    }

    fn show(&self, arguments: &[&str]) -> Output {
        self.command()
            .arg("--config")
            .arg(self.file())
            .args(arguments)
            .args(["config", "show"])
            .output()
            .unwrap()
    }

    fn shown(&self, arguments: &[&str]) -> Value {
        let output = self.show(&[arguments, &["--format", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn row<'v>(shown: &'v Value, key: &str) -> &'v Value {
    let rows = shown["values"].as_array().unwrap();
    let mut found = rows.iter().filter(|row| row["key"] == key);
    let row = found.next().unwrap_or_else(|| panic!("no {key} in {shown}"));
    assert!(found.next().is_none(), "{key} twice in {shown}");
    row
}

const FULL: &str = r#"listen = "0.0.0.0:8443"
data = "wheels"
keep_snapshots = 7

[tls]
certificate = "mirror.pem"
key = "/etc/mirror.key"

[access.devices]
"robots-*" = "token"

[pull]
upstreams = ["jp6-cu126", "https://me:hunter2@devpi.example/root"]
file_wait_s = 3

[credentials."index.example"]
username = "__token__"
password = "hunter2"
"#;

#[test]
fn each_value_is_shown_with_its_place_and_no_secret() {
    let site = Site::new(FULL);
    let shown = site.shown(&[]);
    let file = site.file().to_str().unwrap().to_owned();
    assert_eq!((&shown["file"], &shown["named_by"]), (&json!(file), &json!("--config")));
    let in_folder = |name: &str| json!(site.folder.path().join(name));
    for (key, value, from, line) in [
        ("listen", json!("0.0.0.0:8443"), "file", 1),
        ("data", in_folder("wheels"), "file", 2),
        ("keep_snapshots", json!(7), "file", 3),
        ("tls.certificate", in_folder("mirror.pem"), "file", 6),
        ("tls.key", json!("/etc/mirror.key"), "file", 7),
        ("access.devices.\"robots-*\"", json!("token"), "file", 10),
        ("pull.enabled", json!(true), "file", 12),
        ("pull.upstreams", json!(["jp6-cu126", "https://hidden@devpi.example/root"]), "file", 13),
        ("pull.file_wait_s", json!(3), "file", 14),
        ("credentials.\"index.example\".username", json!("__token__"), "file", 17),
        ("credentials.\"index.example\".password", json!("(hidden)"), "file", 18),
        ("access.read", json!("open"), "built in", 0),
        ("pull.page_wait_s", json!(5), "built in", 0),
        ("prefix", Value::Null, "built in", 0),
        ("limits.burst", Value::Null, "built in", 0),
    ] {
        let row = row(&shown, key);
        let place = if line == 0 { Value::Null } else { json!(format!("{file}:{line}")) };
        assert_eq!((&row["value"], &row["from"], &row["where"]), (&value, &json!(from), &place), "{key}");
    }
    let text = String::from_utf8(site.show(&[]).stdout).unwrap();
    assert!(!text.contains("hunter2") && !shown.to_string().contains("hunter2"), "{text}");
    assert!(text.starts_with(&format!("configuration file: {file} (--config)\n")), "{text}");
    let listen = text.lines().find(|line| line.starts_with("listen ")).unwrap();
    assert!(listen.contains("\"0.0.0.0:8443\"") && listen.ends_with(&format!("{file}:1")), "{listen}");
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let site = Site::new("data = \"one\"\n");
    let shown = site.shown(&["--data", "/two", "--policies", "/three"]);
    assert_eq!(
        *row(&shown, "data"),
        json!({"key": "data", "value": "/two", "from": "flag", "where": "--data"})
    );
    assert_eq!(row(&shown, "policies")["where"], "--policies");
    let output = site
        .command()
        .env("JETWHEEL_DATA", "/four")
        .env("JETWHEEL_CONFIG", site.file())
        .args(["config", "show", "--format", "json"])
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["named_by"], "JETWHEEL_CONFIG");
    let wanted = json!({"key": "data", "value": "/four", "from": "environment", "where": "JETWHEEL_DATA"});
    assert_eq!(*row(&shown, "data"), wanted);
    // The user's file is found without being named.
    fs_err::create_dir_all(site.folder.path().join(".config/jetwheel")).unwrap();
    fs_err::rename(site.file(), site.folder.path().join(".config/jetwheel/jetwheel.toml")).unwrap();
    let output = site.command().args(["config", "show", "--format", "json"]).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&shown["named_by"], &row(&shown, "data")["from"]), (&Value::Null, &json!("file")));
    let site = Site::new("limits.requests_per_second = 2.5");
    assert_eq!(row(&site.shown(&[]), "limits.burst")["value"], 25.0);
    for (switch, on) in [("pull = true", true), ("pull = false", false), ("[pull]\nenabled = false", false)] {
        let site = Site::new(switch);
        assert_eq!(row(&site.shown(&[]), "pull.enabled")["value"], on, "{switch}");
    }
}

#[test]
fn what_would_not_do_is_exit_code_2_without_values() {
    for (configuration, said) in [
        ("[credentials.x]\nusername = 1\npassword = \"hunter2\"\n", "jetwheel.toml:2"),
        ("[limits]\nburst = 3\n", "burst says nothing without"),
        ("listen = \"hunter2\"\nlisten = 1\n", "jetwheel.toml:2"),
    ] {
        let output = Site::new(configuration).show(&[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(said) && !error.contains("hunter2"), "{error}");
    }
}

/// The reference has a row for each key that is known, in the same order, with the value that is really built in.
#[test]
fn the_reference_names_every_key_with_its_built_in_value() {
    let site = Site::new("");
    let shown = site.shown(&[]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFIGURATION.md");
    let page = fs_err::read_to_string(page).unwrap();
    let (_, table) = page.split_once("\n## Keys\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let documented: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let (key, rest) = line.split_once("` | `").unwrap();
            let (built_in, meaning) = rest.split_once("` | ").unwrap();
            assert!(meaning.len() > 12, "{key}");
            (key, built_in)
        })
        .collect();
    let known: Vec<(&str, String)> = shown["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let value = match (row["key"].as_str().unwrap(), &row["value"]) {
                (_, Value::Null) => "-".to_owned(),
                ("data", path) => {
                    assert_eq!(*path, json!(site.folder.path().join("jetwheel-data")));
                    "\"jetwheel-data\"".to_owned()
                }
                (_, value) => value.to_string(),
            };
            (row["key"].as_str().unwrap(), value)
        })
        .collect();
    let of_the_site = |key: &str| key.contains('*');
    let plain: Vec<(&str, String)> = documented
        .iter()
        .filter(|(key, _)| !of_the_site(key))
        .map(|(key, value)| (*key, (*value).to_owned()))
        .collect();
    assert_eq!(plain, known);
    let named: Vec<&str> = documented.iter().map(|(key, _)| *key).filter(|key| of_the_site(key)).collect();
    assert_eq!(named, ["access.devices.*", "credentials.*.username", "credentials.*.password"]);
}

/// A look at the configuration makes no folder, and asks no server.
#[test]
fn it_needs_no_store() {
    let site = Site::new("");
    let data = site.folder.path().join("data");
    let output = jetwheel(&data).args(["config", "show"]).output().unwrap();
    assert!(output.status.success() && !data.exists(), "{output:?}");
}
