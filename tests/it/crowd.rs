//! Clients that trickle, so many that they would have every place of the mirror, and honest ones beside them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::support::clients::{JETPACK_6, Pip};
use crate::support::http::get;
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";

/// More than the mirror has places.
const CROWD: usize = 450;

/// About the size of a wheel that takes 80 s at 100 kB/s.
const BIG: usize = 8_000_000;

/// What a device on a poor line takes or sends in a tenth of a second: 100 kB/s.
const SLICE: usize = 10_000;

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PING: &str = "\0\0\u{8}\u{6}\0\0\0\0\0pingping";

struct Site {
    dir: tempfile::TempDir,
    mirror: Mirror,
    token: String,
    /// The path of the large wheel.
    big: String,
}

impl Site {
    fn new() -> Self {
        Self::serving(Mirror::serving)
    }

    /// With as many connections at once as that, by a server that begins with the usual limit of open files and may raise it to
    /// `files`.
    fn with_connections(connections: usize, files: usize) -> Self {
        Self::serving(|data| limited(data, &format!("connections = {connections}"), files))
    }

    fn serving(serve: impl Fn(&Path) -> Mirror) -> Self {
        // All crowds together, which `cargo test` has in one process, are more than the usual 1,024 open files.
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let demo = json!({"filename": "demo-1.0-py3-none-any.whl", "files": {"demo.py": ""}});
        make_wheels(&demo, dir.path());
        // Text of 64 letters in no order, of which nothing but a quarter can be compressed away.
        let letters = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Some(char::from(b'0' + u8::try_from(*state >> 58).unwrap()))
        };
        let text: String = std::iter::repeat_n((), BIG * 4 / 3).scan(1, |state, ()| letters(state)).collect();
        make_wheels(&json!({"filename": "big-1.0-py3-none-any.whl", "files": {"big.txt": text}}), dir.path());
        let data = dir.path().join("data");
        let added = jetwheel(&data).arg("add").arg(dir.path()).output().unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let token = jetwheel(&data).args(["token", "create", "ci", "--scope", "upload"]).output().unwrap();
        let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
        let mirror = serve(&data);
        let page = get(&mirror.url(""), &format!("/{ORIN}/simple/big/"), &[]);
        let big = page.text().split("href=\"").nth(1).unwrap().split(['"', '#']).next().unwrap();
        let big = format!("/{ORIN}/simple/big/{big}");
        let big = big.replace("simple/big/../../", "");
        Self { dir, mirror, token, big }
    }

    /// The file of the large wheel.
    fn wheel(&self) -> PathBuf {
        self.dir.path().join("big-1.0-py3-none-any.whl")
    }

    /// A connection from an address of the loopback, with as little buffered at this end as the kernel allows.
    fn connect(&self, from: Ipv4Addr) -> TcpStream {
        let to: SocketAddr = self.mirror.url("").trim_start_matches("http://").parse().unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(1 << 12).unwrap();
        socket.bind(&SockAddr::from(SocketAddr::from((from, 0)))).unwrap();
        socket.connect(&SockAddr::from(to)).unwrap();
        socket.into()
    }

    fn head_of_upload(&self, boundary: &str, length: usize) -> String {
        let login = format!("Authorization: Bearer {}", self.token);
        let kind = format!("Content-Type: multipart/form-data; boundary={boundary}");
        format!("POST /legacy/ HTTP/1.1\r\nHost: x\r\n{login}\r\n{kind}\r\nContent-Length: {length}\r\n\r\n")
    }

    /// What a client of each kind says first, and then again and again. Each would keep its place for ever if only silence were
    /// bounded, and the time of a head.
    fn kinds(&self) -> Vec<(String, String)> {
        let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        // Asks for the large wheel on stream 1 with a window of no bytes: indexed fields for GET and http, literal path and authority.
        let path = u8::try_from(self.big.len()).unwrap();
        assert!(path < 127);
        let block = format!("\u{2}\u{6}\u{4}{}{}\u{1}\u{1}x", char::from(path), self.big);
        // The first two are indexed, which sets their high bit: those are put in as bytes below.
        let headers =
            format!("\0\0{}\u{1}\u{5}\0\0\0\u{1}{block}", char::from(u8::try_from(block.len()).unwrap()));
        // Uploads by the byte on stream 1: POST, http, and the login and the type of the form, without being put in the table.
        let text = |text: &str| format!("{}{text}", char::from(u8::try_from(text.len()).unwrap()));
        let login = text(&format!("Bearer {}", self.token));
        let block = format!(
            "\u{3}\u{6}\u{4}{}\u{1}\u{1}x\u{f}\u{8}{login}\u{f}\u{10}{}",
            text("/legacy/"),
            text("multipart/form-data; boundary=b")
        );
        let upload =
            format!("\0\0{}\u{1}\u{4}\0\0\0\u{1}{block}", char::from(u8::try_from(block.len()).unwrap()));
        let byte = "\0\0\u{1}\0\0\0\0\0\u{1}-";
        let no_window = "\0\0\u{6}\u{4}\0\0\0\0\0\0\u{4}\0\0\0\0";
        let holders = [
            (self.head_of_upload("b", 100_000), "x".to_owned()),
            (ask("/healthz"), ask("/healthz")),
            (format!("{PREFACE}{no_window}"), PING.to_owned()),
            (format!("{PREFACE}{no_window}{headers}"), PING.to_owned()),
            (format!("{PREFACE}{no_window}{upload}"), byte.to_owned()),
        ];
        // What takes an answer by the byte seems to take nothing, which was always bounded: few of these, or they let others in.
        holders.iter().cycle().take(10).cloned().chain([(ask(&self.big), String::new())]).collect()
    }
}

