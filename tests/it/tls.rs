//! The mirror over TLS, by a certificate of a private authority, with real clients.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jetwheel::policy::Policy;
use jetwheel::server::{Limits, PolicySource, Tls};
use jetwheel::store::Store;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;

use crate::support::clients::{JETPACK_6, Pip, Uv, client_program};
use crate::support::http::{InProcess, exchange, local, take};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const WHEEL: &str = "demo-1.0-py3-none-any.whl";

/// An authority of our own, and certificates by it.
pub(crate) struct Authority {
    folder: PathBuf,
}

fn openssl(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("openssl")
        .current_dir(folder)
        .args(arguments)
        .output()
        .expect("openssl is needed for this test: run ./ci.sh test, which installs it");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Authority {
    /// As `docs/OPERATING.md` tells to make one.
    pub(crate) fn new(folder: &Path) -> Self {
        let folder = folder.to_owned();
        openssl(
            &folder,
            &[
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-noenc",
                "-days",
                "3650",
                "-subj",
                "/CN=Site CA",
                "-addext",
                "keyUsage=critical,keyCertSign,cRLSign",
                "-keyout",
                "site-ca.key",
                "-out",
                "site-ca.pem",
            ],
        );
        Self { folder }
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.join("site-ca.pem")
    }

    /// A certificate for this machine, `mirror.pem` and `mirror.key`, its serial number being told.
    pub(crate) fn issue(&self, serial: &str) {
        openssl(
            &self.folder,
            &[
                "req",
                "-new",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-noenc",
                "-subj",
                "/CN=mirror",
                "-keyout",
                "next.key",
                "-out",
                "next.csr",
            ],
        );
        let extensions = "subjectAltName = DNS:localhost, IP:127.0.0.1\nbasicConstraints = critical, CA:FALSE\n\
                          authorityKeyIdentifier = keyid\n";
        fs_err::write(self.folder.join("next.ext"), extensions).unwrap();
        openssl(
            &self.folder,
            &[
                "x509",
                "-req",
                "-in",
                "next.csr",
                "-CA",
                "site-ca.pem",
                "-CAkey",
                "site-ca.key",
                "-set_serial",
                serial,
                "-days",
                "90",
                "-extfile",
                "next.ext",
                "-out",
                "next.pem",
            ],
        );
        for (from, to) in [("next.key", "mirror.key"), ("next.pem", "mirror.pem")] {
            fs_err::rename(self.folder.join(from), self.folder.join(to)).unwrap();
        }
    }
}

/// A mirror with one wheel, over TLS.
struct Site {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path());
        authority.issue("1001");
        make_wheels(&json!([{"filename": WHEEL}]), folder.path());
        let site = Self { folder, authority };
        let output = site.run(&["add", site.path(WHEEL).to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        jetwheel(&self.path("data")).args(arguments).output().unwrap()
    }

    fn mirror(&self) -> Mirror {
        self.mirror_with("")
    }

    fn mirror_with(&self, configuration: &str) -> Mirror {
        let file = self.path("jetwheel.toml");
        let tls = "[tls]\ncertificate = \"mirror.pem\"\nkey = \"mirror.key\"\n";
        fs_err::write(&file, format!("{configuration}\n{tls}")).unwrap();
        let mirror = Mirror::serving_with(&self.path("data"), &["--config".as_ref(), file.as_os_str()]);
        assert!(mirror.url("").starts_with("https://127.0.0.1:"), "{}", mirror.url(""));
        mirror
    }

    fn curl(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*", "--cacert"])
            .arg(self.authority.ca())
            .args(arguments)
            .output()
            .expect("curl is needed for this test: run ./ci.sh test, which installs it");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The serial number of the certificate that a new connection is shown.
    fn serial(&self, mirror: &Mirror) -> String {
        let address = mirror.url("").replace("https://", "");
        let shown = openssl(
            self.folder.path(),
            &["s_client", "-connect", &address, "-CAfile", "site-ca.pem", "-verify_return_error"],
        );
        fs_err::write(self.path("shown.pem"), shown).unwrap();
        openssl(self.folder.path(), &["x509", "-in", "shown.pem", "-noout", "-serial"]).trim().to_owned()
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn pip_and_uv_fetch_over_tls_of_a_private_authority() {
    let site = Site::new();
    let mirror = site.mirror();
    let index = mirror.index_url(ORIN);
    let ca = site.authority.ca();
    for pip in [Pip::v22_0_2(), Pip::newest()] {
        let fetched = pip.download_trusting(&index, JETPACK_6, "demo", &ca);
        assert!(fetched.done && fetched.names == [WHEEL], "{}", fetched.said);
        assert_eq!(fetched.bytes(WHEEL), fs_err::read(site.path(WHEEL)).unwrap());
        let refused = pip.download(&index, JETPACK_6, "demo");
        assert!(!refused.done && refused.said.to_lowercase().contains("certificate"), "{}", refused.said);
    }
    let installed = Uv::install_trusting(&index, JETPACK_6, "demo", &ca);
    assert!(installed.done && installed.names == ["demo-1.0.dist-info"], "{}", installed.said);
    let refused = Uv::install(&index, JETPACK_6, "demo");
    assert!(!refused.done && refused.said.to_lowercase().contains("certificate"), "{}", refused.said);
}

#[test]
fn twine_and_uv_publish_over_tls() {
    let site = Site::new();
    let output = site.run(&["token", "create", "ci", "--scope", "upload"]);
    let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let mirror = site.mirror();
    for (number, name) in ["twine", "uv"].into_iter().enumerate() {
        let wheel = format!("fresh-{number}.0-py3-none-any.whl");
        make_wheels(&json!([{"filename": wheel}]), site.folder.path());
        let url = mirror.url("/legacy/");
        let mut command = Command::new(client_program(name, name));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", site.folder.path())
            .env("LC_ALL", "C.UTF-8");
        if name == "twine" {
            command.args(["upload", "--non-interactive", "--disable-progress-bar", "--repository-url", &url]);
            command.args(["-u", "__token__", "-p", &token]).env("TWINE_CERT", site.authority.ca());
        } else {
            command.args(["publish", "--no-config", "--publish-url", &url, "--token", &token]);
            command.env("SSL_CERT_FILE", site.authority.ca());
        }
        let output = command.arg(site.path(&wheel)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (_, page) = site.curl(&[&mirror.url(&format!("/{ORIN}/simple/fresh/"))]);
        assert!(page.contains(&wheel), "{page}");
    }
}

#[test]
fn curl_gets_files_and_ranges_by_http_1_and_2() {
    let site = Site::new();
    // Longer than what TLS or HTTP/2 hold at once.
    let large = "large-1.0-py3-none-any.whl";
    let noise = openssl(site.folder.path(), &["rand", "-hex", "2500000"]);
    make_wheels(&json!([{"filename": large, "files": {"large/noise.txt": noise}}]), site.folder.path());
    let output = site.run(&["add", site.path(large).to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let bytes = fs_err::read(site.path(large)).unwrap();
    let mirror = site.mirror();
    let (_, page) = site.curl(&[
        "-H",
        "Accept: application/vnd.pypi.simple.v1+json",
        &mirror.url(&format!("/{ORIN}/simple/large/")),
    ]);
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let url = mirror.url(&format!("/{ORIN}/simple/large/{}", page["files"][0]["url"].as_str().unwrap()));
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let got = site.path("got");
        let (done, said) = site.curl(&[option, "-w", "%{http_version}", "-o", got.to_str().unwrap(), &url]);
        assert!(done && said == version, "{said}");
        assert_eq!(fs_err::read(&got).unwrap(), bytes, "{option}");
        let (done, said) = site.curl(&[option, "-r", "70000-2000000", "-o", got.to_str().unwrap(), &url]);
        assert!(done, "{said}");
        assert_eq!(fs_err::read(&got).unwrap(), bytes[70000..=2_000_000], "{option}");
    }
    // What is written for others to copy begins with https.
    for path in [format!("/{ORIN}/setup.sh"), "/".to_owned()] {
        let (_, text) = site.curl(&[&mirror.url(&path)]);
        assert!(text.contains(&mirror.index_url(ORIN)), "{text}");
    }
    let (_, lock) = site.curl(&[
        "-d",
        "{\"requirements\": [\"demo\"], \"output\": \"pylock\"}",
        &mirror.url(&format!("/{ORIN}/resolve")),
    ]);
    assert!(lock.contains(&format!("{}/{ORIN}/files/", mirror.url(""))), "{lock}");
}

#[test]
fn a_request_without_tls_is_told_so_and_nobody_holds_up_others() {
    let site = Site::new();
    let mirror = site.mirror();
    let plain = mirror.url("").replace("https://", "http://");
    let answer = exchange(&plain, b"GET / HTTP/1.1\r\nHost: mirror\r\n\r\n").unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with("this port speaks HTTPS: write https:// in the address\n"), "{answer}");
    let (_, said) = site.curl(&["--fail-with-body", "-d", &"x".repeat(6000), &format!("{plain}/legacy/")]);
    assert!(said.contains("write https://"), "{said}");
    // Connections that say nothing, or half of a greeting.
    let address = plain.trim_start_matches("http://").to_owned();
    let mut silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&address).unwrap()).collect();
    for stream in silent.iter_mut().skip(4) {
        stream.write_all(&[0x16, 3, 1, 2]).unwrap();
    }
    let (done, said) = site.curl(&[&mirror.url("/healthz")]);
    assert!(done, "{said}");
    // What is no TLS ends with an alert or an end, not with a hanging connection.
    let mut broken = TcpStream::connect(&address).unwrap();
    broken.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    broken.write_all(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4]).unwrap();
    broken.shutdown(std::net::Shutdown::Write).unwrap();
    let mut end = Vec::new();
    let _reset_or_alert = broken.read_to_end(&mut end);
    assert!(end.len() < 64, "{end:?}");
}

#[test]
fn a_renewed_certificate_is_taken_up_and_a_broken_one_is_not() {
    let site = Site::new();
    let mut mirror = site.mirror();
    assert_eq!(site.serial(&mirror), "serial=03E9");
    // A connection that began before.
    let mut held = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &mirror.url("").replace("https://", ""), "-CAfile"])
        .arg(site.authority.ca())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut ask = held.stdin.take().unwrap();
    let mut answer = std::io::BufReader::new(held.stdout.take().unwrap());
    let mut first_line = |end: &str| {
        ask.write_all(format!("GET /healthz HTTP/1.1\r\nHost: mirror\r\n{end}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut answer, &mut line).unwrap();
        while !line.ends_with("\r\n\r\n") {
            std::io::BufRead::read_line(&mut answer, &mut line).unwrap();
        }
        let length: usize = line
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map(|length| length.parse().unwrap())
            .unwrap();
        answer.read_exact(&mut vec![0; length]).unwrap();
        line
    };
    assert!(first_line("").starts_with("HTTP/1.1 200"));
    site.authority.issue("1002");
    until("the new certificate is in force", || site.serial(&mirror) == "serial=03EA");
    assert!(first_line("").starts_with("HTTP/1.1 200"), "the connection went on");
    // A key of somebody else.
    let good = fs_err::read(site.path("mirror.key")).unwrap();
    openssl(
        site.folder.path(),
        &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "mirror.key"],
    );
    until("the wrong key is told", || mirror.logged().contains("the new certificate cannot be used"));
    assert_eq!(site.serial(&mirror), "serial=03EA");
    fs_err::write(site.path("mirror.key"), good).unwrap();
    until("it mends", || mirror.logged().matches("a new certificate is in force").count() == 2);
    assert!(first_line("Connection: close\r\n").starts_with("HTTP/1.1 200"), "the connection went on");
    drop(ask);
    held.wait().unwrap();
    let log = mirror.stop();
    assert_eq!(log.matches("the new certificate cannot be used").count(), 1, "once: {log}");
}

#[test]
fn a_certificate_that_cannot_be_used_is_wrong_configuration() {
    let site = Site::new();
    let serve = |certificate: &str, key: &str| {
        let (certificate, key) = (site.path(certificate), site.path(key));
        let output = site.run(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            certificate.to_str().unwrap(),
            "--tls-key",
            key.to_str().unwrap(),
        ]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    fs_err::write(site.path("empty.pem"), "").unwrap();
    let said = serve("absent.pem", "mirror.key");
    assert!(said.contains("absent.pem"), "{said}");
    let said = serve("empty.pem", "mirror.key");
    assert!(said.contains("empty.pem: no certificate in it, expected PEM"), "{said}");
    let said = serve("mirror.pem", "mirror.pem");
    assert!(said.contains("mirror.pem: no such key in it, expected a PEM private key without"), "{said}");
    let said = serve("mirror.pem", "site-ca.key");
    assert!(said.contains("cannot be used together"), "{said}");
    let alone = site.run(&["serve", "--tls-cert", "x"]);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
}

/// A device takes the script by curl, and is then set up for an index that needs a token over TLS of a private authority.
#[test]
fn set_up_makes_pip_and_uv_reach_an_index_by_token_and_authority() {
    let site = Site::new();
    let output = site.run(&["token", "create", "robots", "--scope", "read"]);
    let token = String::from_utf8(output.stdout).unwrap();
    fs_err::write(site.path("token"), &token).unwrap();
    let mirror = site.mirror_with("access.read = \"token\"");
    let script = site.path("setup.sh");
    let user = format!("__token__:{}", token.trim());
    let url = mirror.url(&format!("/{ORIN}/setup.sh"));
    let (done, said) = site.curl(&["--fail", "--user", &user, "-o", script.to_str().unwrap(), &url]);
    assert!(done, "{said}");
    let home = site.path("home");
    fs_err::create_dir(&home).unwrap();
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &home)
            .current_dir(&home);
        command.env("SSL_CERT_FILE", home.join(".config/jetwheel/ca.pem")).env("LC_ALL", "C.UTF-8");
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{}: {said}", program.display());
        said
    };
    let (ca, secret) = (site.authority.ca(), site.path("token"));
    let paths = [script, ca, secret].map(|path| path.to_str().unwrap().to_owned());
    run(Path::new("dash"), &[&paths[0], "--ca", &paths[1], "--token", &paths[2], "--yes-really"]);
    let python = client_program("pip-newest", "python");
    let said = run(&python, &["-m", "pip", "download", "--no-deps", "--no-cache-dir", "demo"]);
    assert!(home.join(WHEEL).exists() && !said.contains(token.trim()), "{said}");
    let target = ["--python", client_program("uv", "python").to_str().unwrap(), "--target", "taken"]
        .map(str::to_owned);
    let mut arguments = vec!["pip", "install", "--no-cache", "--no-deps", "demo"];
    arguments.extend(target.iter().map(String::as_str));
    run(&client_program("uv", "uv"), &arguments);
    assert!(home.join("taken/demo-1.0.dist-info").exists());
    run(Path::new("dash"), &[&paths[0], "--undo"]);
    assert!(!home.join(".netrc").exists());
}

