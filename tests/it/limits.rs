//! What bounds a single client, and how real clients cope with it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::clients::{JETPACK_6, Pip, Uv};
use crate::support::http::{get, send};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const WHEEL: &str = "demo-1.0-py3-none-any.whl";

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// A store with one wheel.
    fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        make_wheels(&json!([{"filename": WHEEL}]), site.folder.path());
        let output = site.run(&["add", site.path(WHEEL).to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = jetwheel(&self.path("data"));
        if self.path("jetwheel.toml").exists() {
            command.arg("--config").arg(self.path("jetwheel.toml"));
        }
        command.args(arguments).output().unwrap()
    }

    fn configure(&self, limits: &str) {
        fs_err::write(self.path("jetwheel.toml"), format!("[limits]\n{limits}\n")).unwrap();
    }

    fn mirror(&self, limits: &str) -> Mirror {
        self.configure(limits);
        let file = self.path("jetwheel.toml");
        Mirror::serving_with(&self.path("data"), &["--config".as_ref(), file.as_os_str()])
    }
}

#[test]
fn pip_and_uv_wait_and_come_again() {
    let site = Site::new();
    let mut mirror = site.mirror("requests_per_second = 1\nburst = 1");
    let index = mirror.index_url(ORIN);
    for pip in [Pip::v22_0_2(), Pip::newest()] {
        let fetched = pip.retrying().download(&index, JETPACK_6, "demo");
        assert!(fetched.done && fetched.names == [WHEEL], "{}", fetched.said);
    }
    let installed = Uv::install(&index, JETPACK_6, "demo");
    assert!(installed.done && installed.names == ["demo-1.0.dist-info"], "{}", installed.said);
    let log = mirror.stop();
    assert!(log.matches("status=429").count() >= 3, "each was told to wait: {log}");
}

#[test]
fn a_client_that_asks_too_often_is_told_when_to_come_again() {
    let site = Site::new();
    let mirror = site.mirror("requests_per_second = 0.01\nburst = 2");
    let page = format!("/{ORIN}/simple/demo/");
    for client in ["192.0.2.1", "192.0.2.2"] {
        // Nobody is believed who is not trusted.
        assert_eq!(get(&mirror.url(""), &page, &[("X-Forwarded-For", client)]).status, 200);
    }
    let refused = get(&mirror.url(""), &page, &[("X-Forwarded-For", "192.0.2.3")]);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("30"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(refused.text(), "too many requests from this address: try again in 30 seconds\n");
    assert_eq!(refused.phrase, refused.text().trim());
    let posted = send(&mirror.url(""), "POST", &format!("/{ORIN}/resolve"), &[], &vec![b' '; 100_000]);
    assert_eq!(posted.status, 429, "a body is no hindrance");
    assert_eq!(get(&mirror.url(""), "/no/such/page", &[]).status, 429, "whatever is asked for");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&mirror.url(""), path, &[]).status, 200, "{path}");
    }
}

#[test]
fn a_trusted_proxy_says_who_asks() {
    let site = Site::new();
    let mut mirror = site.mirror(
        "requests_per_second = 0.01\nburst = 1\nconnections_per_client = 1\ntrusted_proxies = [\"127.0.0.0/8\", \"10.0.0.1\"]",
    );
    let held = TcpStream::connect(mirror.url("").trim_start_matches("http://")).unwrap();
    let ask = |forwarded: &str| {
        get(&mirror.url(""), &format!("/{ORIN}/simple/demo/"), &[("X-Forwarded-For", forwarded)]).status
    };
    assert_eq!(ask("192.0.2.1"), 200);
    assert_eq!(ask("192.0.2.1"), 429);
    assert_eq!(ask("192.0.2.2, 10.0.0.1"), 200);
    assert_eq!(ask("198.51.100.1, 192.0.2.2"), 429, "what the client itself sent does not count");
    drop(held);
    let log = mirror.stop();
    assert!(log.contains("from=192.0.2.1 ") && log.contains("from=192.0.2.2 "), "{log}");
}

#[test]
fn a_client_has_so_many_connections_and_no_more() {
    let site = Site::new();
    let mut mirror = site.mirror("connections_per_client = 2");
    let address = mirror.url("").trim_start_matches("http://").to_owned();
    let ask = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        String::from_utf8(status.to_vec()).unwrap()
    };
    let mut held: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for stream in &mut held {
        assert_eq!(ask(stream), "HTTP/1.1 200");
    }
    let refused = get(&mirror.url(""), "/healthz", &[]);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert!(refused.text().contains("too many connections"), "{}", refused.text());
    held.pop();
    let end = Instant::now() + Duration::from_mins(1);
    while get(&mirror.url(""), "/healthz", &[]).status != 200 {
        assert!(Instant::now() < end, "a connection that ended does not count any more");
    }
    assert_eq!(
        mirror.stop().matches("a connection was turned away").count(),
        1,
        "the log is told now and then"
    );
}

#[test]
fn an_upload_may_be_as_large_as_the_configuration_says() {
    let site = Site::new();
    let token = String::from_utf8(site.run(&["token", "create", "ci", "--scope", "upload"]).stdout).unwrap();
    let mirror = site.mirror("largest_upload = \"300 B\"");
    let output = Command::new("curl")
        .args(["--silent", "--max-time", "60", "--user", &format!("__token__:{}", token.trim())])
        .args(["-F", ":action=file_upload", "-F", "protocol_version=1", "-F"])
        .arg(format!("content=@{}", site.path(WHEEL).display()))
        .args(["-w", "%{http_code}", &mirror.url("/legacy/")])
        .output()
        .expect("curl is needed for this test: run ./ci.sh test, which installs it");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("larger than 300 B") && said.ends_with("413"), "{said}");
}

#[test]
fn limits_that_make_no_sense_are_wrong_configuration() {
    let site = Site::new();
    for (limits, said) in [
        ("connections_per_client = 0", "connections_per_client is 0, expected at least 1"),
        ("requests_per_second = -1", "requests_per_second is -1, expected more than 0"),
        ("requests_per_second = nan", "requests_per_second is NaN, expected more than 0"),
        ("burst = 5", "burst says nothing without requests_per_second"),
        ("largest_upload = \"much\"", "largest_upload: \"much\" is no size"),
        ("trusted_proxies = [\"10.0.0.0/99\"]", "trusted_proxies: \"10.0.0.0/99\" is no address or network"),
    ] {
        site.configure(limits);
        let output = site.run(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(output.status.code(), Some(2), "{limits}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(said), "{limits}: {error}");
    }
}