/// A server with these limits in its configuration, which may have as many open files as that, and begins with 256 at most.
fn limited(data: &Path, limits: &str, files: usize) -> Mirror {
    let config = data.with_extension("toml");
    fs_err::write(&config, format!("[limits]\n{limits}\n")).unwrap();
    let mut serve = jetwheel(data);
    serve.arg("--config").arg(&config).args(["serve", "--listen", "127.0.0.1:0"]);
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile=256:{files}")).arg(serve.get_program()).args(serve.get_args());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Mirror::started_by(command)
}

/// A number that the metrics have.
fn metric(mirror: &Mirror, name: &str) -> u64 {
    let answer = get(&mirror.url(""), "/metrics", &[]);
    let text = answer.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
}

/// One client of the crowd; comes again when it is let go, as long as it takes.
struct Trickler<'a> {
    site: &'a Site,
    from: Ipv4Addr,
    first: Vec<u8>,
    then: String,
    stream: TcpStream,
}

impl<'a> Trickler<'a> {
    fn new(site: &'a Site, from: Ipv4Addr, (first, then): &(String, String)) -> Self {
        let first = indexed(first);
        let stream = Self::start(site, from, &first);
        Self { site, from, first, then: then.clone(), stream }
    }

    fn start(site: &Site, from: Ipv4Addr, first: &[u8]) -> TcpStream {
        let mut stream = site.connect(from);
        stream.write_all(first).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Moves a byte, or asks once.
    fn trickle(&mut self) {
        let mut byte = [0];
        let read = self.stream.read(&mut byte);
        let gone = match &read {
            Ok(count) => *count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        if gone || self.stream.write_all(self.then.as_bytes()).is_err() {
            self.stream = Self::start(self.site, self.from, &self.first);
        }
    }
}

/// Text as bytes, where the two indexed fields of a header block get their high bits.
fn indexed(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    if let Some(at) = text.find("\u{2}\u{6}\u{4}").or_else(|| text.find("\u{3}\u{6}\u{4}")) {
        bytes[at] |= 0x80;
        bytes[at + 1] |= 0x80;
    }
    bytes
}

/// Takes the large wheel at 100 kB/s until `over`, and the rest at once; yields the length of the answer, head and wheel.
fn take_slowly(site: &Site, over: &AtomicBool) -> usize {
    let mut stream = site.connect(Ipv4Addr::LOCALHOST);
    let ask = format!("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", site.big);
    stream.write_all(ask.as_bytes()).unwrap();
    let mut length = 0;
    while !over.load(Ordering::Relaxed) {
        let slice = (&stream).take(SLICE as u64).read_to_end(&mut Vec::new());
        let count = slice.expect("a slow client is not cut off");
        length += count;
        if count < SLICE {
            return length;
        }
        thread::sleep(Duration::from_millis(100));
    }
    length + stream.read_to_end(&mut Vec::new()).unwrap()
}

/// Sends a wheel at 100 kB/s until `over`, and the rest at once; yields the answer.
fn send_slowly(site: &Site, over: &AtomicBool) -> String {
    let wheel = fs_err::read(site.wheel()).unwrap();
    let part = "Content-Disposition: form-data; name=\"content\"; filename=\"big-1.0-py3-none-any.whl\"";
    let before = format!(
        "--b\r\nContent-Disposition: form-data; name=\":action\"\r\n\r\nfile_upload\r\n--b\r\n{part}\r\n\r\n"
    );
    let form = [before.as_bytes(), &wheel, b"\r\n--b--\r\n"].concat();
    let mut stream = site.connect(Ipv4Addr::LOCALHOST);
    stream.write_all(site.head_of_upload("b", form.len()).as_bytes()).unwrap();
    let mut slices = form.chunks(SLICE);
    for slice in slices.by_ref() {
        stream.write_all(slice).expect("a slow client is not cut off");
        if over.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    for slice in slices {
        stream.write_all(slice).unwrap();
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Says that it is over, however its scope ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn pip_gets_through(address: impl Fn(usize) -> Ipv4Addr) {
    let site = &Site::new();
    let over = &AtomicBool::new(false);
    let kinds = site.kinds();
    let length = fs_err::read(site.wheel()).unwrap().len();
    thread::scope(|scope| {
        let ends = Over(over);
        let taken = scope.spawn(|| take_slowly(site, over));
        let sent = scope.spawn(|| send_slowly(site, over));
        let mut crowd: Vec<Trickler<'_>> =
            (0..CROWD).map(|n| Trickler::new(site, address(n), &kinds[n % kinds.len()])).collect();
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                crowd.iter_mut().for_each(Trickler::trickle);
                thread::sleep(Duration::from_millis(300));
            }
        });
        let fetched = Pip::newest().retrying().download(&site.mirror.index_url(ORIN), JETPACK_6, "demo");
        drop(ends);
        assert!(fetched.done && fetched.names == ["demo-1.0-py3-none-any.whl"], "{}", fetched.said);
        assert!(taken.join().unwrap() > length, "the whole wheel");
        assert_eq!(sent.join().unwrap(), "HTTP/1.1 200");
    });
}

#[test]
fn pip_gets_through_a_crowd_at_one_address() {
    pip_gets_through(|_| Ipv4Addr::LOCALHOST);
}

#[test]
fn pip_gets_through_a_crowd_at_as_many_addresses() {
    pip_gets_through(|n| Ipv4Addr::from_bits(0x7f00_0100 + u32::try_from(n).unwrap()));
}

#[test]
fn as_many_slow_downloads_go_on_at_once_as_the_configuration_allows() {
    let site = &Site::with_connections(800, 4096);
    let length = fs_err::read(site.wheel()).unwrap().len();
    let ask = format!("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", site.big);
    let mut downloads: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut stream = site.connect(Ipv4Addr::LOCALHOST);
            stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            stream.write_all(ask.as_bytes()).unwrap();
            stream
        })
        .collect();
    for round in 0..3 {
        for (number, stream) in downloads.iter_mut().enumerate() {
            let mut slice = [0; SLICE];
            let read = stream.read_exact(&mut slice);
            assert!(read.is_ok(), "download {number}, round {round}: {read:?}");
            assert!(round > 0 || slice.starts_with(b"HTTP/1.1 200 "), "download {number}");
        }
        let page = get(&site.mirror.url(""), &format!("/{ORIN}/simple/demo/"), &[]);
        assert_eq!(page.status, 200);
        assert!(metric(&site.mirror, "jetwheel_http_connections") >= 600);
    }
    assert_eq!(metric(&site.mirror, "process_max_fds"), 4096);
    // One of each hundred to its end; the others break off.
    for stream in downloads.iter_mut().step_by(100) {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.len() + 3 * SLICE > length, "{} of {length} bytes", rest.len());
    }
}

