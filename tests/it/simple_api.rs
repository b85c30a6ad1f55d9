//! The simple index over HTTP, as `docs/HTTP.md` promises it: what clients send is sent byte for byte.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{Answer, get, head, local, send, stock, take};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};
use jetwheel::digest::Sha256;
use jetwheel::store::{Provenance, Store};

const ORIN: &str = "orin-jp6.2";
const PLUS: &str = "demo-1.0+cu126-cp310-cp310-linux_aarch64.whl";
const JSON: (&str, &str) = ("Accept", "application/vnd.pypi.simple.v1+json");

/// A data folder with a few wheels for Orin, one of them in two files of the same name, and its mirror.
struct Site {
    mirror: Mirror,
    dir: tempfile::TempDir,
}

/// CUDA code for a desktop GPU alone.
fn desktop_wheel(filename: &str) -> Value {
    json!({"filename": filename, "elfs": [{"path": "deskgpu/_C.so", "soname": "_C.so", "glibc": "2.17", "cuda": "12.6",
        "fatbins": [{"images": ["sm_90"], "count": 2}]}]})
}

fn fill(dir: &Path) {
    let wheels = dir.join("wheels");
    fs_err::create_dir_all(wheels.join("odd")).unwrap();
    make_wheels(
        &json!([
            {"filename": PLUS, "files": {"demo/__init__.py": ""}},
            {"filename": "demo_pkg.x-1.0-py3-none-any.whl", "files": {"demo_pkg/__init__.py": ""}},
            desktop_wheel("deskgpu-1.0-cp310-cp310-linux_aarch64.whl"),
            desktop_wheel("deskgpu-1.1-cp310-cp310-linux_aarch64.whl"),
        ]),
        &wheels,
    );
    make_wheels(
        &json!({"filename": "odd-1!2.0-py3-none-any.whl", "requires_python": ">=3.8,<4", "files": {"odd/__init__.py": ""}}),
        &wheels.join("odd"),
    );
    let store = Store::open(&dir.join("data")).unwrap();
    stock(&store, &wheels);
    let yanked = Provenance {
        upstream: "somewhere".to_owned(),
        yanked: Some("bad \"build\" <x>".to_owned()),
        ..local()
    };
    take(&store, &wheels.join("odd/odd-1!2.0-py3-none-any.whl"), &yanked);
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        Self { mirror: Mirror::serving(&dir.path().join("data")), dir }
    }

    fn base(&self) -> String {
        self.mirror.url("")
    }

    fn page(&self, project: &str, headers: &[(&str, &str)]) -> Answer {
        get(&self.base(), &format!("/{ORIN}/simple/{project}"), headers)
    }

    fn files(&self, project: &str) -> Vec<Value> {
        let page = self.page(&format!("{project}/"), &[JSON]);
        assert_eq!(page.status, 200, "{page:?}");
        page.json()["files"].as_array().unwrap().clone()
    }
}

