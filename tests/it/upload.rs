//! Uploads: real twine and `uv publish`, and forms that no client sends.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use jetwheel::digest::Sha256;
use serde_json::{Value, json};

use crate::support::clients::{JETPACK_6, Pip, client_program};
use crate::support::http::{Answer, get, send};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const WHEEL: &str = "site_build-1.0-py3-none-any.whl";

struct Site {
    folder: tempfile::TempDir,
    mirror: Mirror,
    token: String,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_wheels(
            &json!([{"filename": WHEEL, "files": {"site_build/__init__.py": "first = 1\n"}}]),
            folder.path(),
        );
        let data = folder.path().join("data");
        let token = token(&data, "ci", &["--scope", "upload"]);
        Self { mirror: Mirror::serving(&data), folder, token }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn wheel(&self) -> PathBuf {
        self.folder.path().join(WHEEL)
    }

    fn url(&self) -> String {
        self.mirror.url("/legacy/")
    }

    fn twine(url: &str, token: Option<&str>, arguments: &[&str], wheel: &Path) -> (bool, String) {
        let mut command = Command::new(client_program("twine", "twine"));
        command.args(["upload", "--non-interactive", "--disable-progress-bar", "--repository-url", url]);
        if let Some(token) = token {
            command.args(["--username", "__token__", "--password", token]);
        }
        let home = tempfile::tempdir().unwrap();
        command.args(arguments).arg(wheel).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
        command.env("COLUMNS", "300").env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
        said(&command.output().unwrap())
    }

    fn uv(url: &str, token: Option<&str>, wheel: &Path) -> (bool, String) {
        let mut command = Command::new(client_program("uv", "uv"));
        command.args(["publish", "--no-config", "--publish-url", url]);
        if let Some(token) = token {
            command.args(["--token", token]);
        }
        let home = tempfile::tempdir().unwrap();
        command.arg(wheel).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
        command.env("UV_KEYRING_PROVIDER", "disabled").env("UV_HTTP_RETRIES", "0").current_dir(home.path());
        said(&command.output().unwrap())
    }

