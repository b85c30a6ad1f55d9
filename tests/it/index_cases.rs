//! Cases of public issues that need several parts at once: real proxies, real clients, an upstream that changes.
//!
//! The other cases are where their part is: `grep -rn 'c05\|C05' tests/it` finds that of a number.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jetwheel::digest::Sha256;
use serde_json::{Value, json};

use crate::snapshot::json as run_json;
use crate::support::clients::client_program;
use crate::support::http::{get, send};
use crate::support::mirror::Mirror;
use crate::support::port::port;
use crate::support::upstream::Upstream;
use crate::support::{data, jetwheel, make_wheels};
use crate::sync::{Site, each, wheels};

const ORIN: &str = "orin-jp6.2";
const JSON: &[(&str, &str)] = &[("Accept", "application/vnd.pypi.simple.v1+json")];

fn pure(name: &str, version: &str) -> Value {
    json!({"filename": format!("{name}-{version}-py3-none-any.whl"), "files": {format!("{name}.py"): ""}})
}

/// A data folder with some wheels, added by hand.
fn stocked(specs: &Value) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in");
    fs_err::create_dir(&input).unwrap();
    make_wheels(specs, &input);
    let (code, answer) = run_json(jetwheel(&dir.path().join("data")).arg("add").arg(&input));
    assert_eq!(code, 0, "{answer}");
    dir
}

fn listed(base: &str, address: &str, project: &str) -> Vec<Value> {
    let page = get(base, &format!("/{address}/simple/{project}/"), JSON);
    assert_eq!(page.status, 200, "{page:?}");
    page.json()["files"].as_array().unwrap().clone()
}

/// A real client, with nothing of the host's settings.
fn client(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).env("LC_ALL", "C.UTF-8");
    command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command.current_dir(home);
    command
}

/// C04, and uv#17334: after a 404 the second index has its turn; no 403, which uv takes for an answer.
#[test]
fn c04_uv_goes_on_to_a_second_index() {
    let (first, second) = (stocked(&json!([pure("one", "1.0")])), stocked(&json!([pure("two", "1.0")])));
    let mirrors = [&first, &second].map(|dir| Mirror::serving(&dir.path().join("data")));
    let home = tempfile::tempdir().unwrap();
    let output = client(&client_program("uv", "uv"), home.path())
        .args(["pip", "install", "--no-deps", "--no-cache", "--no-config", "--target", "out"])
        .args(["--index", &mirrors[0].index_url(ORIN), "--default-index", &mirrors[1].index_url(ORIN)])
        .arg("--python")
        .arg(client_program("uv", "python"))
        .args(["one", "two"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(home.path().join("out/one.py").exists() && home.path().join("out/two.py").exists());
}

/// C15, as served: the metadata beside a wheel on its upstream lies, ours is the wheel's own.
#[test]
fn c15_the_metadata_that_is_served_is_the_wheels_own() {
    let folder = wheels(&json!([pure("app", "1.0")]));
    let upstream = Upstream::serving(folder.path());
    let lie = "Metadata-Version: 2.1\nName: app\nVersion: 1.0\nRequires-Dist: extra-thing\n";
    upstream.change("app-1.0-py3-none-any.whl", |file| {
        file.attributes = format!("data-core-metadata=\"sha256={}\"", Sha256::of(lie.as_bytes()));
        file.metadata = Some(lie.as_bytes().to_vec());
    });
    let site = Site::new();
    let report = site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "app"]);
    assert_eq!(each(&report, "incidents", "kind"), ["metadata-mismatch"]);
    let mirror = Mirror::serving(&site.data());
    let file = listed(&mirror.url(""), ORIN, "app")[0].clone();
    let path = format!("/{ORIN}/{}.metadata", file["url"].as_str().unwrap().trim_start_matches("../../"));
    let served = get(&mirror.url(""), &path, &[]);
    assert!(served.status == 200 && !served.text().contains("extra-thing"), "{served:?}");
    assert_eq!(file["core-metadata"]["sha256"], Sha256::of(&served.body).to_string());
}

/// C16: Python's HTML parser reads back what was stated.
#[test]
fn c16_attributes_are_read_back_by_an_html_parser() {
    let name = "demo-1.0-py3-none-any.whl";
    let spec = json!([{"filename": name, "requires_python": ">=3.8,<4", "files": {"demo.py": ""}}]);
    let upstream = Upstream::serving(wheels(&spec).path());
    upstream.change(name, |file| {
        file.attributes = "data-yanked=\"bad &quot;build&quot; &lt;x&gt;\"".to_owned();
    });
    let site = Site::new();
    site.sync(0, &["--device", ORIN, "--upstream", &upstream.url("/simple/"), "demo==1.0"]);
    let mirror = Mirror::serving(&site.data());
    let page = get(&mirror.url(""), &format!("/{ORIN}/simple/demo/"), &[]);
    let path = site.data().join("page.html");
    fs_err::write(&path, &page.body).unwrap();
    let script = "import sys, json, html.parser\n\
        class P(html.parser.HTMLParser):\n    def handle_starttag(self, tag, attrs):\n        if tag == 'a': print(json.dumps(dict(attrs)))\n\
        P().feed(open(sys.argv[1], encoding='utf-8').read())";
    let output = Command::new("python3").args(["-c", script]).arg(&path).output().unwrap();
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["data-requires-python"], ">=3.8,<4");
    assert_eq!(read["data-yanked"], "bad \"build\" <x>");
}