/// Every link of an HTML page, with entities as they are.
fn links(html: &str) -> Vec<String> {
    html.split("<a href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[test]
fn c01_name_forms() {
    let site = Site::new();
    assert_eq!(site.page("demo-pkg-x/", &[]).status, 200);
    for (path, to) in [
        ("Demo_Pkg.X/", "../demo-pkg-x/"),
        ("demo--pkg..x/", "../demo-pkg-x/"),
        ("demo-pkg-x", "demo-pkg-x/"),
        ("Demo_Pkg.X?format=x", "demo-pkg-x/"),
    ] {
        let answer = site.page(path, &[]);
        assert_eq!((answer.status, answer.header("location")), (301, Some(to)), "{path}");
    }
    assert_eq!(site.page("demo-pkg-x/", &[JSON]).json()["name"], "demo-pkg-x");
    let root = site.page("", &[JSON]).json();
    let names: Vec<_> =
        root["projects"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["demo", "demo-pkg-x", "deskgpu", "odd"]);
    assert_eq!(links(site.page("", &[]).text()), ["demo/", "demo-pkg-x/", "deskgpu/", "odd/"]);
}

#[test]
fn c02_accept_headers_of_real_clients() {
    let site = Site::new();
    for accept in [
        "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01",
        "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01",
        "application/vnd.pypi.simple.latest+json",
    ] {
        for project in ["demo/", ""] {
            let page = site.page(project, &[("Accept", accept)]);
            assert_eq!(page.header("content-type"), Some("application/vnd.pypi.simple.v1+json"), "{accept}");
            assert!(page.header("vary").unwrap().split(", ").any(|name| name == "Accept"), "{page:?}");
            assert!(page.json()["meta"]["api-version"].as_str().unwrap().starts_with("1."));
        }
    }
}

#[test]
fn c03_plain_browsers_and_scripts() {
    let site = Site::new();
    let json_last = "application/vnd.pypi.simple.v1+json;q=0.1, text/html;q=0.9";
    for headers in [&[][..], &[("Accept", "*/*")], &[("Accept", "text/html")], &[("Accept", json_last)]] {
        let page = site.page("demo/", headers);
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").unwrap().starts_with("text/html"), "{headers:?}");
    }
    let none = site.page("demo/", &[("Accept", "application/x-none")]);
    assert_eq!(none.status, 406);
    assert!(none.header("content-type").unwrap().starts_with("text/plain"));
}

#[test]
fn c04_unknown_project() {
    let site = Site::new();
    let answer = site.page("no-such-thing/", &[JSON]);
    assert_eq!(answer.status, 404);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(head(&site.base(), &format!("/{ORIN}/simple/no-such-thing/"), &[JSON]).status, 404);
    let near = site.page("demo-pgk-x/", &[]);
    assert_eq!(near.status, 404);
    assert!(near.text().contains("demo-pkg-x"), "{near:?}");
    let device = get(&site.base(), "/orin-jp6.22/simple/", &[]);
    assert_eq!(device.status, 404);
    assert!(device.text().contains(ORIN), "{device:?}");
}

/// The words and shapes are those of PEP 792: a status that hides nothing, with a reason.
#[test]
fn a_project_of_which_nothing_fits_has_an_empty_page_that_says_why() {
    let site = Site::new();
    let page = site.page("deskgpu/", &[JSON]).json();
    assert_eq!(page["files"], json!([]));
    assert_eq!(page["project-status"]["status"], "active");
    let reason = page["project-status"]["reason"].as_str().unwrap();
    assert!(reason.contains("none of the 2 known files") && reason.contains("deskgpu-1.1-"), "{reason}");
    let html = site.page("deskgpu/", &[]);
    assert_eq!(html.status, 200);
    assert!(html.text().contains("none of the 2 known files"), "{html:?}");
    assert!(links(html.text()).is_empty());
}

#[test]
fn c08_url_ends_in_the_file_name() {
    let site = Site::new();
    for project in ["demo", "demo-pkg-x", "odd"] {
        for file in site.files(project) {
            let (url, filename) = (file["url"].as_str().unwrap(), file["filename"].as_str().unwrap());
            let last = url.rsplit('/').next().unwrap();
            assert_eq!(percent_encoding::percent_decode_str(last).decode_utf8().unwrap(), filename);
            assert!(!url.contains(['?', '#', '+', '!']), "{url}");
        }
        for link in links(site.page(&format!("{project}/"), &[]).text()) {
            let (url, fragment) = link.split_once('#').unwrap();
            assert!(!url.contains('?') && fragment.starts_with("sha256="), "{link}");
        }
    }
}

#[test]
fn c12_pages_may_be_compressed_and_then_have_another_tag() {
    let dir = tempfile::tempdir().unwrap();
    let specs: Vec<Value> = (0..30)
        .map(|number| json!({"filename": format!("many-1.{number}-py3-none-any.whl"), "files": {"many.py": ""}}))
        .collect();
    make_wheels(&json!(specs), dir.path());
    stock(&Store::open(&dir.path().join("data")).unwrap(), dir.path());
    let mirror = Mirror::serving(&dir.path().join("data"));
    let target = format!("/{ORIN}/simple/many/");
    let plain = get(&mirror.url(""), &target, &[]);
    let packed = get(&mirror.url(""), &target, &[("Accept-Encoding", "gzip, zstd")]);
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.header("vary").unwrap().contains("Accept-Encoding"));
    assert_ne!(plain.header("etag"), packed.header("etag"));
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed.body), &mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
    let denied = get(&mirror.url(""), &target, &[("Accept-Encoding", "gzip;q=0, *")]);
    assert_eq!(denied.header("content-encoding"), None);
    // A plain page that is made from the compressed one, which was asked for first, is the same.
    let packed = get(&mirror.url(""), &target, &[JSON, ("Accept-Encoding", "gzip")]);
    let plain = get(&mirror.url(""), &target, &[JSON]);
    let mut unpacked = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed.body), &mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
    let tag = packed.header("etag").unwrap().replace("-gzip", "");
    assert_eq!(plain.header("etag"), Some(&*tag));
}

