//! The command line as a script or a person meets it: help, exit codes, what goes to which stream.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

/// Every verb, with nothing that only some of them take.
const VERBS: [&str; 21] = [
    "add",
    "advisories",
    "audit",
    "completions",
    "detect",
    "devices",
    "explain",
    "export",
    "gc",
    "import",
    "inspect",
    "inventory",
    "man",
    "quickstart",
    "rebuild",
    "resolve",
    "serve",
    "snapshot",
    "sync",
    "token",
    "verify",
];
const WHEEL: &str = "demo-1.0-cp310-cp310-linux_aarch64.whl";

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        let kernels = json!([{"path": "demo/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.6",
            "fatbins": [["sm_87"]]}]);
        make_wheels(&json!([{"filename": WHEEL, "elfs": kernels}]), site.folder.path());
        site
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        jetwheel(&self.data()).args(arguments).output().unwrap()
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jetwheel"));
    command.env_remove("JETWHEEL_DATA").env("JETWHEEL_CONFIG", "/dev/null");
    command
}

/// Asserts an exit code and that the message has these words.
fn assert_ends(output: &Output, code: i32, words: &[&str]) {
    let message = err(output);
    assert_eq!(output.status.code(), Some(code), "{message}{}", out(output));
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message}");
    }
}

#[test]
fn every_verb_has_examples_in_its_help_and_fits_100_columns() {
    let help = bare().arg("--help").env("COLUMNS", "200").output().unwrap();
    for verb in VERBS {
        assert!(
            out(&help).lines().any(|line| line.trim_start().starts_with(verb)),
            "{verb} is not in --help"
        );
        let output = bare().args([verb, "--help"]).env("COLUMNS", "200").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{verb}");
        let text = out(&output);
        let examples =
            text.split_once("Examples:").unwrap_or_else(|| panic!("{verb} --help has no examples")).1;
        assert!(examples.contains(&format!("jetwheel {verb}")), "{verb}: {examples}");
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{verb}: {wide:?}");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = bare().arg("--version").output().unwrap();
    assert_eq!(out(&output), format!("jetwheel {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn devices_are_listed_by_a_pattern() {
    let listed = |pattern: &str| bare().args(["devices", pattern]).output().unwrap();
    let text = out(&listed("orin-jp6.2*"));
    let ids: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(ids, ["DEVICE", "orin-jp6.2", "orin-jp6.2.1", "orin-jp6.2.2", "orin-jp6.2.3"]);
    assert_eq!(listed("no-such-*").status.code(), Some(1));
}

#[test]
fn wrong_usage_is_exit_code_2_and_names_what_is_wrong() {
    let site = Site::new();
    let wheel = site.path(WHEEL);
    assert_ends(&site.run(&["inspekt"]), 2, &["inspekt", "inspect"]);
    assert_ends(&site.run(&["inspect", "--no-such-option"]), 2, &["--no-such-option"]);
    assert_ends(&site.run(&["inspect", &wheel, "--device", "orin-jp6.9"]), 2, &["orin-jp6.9", "orin-jp6.2"]);
    assert_ends(&site.run(&["explain", "demo", "--device", "thor-jp7"]), 2, &["thor-jp7.0"]);
    assert_ends(
        &site.run(&["explain", "not a requirement!", "--device", "orin-jp6.2"]),
        2,
        &["not a requirement!"],
    );
    assert_ends(&site.run(&["--policies", "nowhere", "devices"]), 2, &["nowhere"]);
    assert_ends(&site.run(&["serve", "--listen", "nonsense"]), 2, &["nonsense"]);
}

#[test]
fn a_configuration_file_with_an_unknown_key_is_exit_code_2_and_names_file_and_key() {
    let site = Site::new();
    let file = site.path("jetwheel.toml");
    fs_err::write(&file, "listen = \"127.0.0.1:0\"\nlisten_port = 8080\n").unwrap();
    assert_ends(&site.run(&["--config", &file, "devices"]), 2, &["jetwheel.toml", "listen_port"]);
    assert_ends(&site.run(&["--config", "absent.toml", "devices"]), 2, &["absent.toml"]);
}

#[test]
fn a_broken_policy_folder_is_exit_code_2_and_names_the_file_and_what_is_missing() {
    let site = Site::new();
    let policies = site.folder.path().join("policies");
    fs_err::create_dir(&policies).unwrap();
    fs_err::write(policies.join("devices.toml"), "[[device]]\nid = \"robot\"\n").unwrap();
    let output = site.run(&["--policies", policies.to_str().unwrap(), "devices"]);
    assert_ends(&output, 2, &["devices.toml", "robot", "compute_capability"]);
}

#[test]
fn what_cannot_be_read_is_exit_code_3_and_names_the_file() {
    let site = Site::new();
    assert_ends(&site.run(&["inspect", &site.path("absent.whl")]), 3, &["absent.whl"]);
    let damaged = site.path("damaged-1.0-py3-none-any.whl");
    fs_err::write(&damaged, "no zip archive").unwrap();
    assert_ends(&site.run(&["add", &damaged]), 3, &["damaged-1.0-py3-none-any.whl"]);
}

#[test]
fn json_is_all_that_goes_to_standard_output() {
    let site = Site::new();
    let wheel = site.path(WHEEL);
    let output = site.run(&["inspect", &wheel, "--device", "orin-jp6.2", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = &answer["files"][0];
    assert_eq!(file["file"], WHEEL);
    assert_eq!(file["gpu"], "kernels");
    assert_eq!(file["images"], json!({"sm_87": 1}));
    assert_eq!(file["verdicts"][0]["device"], "orin-jp6.2");
    assert_eq!(file["verdicts"][0]["verdict"], "admit");
    let refused = site.run(&["inspect", &wheel, "--device", "thor-jp7.0", "--format", "json"]);
    let answer: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(answer["files"][0]["verdicts"][0]["verdict"], "refuse");
}

#[test]
fn the_profiles_of_the_contract_are_there() {
    let site = Site::new();
    let output = site.run(&["devices", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    let _is_json: Value = serde_json::from_str(&text).unwrap();
    for id in [
        "nano-jp4.6.1",
        "tx2-jp4.6.6",
        "xavier-jp5.1.2",
        "orin-jp5.1.2",
        "orin-jp6.2",
        "orin-jp7.2",
        "thor-jp7.0",
        "thor-jp7.2",
        "spark-cuda13.0",
        "gh200-cuda13.0",
    ] {
        assert!(text.contains(&format!("\"{id}\"")), "{id} is not in {text}");
        assert_eq!(site.run(&["devices", id]).status.code(), Some(0), "{id}");
    }
    assert_eq!(site.run(&["devices", "tx1-jp4.6.1"]).status.code(), Some(0), "an alias of nano");
}

#[test]
fn the_data_folder_is_that_of_the_option_then_of_the_environment_then_one_here() {
    let site = Site::new();
    let (by_option, by_environment) = (site.path("by-option"), site.path("by-environment"));
    let has_store = |dir: &Path| dir.is_dir() && fs_err::read_dir(dir).unwrap().next().is_some();
    let add = |command: &mut Command| {
        let output =
            command.args(["add", &site.path(WHEEL)]).current_dir(site.folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    };
    add(bare().args(["--data", &by_option]).env("JETWHEEL_DATA", &by_environment));
    assert!(has_store(Path::new(&by_option)) && !Path::new(&by_environment).exists());
    add(bare().env("JETWHEEL_DATA", &by_environment));
    assert!(has_store(Path::new(&by_environment)));
    add(&mut bare());
    assert!(has_store(&site.folder.path().join("jetwheel-data")));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let site = Site::new();
    // `true` never reads, so the pipe is closed before much is written.
    let script = format!("{} devices | true; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_jetwheel"));
    let output = Command::new("bash").args(["-c", &script]).current_dir(site.folder.path()).output().unwrap();
    assert_ends(&output, 0, &[]);
}

/// What a wheel, its name or a folder says may not move the cursor, change colours, or look like a line of ours.
#[test]
fn what_comes_from_outside_cannot_paint_the_terminal() {
    let site = Site::new();
    let folder = site.folder.path().join("in");
    fs_err::create_dir(&folder).unwrap();
    let evil = "\u{1b}]0;title\u{7}\u{1b}[31m\u{9b}2J\u{202e}\r";
    make_wheels(
        &json!([
            {"filename": "path-1.0-py3-none-any.whl", "files": {format!("path/{evil}\nx.py"): ""}},
            {"filename": "python-1.0-py3-none-any.whl", "requires_python": format!(">=3{evil}")},
            {"filename": "name-1.0-py3-none-any.whl", "name": evil},
            {"filename": "extra-1.0-py3-none-any.whl", "provides_extra": [evil], "requires_dist": [evil]},
        ]),
        &folder,
    );
    fs_err::write(folder.join(format!("{evil}\nadded 1 fake.whl")), "").unwrap();
    let folder = folder.to_str().unwrap();
    let harmful = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
    for arguments in [
        &["add", folder][..],
        &["add", folder, "--format", "json"],
        &["inspect", folder, "--device", "orin-jp6.2"],
        &["inspect", folder, "--format", "json"],
        &["explain", evil, "--device", "orin-jp6.2"],
        &["devices", evil],
        &["add", &format!("{folder}/{evil}")],
    ] {
        let output = site.run(arguments);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        for text in [out(&output), err(&output)] {
            assert!(!text.contains(harmful), "{arguments:?}: {text:?}");
            assert!(!text.lines().any(|line| line.starts_with("added 1 fake")), "{arguments:?}: {text:?}");
        }
    }
}

/// The server runs what is asked for beside it, with names of files as they are.
#[test]
fn a_command_beside_a_server_runs_there_whatever_its_files_are_called() {
    use std::os::unix::ffi::OsStrExt as _;

    let site = Site::new();
    let odd = site.folder.path().join(std::ffi::OsStr::from_bytes(b"nu\xff\nll"));
    fs_err::create_dir(&odd).unwrap();
    fs_err::rename(site.path(WHEEL), odd.join(WHEEL)).unwrap();
    let mirror = Mirror::serving(&site.data());
    let output = jetwheel(&site.data()).arg("add").arg(odd.join(WHEEL)).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("1 added, 0 known"), "{}", out(&output));
    let output = jetwheel(&site.data()).args(["add", WHEEL]).current_dir(&odd).output().unwrap();
    assert!(out(&output).contains("0 added, 1 known"), "{}{}", out(&output), err(&output));
    let page = crate::support::http::get(&mirror.url(""), "/orin-jp6.2/simple/demo/", &[]);
    assert!(page.text().contains(WHEEL), "{page:?}");
}