/// A connection that has done its handshake.
fn connected(address: &str, ca: &Path) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    connection.complete_io(&mut stream).unwrap();
    rustls::StreamOwned::new(connection, stream)
}

#[test]
fn who_says_or_takes_nothing_is_let_go_and_a_stop_waits_for_nobody_silent() {
    let site = Site::new();
    let large = "large-1.0-py3-none-any.whl";
    let noise = openssl(site.folder.path(), &["rand", "-hex", "16000000"]);
    make_wheels(&json!([{"filename": large, "files": {"large/noise.txt": noise}}]), site.folder.path());
    let store = Arc::new(Store::open(&site.path("data")).unwrap());
    let digest = take(&store, &site.path(large), &local());
    let serve = |limits| {
        let tls = Tls::load(site.path("mirror.pem"), site.path("mirror.key")).unwrap();
        let policies = PolicySource::fixed(Policy::builtin());
        InProcess::set_up(Arc::clone(&store), policies, limits, |server| server.with_tls(tls))
    };
    // A handshake on a busy machine takes less.
    let short = Duration::from_secs(2);
    // The only place is taken until its holder is let go; whoever comes then is served.
    let server = serve(Limits { head: short, stall: short, connections: 1, ..Limits::default() });
    let address = server.base.trim_start_matches("http://").to_owned();
    let healthy = |address: &str| {
        let mut stream = connected(address, &site.authority.ca());
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _without_an_alert = stream.read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    };
    let silent = TcpStream::connect(&address).unwrap();
    healthy(&address);
    let mut half = TcpStream::connect(&address).unwrap();
    half.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap();
    healthy(&address);
    let idle = connected(&address, &site.authority.ca());
    healthy(&address);
    let mut stuck = connected(&address, &site.authority.ca());
    let request = format!("GET /{ORIN}/files/{digest}/{large} HTTP/1.1\r\nHost: x\r\n\r\n");
    stuck.write_all(request.as_bytes()).unwrap();
    healthy(&address);
    drop((silent, half, idle, stuck, server));

    // A stop that waited for the handshake would take an hour. Whoever came later was served, so it has begun.
    let hour = Duration::from_hours(1);
    let mut server = serve(Limits { head: hour, stop: hour, ..Limits::default() });
    let address = server.base.trim_start_matches("http://").to_owned();
    let silent = TcpStream::connect(&address).unwrap();
    healthy(&address);
    server.stop();
    server.join();
    drop(silent);
}