#[test]
fn c13_conditional_index() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let store = std::sync::Arc::new(Store::open(&dir.path().join("data")).unwrap());
    let server = crate::support::http::InProcess::serving(std::sync::Arc::clone(&store));
    let target = format!("/{ORIN}/simple/demo-pkg-x/");
    let first = get(&server.base, &target, &[JSON]);
    assert_eq!(first.header("cache-control"), Some("max-age=60"));
    let etag = first.header("etag").unwrap();
    let again = |etag: &str| get(&server.base, &target, &[JSON, ("If-None-Match", etag)]);
    let unchanged = again(etag);
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some(etag)));
    assert!(unchanged.header("vary").is_some() && unchanged.header("cache-control").is_some());
    assert!(unchanged.body.is_empty());

    let more = dir.path().join("more");
    fs_err::create_dir_all(&more).unwrap();
    make_wheels(&json!({"filename": "other-1.0-py3-none-any.whl", "files": {"other.py": ""}}), &more);
    stock(&store, &more);
    assert_eq!(again(etag).status, 304, "another project changed");

    make_wheels(&json!({"filename": "demo_pkg.x-1.1-py3-none-any.whl", "files": {"demo.py": ""}}), &more);
    stock(&store, &more);
    let changed = again(etag);
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), Some(etag));
    assert_eq!(changed.json()["versions"], json!(["1.0", "1.1"]));
}

/// The members are read by Python's zipfile, and hashed here.
#[test]
fn c14_side_car_truth() {
    let site = Site::new();
    for project in ["demo", "demo-pkg-x", "odd"] {
        for file in site.files(project) {
            let filename = file["filename"].as_str().unwrap();
            let url = url::Url::parse(&site.mirror.url(&format!("/{ORIN}/simple/{project}/"))).unwrap();
            let url = url.join(file["url"].as_str().unwrap()).unwrap();
            let wheel = get(&site.base(), url.path(), &[]);
            assert_eq!(Sha256::of(&wheel.body).to_string(), file["hashes"]["sha256"].as_str().unwrap());
            assert_eq!(file["size"], wheel.body.len());
            let sidecar = get(&site.base(), &format!("{}.metadata", url.path()), &[]);
            assert_eq!(sidecar.status, 200);
            let digest = Sha256::of(&sidecar.body).to_string();
            assert_eq!(file["core-metadata"]["sha256"], digest);
            assert_ne!(file["core-metadata"]["sha256"], file["hashes"]["sha256"]);
            let path = site.dir.path().join(filename);
            fs_err::write(&path, &wheel.body).unwrap();
            let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); \
                sys.stdout.buffer.write(z.read(next(n for n in z.namelist() if n.endswith('.dist-info/METADATA'))))";
            let python =
                std::process::Command::new("python3").args(["-c", script]).arg(&path).output().unwrap();
            assert!(python.status.success());
            assert_eq!(sidecar.body, python.stdout);
        }
    }
}

