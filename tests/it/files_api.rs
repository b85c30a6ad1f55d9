//! Wheels and their metadata over HTTP: byte for byte, in ranges, and only to devices on which they run.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::support::http::{InProcess, get, head, local, send, take};
use crate::support::make_wheels;
use crate::support::mirror::Mirror;
use jetwheel::digest::Sha256;
use jetwheel::policy::Policy;
use jetwheel::server::{Limits, PolicySource};
use jetwheel::store::Store;

const ORIN: &str = "orin-jp6.2";
const THOR: &str = "thor-jp7.0";
const PLUS: &str = "demo-1.0+cu126-cp310-cp310-linux_aarch64.whl";

/// A data folder with one wheel, its bytes and its digest.
struct Stocked {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
    sha256: Sha256,
}

impl Stocked {
    /// With a wheel of a little code for Orin's GPU alone, and as much ballast as asked for.
    fn with_ballast(size: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut state = 1_u32;
        // Digits that do not repeat, so that a piece in the wrong place shows.
        let ballast: String = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("{state:08x}")
        })
        .take(size / 8)
        .collect();
        make_wheels(
            &json!({"filename": PLUS, "files": {"demo/ballast.txt": ballast}, "elfs": [{"path": "demo/_C.so",
                "soname": "_C.so", "glibc": "2.17", "cuda": "12.6", "fatbins": [{"images": ["sm_87"], "count": 1}]}]}),
            dir.path(),
        );
        let path = dir.path().join(PLUS);
        let sha256 = take(&Store::open(&dir.path().join("data")).unwrap(), &path, &local());
        Self { bytes: fs_err::read(path).unwrap(), sha256, dir }
    }

    fn mirror(&self) -> Mirror {
        Mirror::serving(&self.dir.path().join("data"))
    }

    fn store(&self) -> Arc<Store> {
        Arc::new(Store::open(&self.dir.path().join("data")).unwrap())
    }

    fn target(&self, device: &str) -> String {
        format!("/{device}/files/{}/{PLUS}", self.sha256)
    }

    /// The file in which the store keeps the bytes.
    fn blob(&self) -> std::path::PathBuf {
        self.store().blob(&self.sha256)
    }
}

#[test]
fn c06_plus_in_a_file_name() {
    let stocked = Stocked::with_ballast(0);
    let mirror = stocked.mirror();
    for plus in ["+", "%2B", "%2b"] {
        let target = stocked.target(ORIN).replace('+', plus);
        assert_eq!(get(&mirror.url(""), &target, &[]).body, stocked.bytes, "{plus}");
        let metadata = get(&mirror.url(""), &format!("{target}.metadata"), &[]);
        assert!(metadata.status == 200 && metadata.text().starts_with("Metadata-Version:"), "{metadata:?}");
    }
    for space in ["%20", "%252B"] {
        assert_eq!(get(&mirror.url(""), &stocked.target(ORIN).replace('+', space), &[]).status, 404);
    }
}

#[test]
fn c10_range_set() {
    let stocked = Stocked::with_ballast(0);
    let mirror = stocked.mirror();
    let (target, bytes) = (stocked.target(ORIN), &stocked.bytes);
    let n = bytes.len();
    let ask = |range: &str| get(&mirror.url(""), &target, &[("Range", range)]);
    for (range, part, content_range) in [
        ("bytes=0-9".to_owned(), &bytes[..10], format!("bytes 0-9/{n}")),
        ("bytes=-20".to_owned(), &bytes[n - 20..], format!("bytes {}-{}/{n}", n - 20, n - 1)),
        ("bytes=30-".to_owned(), &bytes[30..], format!("bytes 30-{}/{n}", n - 1)),
    ] {
        let answer = ask(&range);
        assert_eq!((answer.status, answer.header("content-range")), (206, Some(content_range.as_str())));
        assert_eq!(answer.body, part, "{range}");
    }
    let outside = ask(&format!("bytes={n}-"));
    let unsatisfied = format!("bytes */{n}");
    assert_eq!((outside.status, outside.header("content-range")), (416, Some(unsatisfied.as_str())));
    for range in ["bytes=9-0", "bytes=0-0,5-6", "pages=1-2"] {
        let answer = ask(range);
        assert_eq!((answer.status, &answer.body), (200, bytes), "{range}");
    }
    let alone = head(&mirror.url(""), &target, &[("Range", "bytes=0-9")]);
    assert_eq!(alone.status, 200);
    assert_eq!(alone.header("content-length"), Some(n.to_string().as_str()));
    assert_eq!(alone.header("accept-ranges"), Some("bytes"));
}

