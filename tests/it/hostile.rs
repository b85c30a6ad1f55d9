//! What no honest client sends.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::support::http::{InProcess, exchange, get, send, stock};
use crate::support::make_wheels;
use crate::support::mirror::Mirror;
use crate::support::nginx::RoundRobin;
use jetwheel::policy::Policy;
use jetwheel::server::{Limits, PolicySource};
use jetwheel::store::Store;

const ORIN: &str = "orin-jp6.2";

fn stocked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_wheels(&json!({"filename": "demo-1.0-py3-none-any.whl", "files": {"demo.py": ""}}), dir.path());
    stock(&Store::open(&dir.path().join("data")).unwrap(), dir.path());
    dir
}

#[test]
fn c20_path_tricks() {
    let dir = stocked();
    fs_err::write(dir.path().join("data/secret"), "secret").unwrap();
    let mirror = Mirror::serving(&dir.path().join("data"));
    let digest = "0".repeat(64);
    let long = "a".repeat(5000);
    for trick in
        ["%2e%2e%2f", "..%5c", "%00", "a%00b", &long, "a%2Fb", "..", "%2e%2e", "../../../secret", "%ff", "%"]
    {
        for target in [
            format!("/{ORIN}/simple/{trick}/"),
            format!("/{ORIN}/simple/{trick}"),
            format!("/{ORIN}/files/{digest}/{trick}"),
            format!("/{ORIN}/files/{trick}/demo-1.0-py3-none-any.whl"),
            format!("/{trick}/simple/demo/"),
            format!("/{ORIN}/explain/{trick}"),
            format!("/{trick}"),
        ] {
            let answer = get(&mirror.url(""), &target, &[]);
            assert!(matches!(answer.status, 400 | 404), "{target}: {answer:?}");
            assert!(answer.body.len() < 1000 && !answer.text().contains("secret\n"), "{target}");
        }
    }
    // As raw bytes, which no URL may have.
    for raw in ["/a\0b/simple/", "/orin/simple/\u{1}/", "/a b/simple/"] {
        let bytes =
            exchange(&mirror.url(""), format!("GET {raw} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        assert!(bytes.starts_with(b"HTTP/1.1 400 "), "{raw:?}: {}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_line_of_the_log_cannot_be_forged() {
    let dir = stocked();
    let mut mirror = Mirror::serving(&dir.path().join("data"));
    get(&mirror.url(""), "/x%0a2026-01-01T00:00:00Z%20INFO%20forged/simple/?token=hidden", &[]);
    get(&mirror.url(""), "/healthz", &[("X-A", "b\tc")]);
    send(&mirror.url(""), &"M".repeat(20_000), "/healthz", &[], b"");
    let log = mirror.stop();
    assert!(log.contains("/healthz") && log.contains("status=200"), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01T00:00:00Z")), "{log}");
    assert!(!log.contains("hidden"), "a query may hold a secret: {log}");
    assert!(log.contains("method=MMMMMMMMMMMMMMMM path"), "a method as long as a head: {log}");
}

#[test]
fn clients_that_say_nothing_do_not_keep_the_others_waiting() {
    let dir = stocked();
    let store = std::sync::Arc::new(Store::open(&dir.path().join("data")).unwrap());
    let limits = Limits { head: Duration::from_hours(1), connections: 4, ..Limits::default() };
    let server = InProcess::with(store, PolicySource::fixed(Policy::builtin()), limits);
    let address = server.base.trim_start_matches("http://");
    let heads = ["", "GET / HT", "", "GET / HT", "", "GET / HT"];
    let silent: Vec<TcpStream> = heads
        .into_iter()
        .map(|head| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    // Long before the hour is over in which they may say something.
    assert_eq!(get(&server.base, "/healthz", &[]).status, 200);
    drop(silent);
}

/// RFC 9112, section 3.2.
#[test]
fn a_request_without_one_host_is_malformed() {
    let dir = stocked();
    let mirror = Mirror::serving(&dir.path().join("data"));
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n", "400"),
        ("GET /healthz HTTP/1.1\r\nHost: a\r\n", "200"),
        ("GET /healthz HTTP/1.0\r\n", "200"),
    ] {
        let request = format!("{head}Connection: close\r\n\r\n");
        let answer = exchange(&mirror.url(""), request.as_bytes()).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{head}: {answer}");
    }
}

/// Heads and bodies whose end is where the reader takes it to be.
const DOUBTS: &[&str] = &[
    "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "Content-Length: 2, 3\r\n\r\n{}",
    "Content-Length: +2\r\n\r\n{}",
    "Content-Length: -1\r\n\r\n{}",
    "Content-Length: 0x2\r\n\r\n{}",
    "Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    "Transfer-Encoding: chunked\r\n\r\n2;\n{}\r\n0\r\n\r\n",
    "X: a\r\n b\r\n\r\n",
    "X: a\rContent-Length: 2\r\n\r\n{}",
    "X: a\0b\r\n\r\n",
];

/// What an attacker wants to have taken for a request of somebody else.
const BEHIND: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/// RFC 9112, sections 5.1, 5.2, 6 and 7.1: somebody on the way may see another end of these bodies than we do, and so another
/// request behind them.
#[test]
fn a_request_whose_end_is_in_doubt_is_the_last() {
    let dir = stocked();
    let mirror = Mirror::serving(&dir.path().join("data"));
    for doubt in DOUBTS {
        let request = format!("POST /{ORIN}/resolve HTTP/1.1\r\nHost: x\r\n{doubt}{BEHIND}");
        let answer = exchange(&mirror.url(""), request.as_bytes()).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{doubt:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{doubt:?}: {answer}");
    }
}

/// Behind a proxy all clients share connections to the mirror: if the two saw different ends of a request, somebody would get the
/// answer to what another one smuggled in.
#[test]
fn nothing_is_smuggled_through_a_proxy() {
    let dir = stocked();
    let mut mirror = Mirror::serving(&dir.path().join("data"));
    let proxy = RoundRobin::keeping_connections(&[mirror.url("")]);
    let mut seen = 0;
    // Some that the proxy may take for one and mend: a chunk with an extension, a folded field, lines that end with LF alone.
    let through = [
        "Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2;\r\n{}\r\n0\r\nX: y\r\n\r\n",
        "Transfer-Encoding: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\nContent-Length: 4\n\n2\r\n{}\r\n0\r\n\r\n",
        "Content-Length: 2\n\n{}",
        "X: y\nContent-Length: 2\r\n\r\n{}",
        "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        "Content-Length: 2\r\n\r\n{}",
        "Content_Length: 40\r\nContent-Length: 2\r\n\r\n{}",
        "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        "Connection: Content-Length\r\nContent-Length: 2\r\n\r\n{}",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nContent-Length: 2\r\n\r\n{}",
    ];
    for doubt in DOUBTS.iter().chain(&through) {
        let last = BEHIND.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        let request = format!("POST /{ORIN}/resolve HTTP/1.1\r\nHost: x\r\n{doubt}{last}");
        let answer = exchange(&proxy.url(), request.as_bytes()).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let answers = answer.matches("HTTP/1.1 ").count(); // one may be 100
        assert!(answers <= 3, "{doubt:?}: {answer}");
        seen += answer.matches("HTTP/1.1 404 ").count();
        // The next client gets its own answer.
        for _ in 0..2 {
            let other = get(&proxy.url(), "/healthz", &[]);
            assert_eq!((other.status, other.text()), (200, "ok\n"), "after {doubt:?}");
        }
    }
    let log = mirror.stop();
    // Each that came was one that its sender saw the answer to.
    assert!(seen > 0 && log.matches("path=/smuggled").count() == seen, "{seen}: {log}");
}

/// What an HTTP/2 client asks for and does not read stays in memory: so it may not ask for much at once (RFC 9113, 6.5.2).
#[test]
fn an_http_2_client_is_given_few_streams() {
    let dir = stocked();
    let mirror = Mirror::serving(&dir.path().join("data"));
    let mut stream = TcpStream::connect(mirror.url("").trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[3], 4, "the first frame is SETTINGS");
    let mut settings = vec![0; usize::from(head[2])];
    stream.read_exact(&mut settings).unwrap();
    let streams = settings.chunks(6).find(|setting| setting[..2] == [0, 3]).unwrap();
    assert!(u32::from_be_bytes(streams[2..].try_into().unwrap()) <= 8, "{streams:?}");
}

/// Numbers from a seed, so that a failure can be repeated (the constants are those of Numerical Recipes).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

#[test]
fn garbage_neither_stops_the_server_nor_makes_it_fail() {
    let dir = stocked();
    let mut mirror = Mirror::serving(&dir.path().join("data"));
    let base = mirror.url("");
    let mut numbers = Numbers(20_261_130);
    let pieces = [
        "GET ",
        "HEAD ",
        "POST ",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "OPTIONS * ",
        "CONNECT a:1 ",
        "/",
        ORIN,
        "/simple/",
        "/files/",
        "demo",
        "%2e",
        "%",
        "..",
        "\\",
        "?",
        "#",
        " HTTP/1.1\r\n",
        " HTTP/9.9\r\n",
        "Host: x\r\n",
        "Range: bytes=",
        "0-",
        "-5",
        ",",
        "18446744073709551616",
        "If-None-Match: W/\"",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\0",
        "\u{e9}",
        "Accept: ",
        "q=",
        ";",
        "*/*",
        "Transfer-Encoding: chunked\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Expect: 100-continue\r\n",
        "ffffffff\r\n",
        "http://h/",
        "00000000",
        "Accept-Encoding: gzip;q=0.0001\r\n",
        ":",
    ];
    for round in 0..400 {
        let mut request = String::new();
        for _ in 0..numbers.below(24) {
            request.push_str(numbers.pick(&pieces));
        }
        if numbers.below(2) == 0 {
            request.push_str(" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        }
        let mut bytes = request.into_bytes();
        if numbers.below(3) == 0 && !bytes.is_empty() {
            let place = numbers.below(bytes.len());
            bytes[place] = u8::try_from(numbers.below(256)).unwrap();
        }
        let mut stream = TcpStream::connect(base.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        // The server may close before it has read all.
        let _refused = stream.write_all(&bytes);
        let _gone = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        let request = String::from_utf8_lossy(&bytes);
        assert!(!text.starts_with("HTTP/1.1 5"), "round {round}: {request:?}: {text}");
    }
    assert_eq!(get(&base, &format!("/{ORIN}/simple/demo/"), &[]).status, 200);
    let log = mirror.stop();
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn a_head_that_never_ends_is_let_go() {
    let dir = stocked();
    let store = std::sync::Arc::new(Store::open(&dir.path().join("data")).unwrap());
    let short = Duration::from_millis(200);
    let limits = Limits { head: short, stall: short, connections: 2, ..Limits::default() };
    let server = InProcess::with(store, PolicySource::fixed(Policy::builtin()), limits);
    for head in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let mut answer = Vec::new();
        // Closed or reset, but not open for ever.
        let ended = stream.read_to_end(&mut answer);
        assert!(ended.is_ok_and(|_| !answer.starts_with(b"HTTP/1.1 200")), "{head:?}");
    }
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "X-A: b\r\n".repeat(1000));
    let answer = exchange(&server.base, many.as_bytes()).unwrap_or_default();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(get(&server.base, "/healthz", &[]).status, 200);
}