#[test]
fn c16_attributes_in_html() {
    let site = Site::new();
    let page = site.page("odd/", &[]);
    let html = page.text();
    assert!(html.contains("data-requires-python=\"&gt;=3.8,&lt;4\""), "{html}");
    assert!(html.contains("data-yanked=\"bad &quot;build&quot; &lt;x&gt;\""), "{html}");
    let file = &site.files("odd")[0];
    assert_eq!(file["requires-python"], ">=3.8,<4");
    assert_eq!(file["yanked"], "bad \"build\" <x>");
}

#[test]
fn c17_json_that_strict_clients_take() {
    fn check(value: &Value, path: &str) {
        match value {
            Value::Null => panic!("{path} is null"),
            Value::String(text) => assert!(!text.is_empty(), "{path} is empty"),
            Value::Array(list) => list.iter().for_each(|value| check(value, path)),
            Value::Object(map) => map.iter().for_each(|(key, value)| check(value, &format!("{path}/{key}"))),
            _ => {}
        }
    }
    let site = Site::new();
    for project in ["demo/", "demo-pkg-x/", "odd/", "deskgpu/", ""] {
        check(&site.page(project, &[JSON]).json(), project);
    }
    let files = site.files("demo");
    assert!(files[0]["size"].is_u64() && files[0]["hashes"]["sha256"].is_string());
    assert_eq!(files[0]["upload-time"], "2026-11-30T08:09:10Z");
    assert_eq!(site.files("odd")[0].get("upload-time"), None, "its upstream does not say");
}

#[test]
fn c18_post_on_a_read_page() {
    let site = Site::new();
    for target in [format!("/{ORIN}/simple/"), format!("/{ORIN}/simple/demo/"), "/".to_owned()] {
        let answer = send(&site.base(), "POST", &target, &[], &vec![b'x'; 1 << 20]);
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{target}");
        assert!(answer.text().contains("/legacy/") && answer.text().trim_end().lines().count() == 1);
    }
    assert_eq!(send(&site.base(), "DELETE", &format!("/{ORIN}/simple/demo/"), &[], b"").status, 405);
}

#[test]
fn c19_prefix_and_proxy() {
    let site = Site::new();
    let wanted = format!("https://proxy.test/mirror/{ORIN}/files/");
    let page = url::Url::parse(&format!("https://proxy.test/mirror/{ORIN}/simple/demo/")).unwrap();
    for file in site.files("demo") {
        assert!(page.join(file["url"].as_str().unwrap()).unwrap().as_str().starts_with(&wanted));
    }
    for link in links(site.page("demo/", &[]).text()) {
        assert!(page.join(&link).unwrap().as_str().starts_with(&wanted), "{link}");
    }
    let from = url::Url::parse(&format!("https://proxy.test/mirror/{ORIN}/simple/Demo")).unwrap();
    let to = site.page("Demo", &[("X-Forwarded-Host", "evil.test")]);
    assert_eq!(from.join(to.header("location").unwrap()).unwrap(), page);
    let root = get(&site.base(), &format!("/{ORIN}/simple"), &[]);
    assert_eq!((root.status, root.header("location")), (301, Some("simple/")));
}

#[test]
fn head_is_get_without_a_body() {
    let site = Site::new();
    for target in ["/", "/healthz", "/readyz", &format!("/{ORIN}/simple/"), &format!("/{ORIN}/simple/demo/")]
    {
        let (whole, alone) = (get(&site.base(), target, &[]), head(&site.base(), target, &[]));
        assert_eq!((whole.status, alone.status), (200, 200), "{target}");
        for name in ["content-length", "content-type", "etag", "cache-control"] {
            assert_eq!(whole.header(name), alone.header(name), "{target} {name}");
        }
    }
}

