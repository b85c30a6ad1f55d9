//! Tokens: made on the command line, presented by real pip and uv, good or not.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::clients::{JETPACK_6, Pip, Uv};
use crate::support::http::{get, head, send};
use crate::support::mirror::Mirror;
use crate::support::{data, jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const WHEEL: &str = "demo-1.0-py3-none-any.whl";

/// A site with one wheel and a configuration.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(configuration: &str) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        make_wheels(&json!([{"filename": WHEEL}]), site.folder.path());
        fs_err::write(site.folder.path().join("jetwheel.toml"), configuration).unwrap();
        let wheel = site.folder.path().join(WHEEL);
        let output = site.run(&["add", wheel.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        site
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command: Command = jetwheel(&self.data());
        command.arg("--config").arg(self.folder.path().join("jetwheel.toml"));
        command.args(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn token(&self, name: &str, arguments: &[&str]) -> String {
        let output = self.run(&[&["token", "create", name][..], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "the token alone, so that a script can take it: {text}");
        text.trim().to_owned()
    }

    fn mirror(&self) -> Mirror {
        Mirror::serving_with(
            &self.data(),
            &["--config".as_ref(), self.folder.path().join("jetwheel.toml").as_os_str()],
        )
    }
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}")))
}

/// The URL of an index with credentials in it.
fn with_login(url: &str, token: &str) -> String {
    url.replacen("http://", &format!("http://__token__:{token}@"), 1)
}

const BY_TOKEN: &str = "[access]\nread = \"token\"\n";

#[test]
fn a_token_is_shown_once_and_a_running_server_takes_it_up_and_lets_it_go_at_once() {
    let site = Site::new(BY_TOKEN);
    let mut mirror = site.mirror();
    let page = format!("/{ORIN}/simple/demo/");
    let with = |token: &str| get(&mirror.url(""), &page, &[("Authorization", &basic("__token__", token))]);
    assert_eq!(get(&mirror.url(""), &page, &[]).status, 401);
    let token = site.token("ci", &["--scope", "read", "--expires", "90d"]);
    assert_eq!(with(&token).status, 200);
    let listed = site.json(&["token", "list"]);
    let row = &listed["tokens"][0];
    assert_eq!((&row["name"], &row["scopes"]), (&json!("ci"), &json!(["read"])));
    assert!(row["expires"].is_string() && row["last_used"].is_string(), "{row}");
    assert!(!listed.to_string().contains(&token));
    assert_eq!(site.run(&["token", "revoke", "ci"]).status.code(), Some(0));
    let answer = with(&token);
    assert_eq!(answer.status, 401);
    assert!(answer.text().contains("not known here"), "{}", answer.text());
    assert_eq!(site.run(&["token", "revoke", "ci"]).status.code(), Some(1));
    assert_eq!(site.run(&["token", "create", "x", "--scope", "everything"]).status.code(), Some(2));
    assert_eq!(site.run(&["token", "create", "a b", "--scope", "read"]).status.code(), Some(2));

    let log = mirror.stop();
    let mut kept = vec![log];
    for file in ["tokens.json", "audit.jsonl"] {
        kept.push(fs_err::read_to_string(site.data().join(file)).unwrap());
    }
    assert!(kept.iter().all(|text| !text.contains(&token)), "a secret is nowhere: {kept:?}");
    let audit = site.json(&["audit"]);
    let actions: Vec<&str> =
        audit["changes"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["add", "token create", "token revoke"]);
    assert!(audit["changes"][1]["who"].as_str().unwrap().starts_with("user:"), "{audit}");
    assert_eq!(audit["changes"][1]["what"]["name"], "ci");
}

#[test]
fn every_way_to_present_a_token_counts_and_a_refusal_says_why() {
    let site = Site::new(BY_TOKEN);
    let orin = site.token("orin", &["--scope", "read", "--device", "orin-*"]);
    let uploads = site.token("uploads", &["--scope", "upload"]);
    let admin = site.token("admin", &["--scope", "admin"]);
    let brief = site.token("brief", &["--scope", "read", "--expires", "1s"]);
    let mirror = site.mirror();
    let ask = |path: &str, field: &str| get(&mirror.url(""), path, &[("Authorization", field)]);
    let page = format!("/{ORIN}/simple/demo/");
    for field in [
        basic("__token__", &orin),
        basic("anybody", &orin),
        basic(&orin, ""),
        format!("Bearer {orin}"),
        basic("__token__", &admin),
    ] {
        assert_eq!(ask(&page, &field).status, 200, "{field}");
    }
    let other = ask("/thor-jp7.0/simple/demo/", &format!("Bearer {orin}"));
    assert_eq!(other.status, 403);
    assert!(other.text().contains("is for orin-*, and this is thor-jp7.0"), "{}", other.text());
    let scope = ask(&page, &format!("Bearer {uploads}"));
    assert_eq!(scope.status, 403);
    assert!(scope.text().contains("allows upload, and this needs read"), "{}", scope.text());
    assert!(scope.phrase.contains("allows upload, and this needs read"), "{}", scope.phrase);

    let until = Instant::now() + Duration::from_secs(30);
    let expired = loop {
        let answer = ask(&page, &format!("Bearer {brief}"));
        if answer.status == 401 || Instant::now() > until {
            break answer;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(expired.status, 401);
    assert!(expired.text().contains("\"brief\" expired at "), "{}", expired.text());
    for field in ["", "Basic", "Basic %%%", "Bearer ", "Bearer wrong", "Digest x=\"y\"", &basic("a", "b")] {
        let answer = ask(&page, field);
        assert_eq!(answer.status, 401, "{field}");
        assert_eq!(answer.header("www-authenticate").unwrap(), "Basic realm=\"jetwheel\", charset=\"UTF-8\"");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    // Whatever shows what the mirror has needs the token; what tells that it lives does not.
    let digest = "0".repeat(64);
    for path in [
        "/".to_owned(),
        format!("/{ORIN}/simple/"),
        format!("/{ORIN}@stable/simple/"),
        format!("/{ORIN}/files/{digest}/{WHEEL}"),
        format!("/{ORIN}/files/{digest}/{WHEEL}.metadata"),
        format!("/{ORIN}/explain/demo"),
        format!("/{ORIN}/setup.sh"),
        format!("/{ORIN}/check.py"),
        "/no-such-device/simple/".to_owned(),
    ] {
        assert_eq!(get(&mirror.url(""), &path, &[]).status, 401, "{path}");
        assert_eq!(head(&mirror.url(""), &path, &[]).status, 401, "{path}");
    }
    for path in [format!("/{ORIN}/resolve"), format!("/{ORIN}/reports")] {
        assert_eq!(send(&mirror.url(""), "POST", &path, &[], b"{}").status, 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&mirror.url(""), path, &[]).status, 200, "{path}");
    }
}

#[test]
fn reports_need_their_scope_only_where_reading_needs_a_token() {
    let site = Site::new("[access.devices]\n\"gh200-*\" = \"token\"\n");
    let reader = site.token("reader", &["--scope", "read"]);
    let robots = site.token("robots", &["--scope", "report,read", "--device", "gh200-*"]);
    let mirror = site.mirror();
    let body = fs_err::read(data("reports").join("check-h200.json")).unwrap();
    let report = |token: &str| {
        let field = format!("Bearer {token}");
        let headers = [("Content-Type", "application/json"), ("Authorization", field.as_str())];
        send(&mirror.url(""), "POST", "/gh200-cuda13.0/reports", &headers, &body).status
    };
    assert_eq!(report("none"), 401);
    assert_eq!(report(&reader), 403);
    assert_eq!(report(&robots), 201);
    // Another device is open, also to whoever presents nonsense.
    let spoilt = [("Authorization", "Bearer stale")];
    assert_eq!(get(&mirror.url(""), &format!("/{ORIN}/simple/demo/"), &spoilt).status, 200);
    assert_eq!(get(&mirror.url(""), "/gh200-cuda13.0/simple/demo/", &[]).status, 401);
    // Another name of the same device, or of a snapshot of it, is no way around.
    assert_eq!(get(&mirror.url(""), "/gh200-cuda13.0@candidate/simple/demo/", &[]).status, 401);
}

#[test]
fn an_alias_is_no_way_around_a_rule() {
    let site = Site::new("[access.devices]\n\"nano-*\" = \"token\"\n");
    let mirror = site.mirror();
    for device in ["nano-jp4.6.1", "tx1-jp4.6.1"] {
        assert_eq!(get(&mirror.url(""), &format!("/{device}/simple/"), &[]).status, 401, "{device}");
    }
}

#[test]
fn without_configuration_reading_is_open_and_nothing_else() {
    let site = Site::new("");
    let mirror = site.mirror();
    assert!(mirror.url("").starts_with("http://127.0.0.1:"));
    assert_eq!(get(&mirror.url(""), &format!("/{ORIN}/simple/demo/"), &[]).status, 200);
    assert_eq!(get(&mirror.url(""), "/", &[]).status, 200);
}

#[test]
fn pip_and_uv_bring_a_token_in_the_url_and_in_a_netrc_file() {
    let site = Site::new(BY_TOKEN);
    let token = site.token("clients", &["--scope", "read"]);
    let mirror = site.mirror();
    let index = mirror.index_url(ORIN);
    let by_url = with_login(&index, &token);
    let netrc = format!("machine 127.0.0.1 login __token__ password {token}\n");
    for pip in [Pip::v20_0_2(), Pip::v22_0_2(), Pip::newest()] {
        let fetched = pip.download(&by_url, JETPACK_6, "demo");
        assert!(fetched.done && fetched.names == [WHEEL], "{}", fetched.said);
        assert!(!fetched.said.contains(&token), "pip hides it: {}", fetched.said);
        let fetched = pip.download_with_netrc(&index, JETPACK_6, "demo", &netrc);
        assert!(fetched.done && fetched.names == [WHEEL], "{}", fetched.said);
        let refused = pip.download(&index, JETPACK_6, "demo");
        assert!(!refused.done && refused.names.is_empty(), "{}", refused.said);
    }
    let installed = Uv::install(&by_url, JETPACK_6, "demo");
    assert!(installed.done && installed.names == ["demo-1.0.dist-info"], "{}", installed.said);
    let installed = Uv::install_with_netrc(&index, JETPACK_6, "demo", &netrc);
    assert!(installed.done && installed.names == ["demo-1.0.dist-info"], "{}", installed.said);
    for url in [index.clone(), with_login(&index, "jetwheel_wrong")] {
        let refused = Uv::install(&url, JETPACK_6, "demo");
        assert!(!refused.done && refused.said.contains("401"), "{}", refused.said);
    }
    let wrong = Pip::newest().download(&with_login(&index, "jetwheel_wrong"), JETPACK_6, "demo");
    assert!(!wrong.done && wrong.said.contains("401"), "{}", wrong.said);
}

#[test]
fn a_wrong_configuration_is_told_without_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jetwheel.toml");
    fs_err::write(&file, "[access]\nread = \"nobody\"\n").unwrap();
    let output = jetwheel(Path::new(folder.path()))
        .arg("--config")
        .arg(&file)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("jetwheel.toml:2") && said.contains("open"), "{said}");
}