#[test]
fn as_many_connections_are_taken_as_there_may_be_open_files_for() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for (limits, files, said) in [
        // The usual limit is enough for what is built in.
        ("", 1024, None),
        ("connections = 400", 1024, None),
        ("connections = 800", 1824, None),
        (
            "connections = 800",
            1024,
            Some("which takes 1824 open files, and this process may have 1024: 400 connections"),
        ),
        ("", 424, Some("which takes 1024 open files, and this process may have 424: 100 connections")),
    ] {
        let mut mirror = limited(&data, limits, files);
        assert_eq!(metric(&mirror, "process_max_fds"), files as u64, "{limits}");
        let log = mirror.stop();
        assert_eq!(log.contains("LimitNOFILE="), said.is_some(), "{limits}, {files}: {log}");
        assert!(log.contains(said.unwrap_or_default()), "{limits}, {files}: {log}");
    }
    for wrong in ["0", "65537"] {
        fs_err::write(data.with_extension("toml"), format!("[limits]\nconnections = {wrong}\n")).unwrap();
        let mut command = jetwheel(&data);
        let config = data.with_extension("toml");
        let output = command.arg("--config").arg(config).args(["serve", "--listen", "127.0.0.1:0"]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("connections is {wrong}, expected 1 to 65536")), "{said}");
    }
}