#[test]
fn where_one_name_stands_for_two_files_the_first_seen_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("data")).unwrap();
    let mut digests = Vec::new();
    for (time, content) in [("2026-02-02T00:00:00Z", "late"), ("2026-01-01T00:00:00Z", "early")] {
        make_wheels(
            &json!({"filename": "twice-1.0-py3-none-any.whl", "files": {"twice.py": content}}),
            dir.path(),
        );
        let provenance = Provenance { upstream: content.to_owned(), first_seen: time.to_owned(), ..local() };
        digests.push(take(&store, &dir.path().join("twice-1.0-py3-none-any.whl"), &provenance));
    }
    drop(store);
    let mirror = Mirror::serving(&dir.path().join("data"));
    let page = get(&mirror.url(""), &format!("/{ORIN}/simple/twice/"), &[JSON]).json();
    assert_eq!(page["files"].as_array().unwrap().len(), 1);
    assert_eq!(page["files"][0]["hashes"]["sha256"], digests[1].to_string());
}

#[test]
fn explains_every_known_file_and_what_fits_instead() {
    let dir = tempfile::tempdir().unwrap();
    make_wheels(
        &json!([
            desktop_wheel("deskgpu-1.1-cp310-cp310-linux_aarch64.whl"),
            {"filename": "deskgpu-1.0-py3-none-any.whl", "files": {"deskgpu.py": ""}},
        ]),
        dir.path(),
    );
    let data = dir.path().join("data");
    stock(&Store::open(&data).unwrap(), dir.path());
    let check = |explained: &Value| {
        assert_eq!((&explained["project"], &explained["device"]), (&json!("deskgpu"), &json!(ORIN)));
        let files = explained["files"].as_array().unwrap();
        let names: Vec<_> = files.iter().map(|file| file["file"].as_str().unwrap()).collect();
        assert_eq!(names, ["deskgpu-1.1-cp310-cp310-linux_aarch64.whl", "deskgpu-1.0-py3-none-any.whl"]);
        assert_eq!((&files[0]["verdict"], &files[1]["verdict"]), (&json!("refuse"), &json!("admit")));
        assert_eq!(files[0]["reasons"][0]["code"], "no-kernel-image");
        let remedy = files[0]["reasons"][0]["remedy"].as_str().unwrap();
        assert!(remedy.contains("deskgpu 1.0 in the store fits"), "{remedy}");
    };
    let run = |requirement: &str, format: &str| {
        let arguments = ["--format", format, "explain", requirement, "--device", ORIN];
        jetwheel(&data).args(arguments).output().unwrap()
    };
    let output = run("DeskGPU", "json");
    assert_eq!(output.status.code(), Some(0));
    check(&serde_json::from_slice(&output.stdout).unwrap());

    let output = run("deskgpu>1.0", "json");
    assert_eq!(output.status.code(), Some(1), "the only file in that range is refused");
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explained["files"][1]["reasons"][0]["code"], "spec-conflict");

    let output = run("deskgpu", "text");
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("no-kernel-image") && words.contains("in the store fits"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let table: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert!(table.len() == 3 && table.iter().all(|line| line.chars().count() <= 100), "{text}");

    let output = run("deskgpo", "text");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("deskgpu"));

    let mirror = Mirror::serving(&data);
    check(&get(&mirror.url(""), &format!("/{ORIN}/explain/deskgpu"), &[]).json());
    assert_eq!(get(&mirror.url(""), &format!("/{ORIN}/explain/none"), &[]).status, 404);
}

#[test]
fn the_home_page_lists_devices_with_lines_to_copy() {
    let site = Site::new();
    let page = get(&site.base(), "/", &[]);
    let html = page.text();
    assert!(html.contains(&format!("<a href=\"{ORIN}/simple/\">")), "{html}");
    assert!(html.contains(&format!("pip install --index-url http://mirror.test/{ORIN}/simple/")), "{html}");
}
