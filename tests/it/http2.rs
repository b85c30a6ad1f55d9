//! HTTP/2 clients that break the rules of RFC 9113, or hold the mirror by keeping to them.
//!
//! `tests/support/h2_hostile.py` makes the frames; it has a name for each attack.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::clients::{JETPACK_6, Pip, client_program};
use crate::support::http::{InProcess, get, stock};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};
use crate::tls::Authority;
use jetwheel::policy::Policy;
use jetwheel::server::{Limits, PolicySource};
use jetwheel::store::Store;

const ORIN: &str = "orin-jp6.2";
const WHEEL: &str = "demo-1.0-py3-none-any.whl";

/// More than the mirror holds of a file for a client.
const LARGE: usize = 1 << 20;

/// What floods may add to the mirror's memory, in bytes: each of ten sends 24 MB or more.
const BOUND: u64 = 48 << 20;

/// How many answers an attack of that kind holds: eight on each of fifty connections.
const HELD: usize = 400;

/// What all of them may add, in bytes: without a bound they are 200 MB.
const OF_ANSWERS: u64 = 128 << 20;

fn stocked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_wheels(
        &json!([
            {"filename": WHEEL, "files": {"demo.py": ""}},
            {"filename": "large-1.0-py3-none-any.whl", "files": {"large.txt": noise()}},
        ]),
        dir.path(),
    );
    stock(&Store::open(&dir.path().join("data")).unwrap(), dir.path());
    dir
}

/// Text that hardly any of can be compressed away.
fn noise() -> String {
    let letters = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(char::from(b'0' + u8::try_from(*state >> 58).unwrap()))
    };
    std::iter::repeat_n((), LARGE * 2).scan(1, |state, ()| letters(state)).collect()
}

/// Where the large wheel is.
fn large(base: &str) -> String {
    let page =
        get(base, &format!("/{ORIN}/simple/large/"), &[("Accept", "application/vnd.pypi.simple.v1+json")]);
    let url = page.json()["files"][0]["url"].as_str().unwrap().to_owned();
    format!("/{ORIN}/{}", url.trim_start_matches("../"))
}