    fn audit(&self) -> Vec<Value> {
        let text = fs_err::read_to_string(self.data().join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Posts a form of those fields, with a file in the field `content`.
    fn post(&self, fields: &[(&str, &str)], file: Option<(&str, &[u8])>) -> Answer {
        self.post_body(FORM, &form(fields, file))
    }

    fn post_body(&self, content_type: &str, body: &[u8]) -> Answer {
        let field = format!("Bearer {}", self.token);
        let headers = [("Content-Type", content_type), ("Authorization", field.as_str())];
        send(&self.mirror.url(""), "POST", "/legacy/", &headers, body)
    }

    /// What lies in the spool, where broken uploads must leave nothing.
    fn spooled(&self) -> usize {
        let entries = fs_err::read_dir(self.data().join("spool")).unwrap();
        // The last use of a token is noted by way of the spool as well, at a time of its own.
        let wheels = entries
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("wheel-"));
        wheels.count()
    }
}

fn token(data: &Path, name: &str, arguments: &[&str]) -> String {
    let output = jetwheel(data).args(["token", "create", name]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn said(output: &Output) -> (bool, String) {
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.success(), text.concat())
}

/// The type of what [`form`] makes.
pub(crate) const FORM: &str = "multipart/form-data; boundary=xyz";

/// A form of those fields, with a file in the field `content`.
pub(crate) fn form(fields: &[(&str, &str)], file: Option<(&str, &[u8])>) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend(
            format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n").bytes(),
        );
    }
    if let Some((name, bytes)) = file {
        body.extend(
            format!("--xyz\r\nContent-Disposition: form-data; name=\"content\"; filename=\"{name}\"\r\n\r\n")
                .bytes(),
        );
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--xyz--\r\n");
    body
}

pub(crate) const UPLOAD: [(&str, &str); 2] = [(":action", "file_upload"), ("protocol_version", "1")];

#[test]
fn twine_uploads_and_pip_installs_and_all_is_noted() {
    let site = Site::new();
    let (done, text) = Site::twine(&site.url(), Some(&site.token), &[], &site.wheel());
    assert!(done, "{text}");
    let fetched = Pip::newest().download(&site.mirror.index_url(ORIN), JETPACK_6, "site-build");
    assert!(fetched.done && fetched.names == [WHEEL], "{}", fetched.said);
    assert_eq!(fetched.bytes(WHEEL), fs_err::read(site.wheel()).unwrap(), "byte for byte");
    let candidate = get(&site.mirror.url(""), &format!("/{ORIN}@candidate/simple/site-build/"), &[]);
    assert!(candidate.status == 200 && candidate.text().contains(WHEEL), "an upload makes a snapshot");
    // The same once more is done already.
    let (done, text) = Site::twine(&site.url(), Some(&site.token), &[], &site.wheel());
    assert!(done, "{text}");

    let other = tempfile::tempdir().unwrap();
    make_wheels(
        &json!([{"filename": WHEEL, "files": {"site_build/__init__.py": "second = 2\n"}}]),
        other.path(),
    );

    let audit = site.audit();
    let uploads: Vec<&Value> = audit.iter().filter(|entry| entry["action"] == "upload").collect();
    assert_eq!(uploads.len(), 1, "{audit:?}");
    assert_eq!(uploads[0]["who"], "token:ci");
    assert_eq!(uploads[0]["what"]["file"], WHEEL);
    assert!(uploads[0]["what"]["snapshot"].is_string());
    assert_eq!(site.spooled(), 0);
}

#[test]
fn uv_publishes() {
    let site = Site::new();
    for _ in 0..2 {
        let (done, text) = Site::uv(&site.url(), Some(&site.token), &site.wheel());
        assert!(done, "{text}");
    }
    assert_eq!(get(&site.mirror.url(""), &format!("/{ORIN}/simple/site-build/"), &[]).status, 200);
    // Where a publisher takes the index for the place of uploads, one line names the right one (case C18).
    let (done, text) = Site::uv(&site.mirror.index_url(ORIN), Some(&site.token), &site.wheel());
    assert!(!done && text.contains(&site.url()), "{text}");
    let (done, text) = Site::twine(&site.mirror.index_url(ORIN), Some(&site.token), &[], &site.wheel());
    assert!(!done && text.contains("405") && text.contains(&site.url()), "{text}");
}

#[test]
fn both_are_told_why_they_may_not() {
    let site = Site::new();
    let data = site.data();
    let brief = token(&data, "brief", &["--scope", "upload", "--expires", "1s"]);
    let reader = token(&data, "reader", &["--scope", "read"]);
    let mut told = vec![
        (Some("jetwheel_wrong"), "401", "not known here"),
        (Some(reader.as_str()), "403", "allows read, and this needs upload"),
    ];
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let field = format!("Bearer {brief}");
    let expired = || {
        let answer =
            send(&site.mirror.url(""), "POST", "/legacy/", &[("Authorization", field.as_str())], b"x");
        answer.status == 401
    };
    while !expired() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    told.push((Some(brief.as_str()), "401", "expired at"));
    for (token, status, words) in told {
        let (done, text) = Site::twine(&site.url(), token, &[], &site.wheel());
        assert!(!done && text.contains(status) && text.contains(words), "twine: {text}");
        let (done, text) = Site::uv(&site.url(), token, &site.wheel());
        assert!(!done && text.contains(status) && text.contains(words), "uv: {text}");
    }
    // Without a token twine asks its user and uv does not send anything; curl does.
    let answer = send(&site.mirror.url(""), "POST", "/legacy/", &[], b"x");
    assert_eq!(answer.status, 401);
    assert!(answer.text().contains("needs an access token"), "{}", answer.text());
    let (done, text) = Site::uv(&site.url(), None, &site.wheel());
    assert!(!done, "{text}");
    let (done, text) = Site::twine(&site.url(), None, &[], &site.wheel());
    assert!(!done, "{text}");
    assert_eq!(get(&site.mirror.url(""), &format!("/{ORIN}/simple/site-build/"), &[]).status, 404);
    assert_eq!(get(&site.mirror.url(""), "/legacy/", &[]).status, 405);
    assert_eq!(site.spooled(), 0);
}

#[test]
fn a_damaged_wheel_is_refused_with_the_reason_and_never_listed() {
    let site = Site::new();
    let mut bytes = fs_err::read(site.wheel()).unwrap();
    // In the bytes of the first member, behind its name.
    let name = b"site_build/__init__.py";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len() + 2;
    bytes[at] ^= 1;
    let damaged = site.folder.path().join("in");
    fs_err::create_dir(&damaged).unwrap();
    fs_err::write(damaged.join(WHEEL), &bytes).unwrap();
    let (done, text) = Site::twine(&site.url(), Some(&site.token), &[], &damaged.join(WHEEL));
    assert!(!done && text.contains("400") && text.contains("site_build/__init__.py"), "{text}");
    assert_eq!(get(&site.mirror.url(""), &format!("/{ORIN}/simple/site-build/"), &[]).status, 404);
    assert_eq!(site.spooled(), 0);
}

/// Digests by `sha256sum`, `md5sum` and `b2sum -l 256`.
#[test]
fn all_that_a_form_states_has_to_fit() {
    let site = Site::new();
    let wheel = fs_err::read(site.wheel()).unwrap();
    let good = Some((WHEEL, wheel.as_slice()));
    let sum = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(site.wheel()).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
    };
    let (sha256, md5, blake2) = (sum("sha256sum", &[]), sum("md5sum", &[]), sum("b2sum", &["-l", "256"]));
    assert_eq!(sha256, Sha256::of(&wheel).to_string());
    let zeros = "0".repeat(64);
    for (fields, file, words) in [
        (vec![("sha256_digest", zeros.as_str())], good, "hash mismatch: sha256_digest"),
        (vec![("md5_digest", &zeros[..32])], good, "hash mismatch: md5_digest"),
        (vec![("blake2_256_digest", &zeros)], good, "hash mismatch: blake2_256_digest"),
        (vec![("name", "other")], good, "of the project \"other\""),
        (vec![("version", "2.0")], good, "version \"2.0\""),
        (vec![("filetype", "sdist")], Some(("site_build-1.0.tar.gz", &b"x"[..])), "source distribution"),
        (vec![], Some(("site_build-1.0.zip", &b"x"[..])), "source distribution"),
        (vec![("filetype", "bdist_egg")], good, "only wheels"),
        (vec![], Some(("../../etc/passwd.whl", &wheel[..])), "passwd.whl"),
        (vec![], Some(("other-1.0-py3-none-any.whl", &wheel[..])), "other-1.0"),
        (vec![], Some((WHEEL, &wheel[..wheel.len() / 2])), WHEEL),
        (vec![], None, "no file"),
    ] {
        let answer = site.post(&[&UPLOAD[..], &fields].concat(), file);
        assert_eq!(answer.status, 400, "{fields:?}: {}", answer.text());
        assert!(answer.text().contains(words), "{fields:?}: {}", answer.text());
        assert_eq!(site.spooled(), 0, "{fields:?}");
    }
    assert_eq!(site.post(&[], good).status, 400, "no action");
    assert_eq!(site.post(&[(":action", "submit")], good).status, 400);
    assert_eq!(site.post(&[(":action", "file_upload"), ("protocol_version", "9")], good).status, 400);
    assert_eq!(site.post(&[&UPLOAD[..], &UPLOAD[..]].concat(), good).status, 400);
    assert_eq!(site.post_body("application/json", b"{}").status, 400);
    assert_eq!(site.post_body("multipart/form-data; boundary=xyz", b"nonsense").status, 400);
    assert_eq!(site.post_body("multipart/form-data; boundary=xyz", b"--xyz\r\nX: y").status, 400);
    assert_eq!(get(&site.mirror.url(""), &format!("/{ORIN}/simple/site-build/"), &[]).status, 404);

    let fields = [("sha256_digest", sha256.as_str()), ("md5_digest", &md5), ("blake2_256_digest", &blake2)];
    let named = [("name", "Site.Build"), ("version", "1.0.0"), ("filetype", "bdist_wheel")];
    let answer = site.post(&[&UPLOAD[..], &fields, &named].concat(), good);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains(&sha256), "{}", answer.text());
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    use std::io::Write as _;
    let site = Site::new();
    let address = site.mirror.url("").replace("http://", "");
    let head = format!(
        "POST /legacy/ HTTP/1.1\r\nHost: mirror\r\nAuthorization: Bearer {}\r\nContent-Length: 50000000\r\n\
         Content-Type: multipart/form-data; boundary=xyz\r\n\r\n--xyz\r\nContent-Disposition: form-data; \
         name=\"content\"; filename=\"{WHEEL}\"\r\n\r\n",
        site.token
    );
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![0; 5 << 20]).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let wait_for = |count: usize| {
        while site.spooled() != count {
            assert!(std::time::Instant::now() < until, "{} files in the spool", site.spooled());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    wait_for(1);
    drop(stream);
    wait_for(0);
    assert_eq!(get(&site.mirror.url(""), "/healthz", &[]).status, 200);
}