#[test]
fn c11_resume_that_must_not_mix_files() {
    let stocked = Stocked::with_ballast(0);
    let mirror = stocked.mirror();
    let target = stocked.target(ORIN);
    let etag = head(&mirror.url(""), &target, &[]).header("etag").unwrap().to_owned();
    let resume = |tag: &str| get(&mirror.url(""), &target, &[("Range", "bytes=100-"), ("If-Range", tag)]);
    let fits = resume(&etag);
    assert_eq!((fits.status, &*fits.body), (206, &stocked.bytes[100..]));
    for other in ["\"other\"", &format!("W/{etag}"), "Mon, 30 Nov 2026 00:00:00 GMT"] {
        let whole = resume(other);
        assert_eq!((whole.status, &whole.body), (200, &stocked.bytes), "{other}");
    }
    let known = get(&mirror.url(""), &target, &[("If-None-Match", &etag)]);
    assert_eq!((known.status, known.header("etag")), (304, Some(etag.as_str())));
}

#[test]
fn c12_wheels_are_never_content_encoded() {
    let stocked = Stocked::with_ballast(100_000);
    let mirror = stocked.mirror();
    let encodings = ("Accept-Encoding", "gzip, zstd");
    let wheel = get(&mirror.url(""), &stocked.target(ORIN), &[encodings]);
    assert_eq!((wheel.header("content-encoding"), &wheel.body), (None, &stocked.bytes));
    assert_eq!(wheel.header("content-disposition"), None);
    assert_eq!(wheel.header("cache-control"), Some("max-age=365000000, immutable"));
    let metadata = get(&mirror.url(""), &format!("{}.metadata", stocked.target(ORIN)), &[encodings]);
    assert_eq!((metadata.status, metadata.header("content-encoding")), (200, None));
}

#[test]
fn c29_lost_blob() {
    let stocked = Stocked::with_ballast(0);
    let blob = stocked.blob();
    let mirror = stocked.mirror();
    let target = stocked.target(ORIN);
    assert_eq!(head(&mirror.url(""), &target, &[]).status, 200);
    let file = fs_err::OpenOptions::new().write(true).open(&blob);
    // The store may have taken the right to write away.
    if let Ok(file) = file {
        file.set_len(10).unwrap();
    } else {
        fs_err::remove_file(&blob).unwrap();
        fs_err::write(&blob, b"0123456789").unwrap();
    }
    for method in ["GET", "HEAD"] {
        assert_eq!(send(&mirror.url(""), method, &target, &[], b"").status, 404, "truncated");
    }
    fs_err::remove_file(&blob).unwrap();
    for method in ["GET", "HEAD"] {
        assert_eq!(send(&mirror.url(""), method, &target, &[], b"").status, 404, "lost");
    }
    let metadata = get(&mirror.url(""), &format!("{target}.metadata"), &[]);
    assert_eq!(metadata.status, 200, "the metadata is still there");
}