/// A process that attacks as it is told.
struct Attacker {
    process: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Attacker {
    fn at(url: &str, options: &[&str]) -> Self {
        let address = url.split("://").nth(1).unwrap();
        let mut process = Command::new(client_program("h2", "python"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/h2_hostile.py"))
            .arg(address)
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, ask, answers }
    }

    /// What the server answers to an attack.
    fn tries(&mut self, attack: &str) -> Value {
        writeln!(self.ask, "{attack}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{attack}: {error}: {line}"))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _status = self.process.wait();
    }
}

fn pip_gets_through(mirror: &Mirror) {
    let fetched = Pip::newest().retrying().download(&mirror.index_url(ORIN), JETPACK_6, "demo");
    assert!(fetched.done && fetched.names == [WHEEL], "{}", fetched.said);
}

/// What ends a connection, by which code of a GOAWAY, and the section of RFC 9113 that says so. Where that has a more specific code,
/// it stands behind: the h2 library answers with the general one.
const CONNECTION: &[(&str, &str, &str)] = &[
    ("headers-on-0", "PROTOCOL_ERROR", "6.2"),
    ("data-on-0", "PROTOCOL_ERROR", "6.1"),
    ("rst-on-0", "PROTOCOL_ERROR", "6.4"),
    ("even-stream", "PROTOCOL_ERROR", "5.1.1"),
    ("older-stream", "PROTOCOL_ERROR", "5.1.1"),
    ("data-on-idle", "PROTOCOL_ERROR", "5.1"),
    ("rst-on-idle", "PROTOCOL_ERROR", "6.4"),
    ("window-on-idle", "PROTOCOL_ERROR", "5.1"),
    ("continuation-alone", "PROTOCOL_ERROR", "6.10"),
    ("headers-interrupted", "PROTOCOL_ERROR", "6.2"),
    ("continuation-of-another", "PROTOCOL_ERROR", "6.10"),
    ("push-promise", "PROTOCOL_ERROR", "8.4"),
    ("padding-too-long", "PROTOCOL_ERROR", "6.1"),
    ("hpack-garbage", "PROTOCOL_ERROR", "4.3: COMPRESSION_ERROR"),
    ("hpack-table-too-large", "PROTOCOL_ERROR", "4.3: COMPRESSION_ERROR"),
    ("frame-too-long", "FRAME_SIZE_ERROR", "4.2"),
    ("ping-of-7", "PROTOCOL_ERROR", "6.7: FRAME_SIZE_ERROR"),
    ("settings-of-5", "PROTOCOL_ERROR", "6.5: FRAME_SIZE_ERROR"),
    ("settings-ack-of-6", "PROTOCOL_ERROR", "6.5: FRAME_SIZE_ERROR"),
    ("settings-on-1", "PROTOCOL_ERROR", "6.5"),
    ("settings-window", "PROTOCOL_ERROR", "6.5.2: FLOW_CONTROL_ERROR"),
    ("settings-frame-size", "PROTOCOL_ERROR", "6.5.2"),
    ("settings-push-2", "PROTOCOL_ERROR", "6.5.2"),
    ("window-zero", "PROTOCOL_ERROR", "6.9"),
    ("window-of-3", "PROTOCOL_ERROR", "6.9: FRAME_SIZE_ERROR"),
    ("window-overflow", "FLOW_CONTROL_ERROR", "6.9.1"),
    ("hpack-bomb", "ENHANCE_YOUR_CALM", "10.5.1"),
    // Errors of a stream, which may be taken as errors of the connection (5.4.1).
    ("stream-window-zero", "PROTOCOL_ERROR", "6.9"),
    ("upper-case-name", "PROTOCOL_ERROR", "8.2.1"),
    ("cr-lf-in-value", "PROTOCOL_ERROR", "8.2.1"),
    ("nul-in-value", "PROTOCOL_ERROR", "8.2.1"),
    ("colon-in-name", "PROTOCOL_ERROR", "8.2.1"),
    ("empty-name", "PROTOCOL_ERROR", "8.2.1"),
    ("unknown-pseudo", "PROTOCOL_ERROR", "8.3"),
];

/// What ends a stream alone, by which code of a `RST_STREAM`, and the section that says so.
const STREAM: &[(&str, &str, &str)] = &[
    ("stream-window-overflow", "FLOW_CONTROL_ERROR", "6.9.1"),
    ("priority-of-itself", "PROTOCOL_ERROR", "5.3 of RFC 7540"),
    ("body-too-long", "PROTOCOL_ERROR", "8.1.1"),
    ("body-too-short", "PROTOCOL_ERROR", "8.1.1"),
    ("two-lengths", "PROTOCOL_ERROR", "8.1.1"),
    ("transfer-encoding", "PROTOCOL_ERROR", "8.2.2"),
    ("connection-field", "PROTOCOL_ERROR", "8.2.2"),
    ("te-gzip", "PROTOCOL_ERROR", "8.2.2"),
    ("pseudo-after-field", "PROTOCOL_ERROR", "8.3"),
    ("two-paths", "PROTOCOL_ERROR", "8.3"),
    ("no-path", "PROTOCOL_ERROR", "8.3.1"),
    ("empty-path", "PROTOCOL_ERROR", "8.3.1"),
    ("no-method", "PROTOCOL_ERROR", "8.3.1"),
    ("space-in-path", "PROTOCOL_ERROR", "8.3.1"),
];

/// What is answered, by which status.
const ANSWERED: &[(&str, u64, &str)] = &[
    ("list-too-long", 431, "10.5.1"),
    ("two-hosts", 400, "8.3.1"),
    ("other-host", 400, "8.3.1"),
    ("connect", 404, "8.5: this is no proxy"),
];

fn keeps_to_the_rules(mut attacker: Attacker) {
    for (attack, code, section) in CONNECTION {
        let seen = attacker.tries(attack);
        assert_eq!(seen["goaway"], *code, "{attack} ({section}): {seen}");
        let answered = seen["statuses"].as_object().unwrap();
        assert!(["1", "2", "3"].iter().all(|stream| !answered.contains_key(*stream)), "{attack}: {seen}");
    }
    for (attack, code, section) in STREAM {
        let seen = attacker.tries(attack);
        assert_eq!(seen["codes"], json!({"1": code}), "{attack} ({section}): {seen}");
        assert_eq!(seen["statuses"], json!({"3": 200}), "{attack}: the connection goes on: {seen}");
    }
    for (attack, status, section) in ANSWERED {
        let seen = attacker.tries(attack);
        assert_eq!(seen["statuses"], json!({"1": status, "3": 200}), "{attack} ({section}): {seen}");
    }
    let seen = attacker.tries("body-after-end");
    let (ends, is_reset) = (&seen["goaway"], seen["codes"] == json!({"1": "STREAM_CLOSED"}));
    assert!(ends == "PROTOCOL_ERROR" || is_reset, "5.1, whether it is half closed or closed: {seen}");
    let seen = attacker.tries("preface-wrong");
    assert!(seen["closed"] == true && seen["statuses"] == json!({}), "3.4: {seen}");
}

#[test]
fn who_breaks_the_rules_is_told_by_the_code() {
    let dir = stocked();
    let mut mirror = Mirror::serving(&dir.path().join("data"));
    keeps_to_the_rules(Attacker::at(&mirror.url(""), &[]));
    pip_gets_through(&mirror);
    let log = mirror.stop();
    assert!(!log.contains("panic") && !log.contains("smuggled"), "{log}");
}

#[test]
fn who_breaks_the_rules_is_told_by_the_code_over_tls() {
    let dir = stocked();
    let authority = Authority::new(dir.path());
    authority.issue("1001");
    let config = dir.path().join("jetwheel.toml");
    fs_err::write(&config, "[tls]\ncertificate = \"mirror.pem\"\nkey = \"mirror.key\"\n").unwrap();
    let mut mirror =
        Mirror::serving_with(&dir.path().join("data"), &["--config".as_ref(), config.as_os_str()]);
    let ca = authority.ca();
    keeps_to_the_rules(Attacker::at(&mirror.url(""), &["--ca", ca.to_str().unwrap()]));
    let fetched = Pip::newest().download_trusting(&mirror.index_url(ORIN), JETPACK_6, "demo", &ca);
    assert!(fetched.done && fetched.names == [WHEEL], "{}", fetched.said);
    let log = mirror.stop();
    assert!(!log.contains("panic"), "{log}");
}

/// Floods, and whether the connection ends (RFC 9113, 10.5), is read no more while its answers are not (PING and SETTINGS want one
/// each), or costs no more than it takes to read it.
const FLOODS: &[(&str, &str)] = &[
    ("rapid-reset", "ENHANCE_YOUR_CALM"),
    ("made-you-reset", "ENHANCE_YOUR_CALM"),
    ("continuation-flood", "ENHANCE_YOUR_CALM"),
    ("continuation-empty", "ENHANCE_YOUR_CALM"),
    ("empty-data-flood", "ENHANCE_YOUR_CALM"),
    ("settings-flood", "held up"),
    ("ping-flood", "held up"),
    ("priority-flood", "taken"),
    ("window-flood", "taken"),
    ("unknown-flood", "taken"),
];

#[test]
fn floods_take_neither_memory_nor_the_place_of_others() {
    let dir = stocked();
    let mut mirror = Mirror::serving(&dir.path().join("data"));
    pip_gets_through(&mirror);
    let (base, path) = (mirror.url(""), large(&mirror.url("")));
    let before = mirror.most_memory();
    thread::scope(|scope| {
        for (flood, end) in FLOODS {
            let (base, path) = (&base, &path);
            scope.spawn(move || {
                let seen = Attacker::at(base, &["--path", path]).tries(flood);
                let ends = [&seen["goaway"], &seen["flood"]];
                assert!(ends.iter().any(|seen| *seen == end), "{flood}: {seen}");
                assert!(*end != "taken" || seen["statuses"] == json!({"3": 200}), "{flood}: {seen}");
            });
        }
        pip_gets_through(&mirror);
    });
    let grown = mirror.most_memory() - before;
    assert!(grown < BOUND, "{grown} bytes");
    pip_gets_through(&mirror);
    let log = mirror.stop();
    assert!(!log.contains("panic"), "{log}");
}

/// 800 answers of a large file that nobody takes, and 80 uploads that go no further.
#[test]
fn answers_that_nobody_takes_do_not_fill_the_memory() {
    let dir = stocked();
    let data = dir.path().join("data");
    let token = jetwheel(&data).args(["token", "create", "ci", "--scope", "upload"]).output().unwrap();
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    let mut mirror = Mirror::serving(&data);
    pip_gets_through(&mirror);
    let path = large(&mirror.url(""));
    let before = mirror.most_memory();
    let mut attacker = Attacker::at(&mirror.url(""), &["--path", &path, "--token", &token]);
    let seen = attacker.tries("zero-window");
    let statuses: Vec<u64> = serde_json::from_value(seen["statuses"].clone()).unwrap();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), HELD, "{seen}");
    pip_gets_through(&mirror);
    let seen = attacker.tries("small-window");
    assert_eq!(seen["data"].as_array().unwrap().len(), HELD, "{seen}");
    attacker.tries("half-uploads");
    pip_gets_through(&mirror);
    let grown = mirror.most_memory() - before;
    assert!(grown < OF_ANSWERS, "{grown} bytes");
    drop(attacker);
    pip_gets_through(&mirror);
    let log = mirror.stop();
    assert!(!log.contains("panic"), "{log}");
}

/// Connections on which nothing moves end: with half a preface, without a request, and with answers that are not taken.
#[test]
fn nobody_stays_who_says_nothing() {
    let dir = stocked();
    let store = Arc::new(Store::open(&dir.path().join("data")).unwrap());
    let short = Duration::from_secs(1);
    let limits = Limits { head: short, stall: short, ..Limits::default() };
    let server = InProcess::with(store, PolicySource::fixed(Policy::builtin()), limits);
    let path = large(&server.base);
    let mut attacker = Attacker::at(&server.base, &["--path", &path]);
    for (attack, connections) in [("half-prefaces", 24), ("idle", 20), ("zero-window", 50)] {
        attacker.tries(attack);
        let ends = attacker.tries("ends");
        let ends = ends["ends"].as_array().unwrap();
        assert_eq!(ends.iter().filter(|seen| seen["closed"] == true).count(), connections, "{attack}");
        assert_eq!(get(&server.base, "/healthz", &[]).status, 200);
    }
}