/// C18: a real `uv publish` at the index of a device.
#[test]
fn c18_uv_cannot_publish_to_an_index() {
    let dir = stocked(&json!([pure("demo", "1.0")]));
    let mirror = Mirror::serving(&dir.path().join("data"));
    let more = dir.path().join("more");
    fs_err::create_dir(&more).unwrap();
    make_wheels(&json!([pure("demo", "2.0")]), &more);
    let url = mirror.index_url(ORIN);
    let output = client(&client_program("uv", "uv"), dir.path())
        .args(["publish", "--no-config", "--publish-url", &url, "--username", "a", "--password", "b"])
        .arg(more.join("demo-2.0-py3-none-any.whl"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    // uv shows what the mirror says.
    assert!(String::from_utf8_lossy(&output.stderr).contains("/legacy/"), "{output:?}");
    assert_eq!(listed(&mirror.url(""), ORIN, "demo").len(), 1);
    let answer = send(&mirror.url(""), "POST", &format!("/{ORIN}/simple/"), &[], b"x");
    assert!(answer.status == 405 && answer.text().contains("/legacy/"), "{answer:?}");
}

/// nginx with TLS in front of two mirrors; killed when dropped.
struct Proxy {
    nginx: Child,
    ports: [u16; 2],
}

impl Proxy {
    /// The first port passes `/mirror/` on as it is and says nothing of it; the second takes it away and says so.
    fn before(mirrors: [&Mirror; 2], dir: &Path) -> Self {
        let ports = [port(), port()];
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {};", dir.join(name).display()))
            .concat();
        let tls = format!(
            "ssl_certificate {}; ssl_certificate_key {};",
            data("tls/server.pem").display(),
            data("tls/server.key").display()
        );
        let head = "proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto https;";
        let servers = format!(
            "server {{ listen 127.0.0.1:{} ssl; {tls} location /mirror/ {{ proxy_pass {}; {head} }} }}\n\
             server {{ listen 127.0.0.1:{} ssl; {tls} location /mirror/ {{ proxy_pass {}/; {head} \
             proxy_set_header X-Forwarded-Prefix /mirror; }} }}\n",
            ports[0],
            mirrors[0].url(""),
            ports[1],
            mirrors[1].url("")
        );
        let config = dir.join("nginx.conf");
        let text = format!(
            "daemon off; master_process off; pid {0}/nginx.pid; error_log {0}/nginx.log;\nevents {{}}\n\
             http {{ access_log off; {temporary}\n{servers}}}\n",
            dir.display()
        );
        fs_err::write(&config, text).unwrap();
        let nginx = Command::new("/usr/sbin/nginx")
            .arg("-c")
            .arg(&config)
            .arg("-e")
            .arg(dir.join("nginx.log"))
            .stderr(Stdio::null())
            .spawn()
            .expect("nginx is needed for this test: run ./ci.sh test, which installs it");
        let began = Instant::now();
        while ports.iter().any(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_err()) {
            let log = fs_err::read_to_string(dir.join("nginx.log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_mins(1), "nginx does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { nginx, ports }
    }

    /// Where the mirror is behind a port.
    fn base(&self, number: usize) -> String {
        format!("https://127.0.0.1:{}/mirror", self.ports[number])
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _already_gone = self.nginx.kill();
        let _status = self.nginx.wait();
    }
}

/// What curl says of a URL, redirects followed.
fn curl(arguments: &[&str], url: &str) -> Vec<u8> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--location", "--max-time", "60", "--noproxy", "*", "--cacert"])
        .arg(data("tls/ca.pem"))
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl is needed for this test: run ./ci.sh test, which installs it");
    assert!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// C19, and pypiserver#703, piwheels/packages#572: https outside, http inside, and a prefix that is passed on or taken away.
#[test]
fn c19_all_links_and_redirects_work_behind_real_proxies() {
    let name = "demo-1.0+cu126-py3-none-any.whl";
    let dir = stocked(&json!([{"filename": name, "files": {"demo.py": ""}}]));
    let other = stocked(&json!([{"filename": name, "files": {"demo.py": ""}}]));
    let config = dir.path().join("jetwheel.toml");
    fs_err::write(&config, "prefix = \"/mirror/\"\n").unwrap();
    let told = Mirror::serving_with(&dir.path().join("data"), &["--config".as_ref(), config.as_os_str()]);
    let untold = Mirror::serving(&other.path().join("data"));
    let proxy = Proxy::before([&told, &untold], dir.path());
    let bytes = fs_err::read(dir.path().join("in").join(name)).unwrap();
    for number in [0, 1] {
        let base = proxy.base(number);
        let page = format!("{base}/{ORIN}/simple/demo/");
        for (from, to) in [
            (format!("{base}/{ORIN}/simple/Demo"), page.clone()),
            (format!("{base}/{ORIN}/simple/DEMO/"), page.clone()),
            (format!("{base}/{ORIN}/simple"), format!("{base}/{ORIN}/simple/")),
        ] {
            let arrived =
                curl(&["--output", "/dev/null", "--write-out", "%{http_code} %{url_effective}"], &from);
            assert_eq!(String::from_utf8(arrived).unwrap(), format!("200 {to}"));
        }
        let here = url::Url::parse(&page).unwrap();
        let html = String::from_utf8(curl(&[], &page)).unwrap();
        let link = html.split("<a href=\"").nth(1).and_then(|rest| rest.split(['"', '#']).next()).unwrap();
        let json: Value = serde_json::from_slice(&curl(
            &["--header", "Accept: application/vnd.pypi.simple.v1+json"],
            &page,
        ))
        .unwrap();
        for link in [link, json["files"][0]["url"].as_str().unwrap()] {
            let url = here.join(link).unwrap();
            assert!(url.as_str().starts_with(&format!("{base}/{ORIN}/files/")), "{url}");
            assert!(curl(&[], url.as_str()) == bytes, "{url}");
            assert!(curl(&[], &format!("{url}.metadata")).starts_with(b"Metadata-Version"), "{url}");
        }
        let script = String::from_utf8(curl(&[], &format!("{base}/{ORIN}/setup.sh"))).unwrap();
        assert!(script.contains(&format!("INDEX='{base}/{ORIN}/simple/'")), "{script}");
        let set = curl(&["--data", "{\"requirements\": [\"demo\"]}"], &format!("{base}/{ORIN}/resolve"));
        let set: Value = serde_json::from_slice(&set).unwrap();
        assert!(curl(&[], set["packages"][0]["url"].as_str().unwrap()) == bytes, "{set}");
        let home = tempfile::tempdir().unwrap();
        let output = client(&client_program("pip-newest", "python"), home.path())
            .args(["-m", "pip", "download", "--no-deps", "--no-cache-dir", "demo", "--cert"])
            .arg(data("tls/ca.pem"))
            .args(["--index-url", &format!("{base}/{ORIN}/simple/")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(home.path().join(name).exists());
    }
    let wrong = dir.path().join("wrong.toml");
    fs_err::write(&wrong, "prefix = \"https://elsewhere/\"\n").unwrap();
    let mut command = jetwheel(&dir.path().join("none"));
    let status = command.arg("--config").arg(wrong).arg("serve").stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// C24, as served: the pass stops before anything moves; with the override the new snapshot is made, and the old one can be
/// gone back to.
#[test]
fn c24_an_emptied_upstream_moves_nothing_until_it_is_told_to() {
    let names: Vec<String> = (0..8).map(|number| format!("p{number}")).collect();
    let specs: Vec<Value> = names.iter().map(|name| pure(name, "1.0")).collect();
    let upstream = Upstream::serving(wheels(&json!(specs)).path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let ask = ["--device", ORIN, "--upstream", &url, "--no-deps"];
    let all: Vec<&str> = ask.into_iter().chain(names.iter().map(String::as_str)).collect();
    site.sync(0, &all);
    let snapshot = |arguments: &[&str]| {
        let (code, answer) = run_json(jetwheel(&site.data()).arg("snapshot").args(arguments));
        assert_eq!(code, 0, "{answer}");
        answer
    };
    let before = snapshot(&["promote"])["snapshot"].clone();
    for name in &names[2..] {
        upstream.remove(&format!("{name}-1.0-py3-none-any.whl"));
    }
    upstream.add_all(wheels(&json!([pure("p0", "2.0")])).path());
    let mirror = Mirror::serving(&site.data());
    let pages =
        |address: &str| names.iter().map(|name| listed(&mirror.url(""), address, name).len()).sum::<usize>();
    let report = site.sync(1, &["--device", ORIN, "--upstream", &url, "--no-deps", "p0"]);
    assert_eq!(report["losses"][0]["lost_files"], 6, "{report}");
    assert_eq!(snapshot(&["list"])["channels"]["candidate"]["current"], before);
    assert_eq!(pages(ORIN), 8, "serving goes on");
    site.sync(0, &["--device", ORIN, "--upstream", &url, "--no-deps", "p0", "--accept-losses"]);
    let after = snapshot(&["promote"]);
    assert_eq!(after["before"], before);
    assert_eq!(pages(&format!("{ORIN}@stable")), 9, "nothing that was had is lost");
    assert_eq!(snapshot(&["rollback"])["snapshot"], before);
    assert_eq!(pages(&format!("{ORIN}@stable")), 8);
}

/// C25: kept and marked by default; hidden from new snapshots where the policy says so; never deleted while a snapshot
/// names it.
#[test]
fn c25_policy_may_hide_from_new_snapshots_what_is_gone_upstream() {
    let upstream = Upstream::serving(
        wheels(&json!([pure("demo", "1.0"), pure("demo", "2.0"), pure("more", "1.0")])).path(),
    );
    let site = Site::new();
    let url = upstream.url("/simple/");
    let ask = ["--device", ORIN, "--upstream", &url, "--keep", "2", "demo"];
    site.sync(0, &ask);
    let ids = || {
        let (_, list) = run_json(jetwheel(&site.data()).args(["snapshot", "list"]));
        list["snapshots"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let full = ids().pop().unwrap();
    upstream.remove("demo-2.0-py3-none-any.whl");
    let report = site.sync(0, &ask);
    assert_eq!(report["gone"], json!(["demo-2.0-py3-none-any.whl"]));
    assert_eq!(ids(), std::slice::from_ref(&full), "by default it stays, so nothing changed");
    let explain = || run_json(jetwheel(&site.data()).args(["explain", "demo", "--device", ORIN])).1;
    let marked = explain();
    assert!(
        marked["files"][0]["gone_since"].is_string() && marked["files"][1].get("gone_since").is_none(),
        "{marked}"
    );
    let output = jetwheel(&site.data()).args(["explain", "demo", "--device", ORIN]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("gone upstream since"), "{output:?}");

    let policies: PathBuf = site.folder.path().join("policies");
    fs_err::create_dir(&policies).unwrap();
    fs_err::write(policies.join("rules.toml"), "[snapshots]\ngone = \"hide\"\n").unwrap();
    site.configure(&format!("policies = {policies:?}"));
    site.sync(0, &["--device", ORIN, "--upstream", &url, "--keep", "2", "demo", "more"]);
    let hidden = ids().pop().unwrap();
    assert_ne!(hidden, full);
    let old = run_json(jetwheel(&site.data()).args(["gc", "--older-than", "0s"]));
    assert_eq!((old.0, &old.1["blobs"]), (0, &json!(0)), "{}", old.1);
    let mirror = Mirror::serving(&site.data());
    for (address, count) in
        [(format!("{ORIN}@{full}"), 2), (format!("{ORIN}@{hidden}"), 1), (ORIN.to_owned(), 2)]
    {
        assert_eq!(listed(&mirror.url(""), &address, "demo").len(), count, "{address}");
    }
}

/// C29, and artifact-keeper#1282: `verify` names the lost blob, its wheel and the profiles, and fetches it again.
#[test]
fn c29_verify_names_a_lost_blob_and_fetches_it_again() {
    let upstream = Upstream::serving(wheels(&json!([pure("demo", "1.0")])).path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "demo"]);
    let sha256: Sha256 = report["kept"][0]["sha256"].as_str().unwrap().parse().unwrap();
    let blob = site.store().blob(&sha256);
    fs_err::remove_file(&blob).unwrap();
    let mirror = Mirror::serving(&site.data());
    let path = format!("/{ORIN}/files/{sha256}/demo-1.0-py3-none-any.whl");
    for method in ["HEAD", "GET"] {
        assert_eq!(send(&mirror.url(""), method, &path, &[], b"").status, 404);
    }
    drop(mirror);
    let verify = |arguments: &[&str]| {
        let mut command = jetwheel(&site.data());
        command.env("HOME", site.folder.path()).env_remove("NETRC").arg("verify").args(arguments);
        run_json(&mut command)
    };
    let (code, found) = verify(&[]);
    let finding = &found["findings"][0];
    assert_eq!((code, &finding["kind"], &finding["sha256"]), (1, &json!("missing-blob"), &json!(sha256)));
    assert_eq!(finding["file"], "demo-1.0-py3-none-any.whl");
    assert!(finding["devices"].as_array().unwrap().contains(&json!(ORIN)), "{found}");
    let (code, mended) = verify(&["--repair"]);
    assert_eq!((code, &mended["findings"][0]["mended"]), (0, &json!(true)), "{mended}");
    assert_eq!(Sha256::of(&fs_err::read(&blob).unwrap()), sha256);
    let mirror = Mirror::serving(&site.data());
    assert_eq!(get(&mirror.url(""), &path, &[]).status, 200);
}