#[test]
fn a_file_refused_for_the_device_is_403_with_the_reason_where_pip_shows_it() {
    let stocked = Stocked::with_ballast(0);
    let mirror = stocked.mirror();
    for suffix in ["", ".metadata"] {
        let target = format!("{}{suffix}", stocked.target(THOR));
        let answer = get(&mirror.url(""), &target, &[]);
        assert_eq!((answer.status, answer.header("cache-control")), (403, Some("no-store")));
        assert!(answer.phrase.starts_with(&format!("refused for {THOR}: ")), "{}", answer.phrase);
        assert!(answer.phrase.len() <= 240 && answer.phrase.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        assert!(answer.text().contains("sm_87"), "all reasons: {}", answer.text());
        assert_eq!(head(&mirror.url(""), &target, &[]).status, 403);
        let range = get(&mirror.url(""), &target, &[("Range", "bytes=0-9")]);
        assert_eq!(range.status, 403);
    }
    assert_eq!(get(&mirror.url(""), &stocked.target("nothing"), &[]).status, 404);
    let elsewhere = stocked.target(ORIN).replace("demo-1.0", "demo-1.1");
    assert_eq!(get(&mirror.url(""), &elsewhere, &[]).status, 404, "that digest has another name");
}

#[test]
fn an_edit_of_the_policy_is_in_force_at_the_next_request() {
    let stocked = Stocked::with_ballast(0);
    let folder = stocked.dir.path().join("policy");
    fs_err::create_dir_all(&folder).unwrap();
    let devices = folder.join("devices.toml");
    let site = |capability: &str| {
        format!("[[device]]\nid = \"robot\"\nbase = \"{ORIN}\"\ncompute_capability = \"{capability}\"\n")
    };
    fs_err::write(&devices, site("8.7")).unwrap();
    let load = |dir: &std::path::Path| {
        let text = fs_err::read_to_string(dir.join("devices.toml")).map_err(|error| error.to_string())?;
        Policy::with_site(&[("devices.toml".to_owned(), text)]).map_err(|error| error.to_string())
    };
    let source = PolicySource::folder(folder, Box::new(load)).unwrap();
    let server = InProcess::with(stocked.store(), source, Limits::default());
    let file = stocked.target("robot");
    let page = "/robot/simple/demo/";
    let status = || {
        let listed = get(&server.base, page, &[]).text().contains("<a href");
        (get(&server.base, &file, &[]).status, listed)
    };
    assert_eq!(status(), (200, true));
    fs_err::write(&devices, site("7.2")).unwrap();
    assert_eq!(status(), (403, false));
    fs_err::write(&devices, "nonsense").unwrap();
    assert_eq!(status(), (403, false), "the last good policy stays in force");
    let ready = get(&server.base, "/readyz", &[]);
    assert!(ready.status == 200 && ready.json()["policy"]["error"].is_string(), "{ready:?}");
    fs_err::write(&devices, site("8.7")).unwrap();
    assert_eq!(status(), (200, true));
}

/// Many pieces on one connection, whole and in ranges, one after another and pipelined.
#[test]
fn one_connection_carries_many_large_answers() {
    let stocked = Stocked::with_ballast(12 << 20);
    let mirror = stocked.mirror();
    let n = stocked.bytes.len();
    assert!(n > 5 << 20, "larger than a piece: {n}");
    let host = "Host: mirror.test\r\n";
    let target = stocked.target(ORIN);
    let request = format!(
        "GET {target} HTTP/1.1\r\n{host}\r\n\
         GET /healthz HTTP/1.1\r\n{host}\r\n\
         GET {target} HTTP/1.1\r\n{host}Range: bytes=1000000-5999999\r\n\r\n\
         GET {target} HTTP/1.1\r\n{host}Connection: close\r\n\r\n"
    );
    let bytes = crate::support::http::exchange(&mirror.url(""), request.as_bytes()).unwrap();
    let mut rest = &bytes[..];
    for expected in [&stocked.bytes[..], b"ok\n", &stocked.bytes[1_000_000..6_000_000], &stocked.bytes[..]] {
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        let (body, after) = rest[end..].split_at(expected.len());
        assert!(body == expected, "{}", String::from_utf8_lossy(&rest[..end]));
        rest = after;
    }
    assert!(rest.is_empty());
}

/// HTTP/2 takes another way from the disk to the client; curl is the judge.
#[test]
fn http2_gets_the_same_bytes() {
    let stocked = Stocked::with_ballast(3 << 20);
    let mirror = stocked.mirror();
    let curl = |arguments: &[&str]| {
        let output = std::process::Command::new("curl")
            .args(["--silent", "--http2-prior-knowledge", "--max-time", "60"])
            .args(arguments)
            .output()
            .expect("curl is needed to speak HTTP/2: install it");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let url = mirror.url(&stocked.target(ORIN));
    assert!(curl(&[&url]) == stocked.bytes);
    assert!(curl(&["--range", "100-1000000", &url]) == stocked.bytes[100..=1_000_000]);
    let refused = mirror.url(&stocked.target(THOR));
    assert_eq!(
        curl(&["--output", "/dev/null", "--write-out", "%{http_code} %{http_version}", &refused]),
        b"403 2"
    );
}

#[test]
fn a_client_that_takes_nothing_is_let_go() {
    let stocked = Stocked::with_ballast(24 << 20);
    let limits = Limits { stall: Duration::from_millis(300), connections: 1, ..Limits::default() };
    let server = InProcess::with(stocked.store(), PolicySource::fixed(Policy::builtin()), limits);
    let address = server.base.trim_start_matches("http://");
    // It asks for more than the buffers of a connection hold, and never reads.
    let mut stuck = TcpStream::connect(address).unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", stocked.target(ORIN));
    stuck.write_all(request.as_bytes()).unwrap();
    // The only place is taken until it is let go.
    assert_eq!(get(&server.base, "/healthz", &[]).status, 200);
    let mut taken = Vec::new();
    let _reset = stuck.read_to_end(&mut taken);
    assert!(taken.len() < stocked.bytes.len(), "it got all of it");
}

#[test]
fn a_stop_lets_requests_in_flight_end() {
    let stocked = Stocked::with_ballast(24 << 20);
    let mut server = InProcess::serving(stocked.store());
    let mut client = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", stocked.target(ORIN));
    client.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 1000];
    client.read_exact(&mut first).unwrap();
    server.stop();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    server.join();
    let all = [&first[..], &rest].concat();
    assert!(all.ends_with(&stocked.bytes), "{} of {} bytes", all.len(), stocked.bytes.len());
    assert!(TcpStream::connect(server.base.trim_start_matches("http://")).is_err());
}
