//! Pages for people: what they say, in both forms, and that no wheel can add to them. A real browser is the judge at the end.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::http::{Answer, get, head, send};
use crate::support::mirror::Mirror;
use crate::support::upstream::{Fault, Gate, Upstream};
use crate::support::{jetwheel, make_twins, make_wheels};

const ORIN: &str = "orin-jp6.2";
const JSON: &[(&str, &str)] = &[("Accept", "application/json")];
const MARKUP: &str = "<img src=x onerror=alert(document.domain)>";

/// What `jetson_release -v` prints on an Orin with JetPack 6.2.
const RELEASE: &str = "\
Software part of jetson-stats 4.3.2 - (c) 2024, Raffaello Bonghi
Model: NVIDIA Jetson AGX Orin Developer Kit - Jetpack 6.2 [L4T 36.4.3]
NV Power Mode[0]: MAXN
Hardware:
 - 699-level Part Number: 699-13701-0005-500
 - Module: NVIDIA Jetson AGX Orin (64GB ram)
 - SoC: tegra234
 - CUDA Arch BIN: 8.7
Libraries:
 - CUDA: 12.6.68
 - cuDNN: 9.3.0.75
";

/// Real torch wheels in small, one wheel whose every text is markup, and one of pure Python.
const TWINS: [&str; 3] = [
    "torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64",
    "torch-2.10.0-cp312-cp312-manylinux_2_28_aarch64",
    "cupy_cuda12x-13.6.0-cp312-cp312-manylinux2014_aarch64",
];

struct Site {
    mirror: Mirror,
    dir: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(arguments: &[&OsStr]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let wheels = dir.path().join("wheels");
        fs_err::create_dir(&wheels).unwrap();
        make_twins(&TWINS, &wheels);
        make_wheels(
            &json!([
                {"filename": "demo-1.0-py3-none-any.whl", "files": {"demo/__init__.py": ""}},
                {"filename": "markup-1.0-cp310-cp310-linux_aarch64.whl",
                    "requires_dist": [MARKUP, "demo; python_version < \"<script>alert(1)</script>\""],
                    "provides_extra": ["<b>extra</b>"],
                    "elfs": [{"path": format!("markup/{MARKUP}.so"), "soname": "<script>alert(2)</script>.so",
                        "needed": ["\"><svg onload=alert(3)>.so.1"], "glibc": "2.17", "cuda": "12.6",
                        "fatbins": [{"images": ["sm_90"], "count": 2}]}],
                    "files": {"markup/'><script>alert(4)</script>.py": ""}},
            ]),
            &wheels,
        );
        let folder = dir.path().join("data");
        let added = jetwheel(&folder).arg("add").arg(&wheels).output().unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let mirror = Mirror::serving_with(&folder, arguments);
        Self { mirror, dir }
    }

    fn get(&self, path: &str) -> Answer {
        let answer = get(&self.mirror.url(""), path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer
    }

    fn json(&self, path: &str) -> Value {
        let answer = get(&self.mirror.url(""), path, JSON);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{path}");
        answer.json()
    }

    /// The page of the newest file of a project.
    fn wheel_path(&self, project: &str) -> String {
        let page = self.json(&format!("/projects/{project}/"));
        let file = &page["files"][0];
        format!("/wheels/{}/{}", file["sha256"].as_str().unwrap(), file["file"].as_str().unwrap())
    }

    /// A page of each kind, by name.
    fn pages(&self) -> Vec<(&'static str, String)> {
        vec![
            ("home", "/".to_owned()),
            ("devices", "/devices/".to_owned()),
            ("device", format!("/devices/{ORIN}")),
            ("projects", "/projects/".to_owned()),
            ("project", "/projects/torch/".to_owned()),
            ("wheel", self.wheel_path("torch")),
            ("search", "/search?q=torch".to_owned()),
            (
                "detect",
                "/detect?text=libcudnn.so.8%3A+cannot+open+shared+object+file&device=orin-jp6.2".to_owned(),
            ),
            ("snapshots", "/snapshots/".to_owned()),
            ("snapshot", "/snapshots/candidate".to_owned()),
            ("diff", "/snapshots/candidate..live".to_owned()),
            ("sync", "/sync".to_owned()),
        ]
    }

    /// Pages besides those, for a browser to look at: all that is special about them is what they say.
    fn more_pages(&self) -> Vec<(&'static str, String)> {
        vec![
            ("lost", "/projects/nowhere/".to_owned()),
            ("nothing-found", "/search?q=nowhere".to_owned()),
            ("project-device", "/projects/torch/?device=orin-jp6.2".to_owned()),
            ("markup", self.wheel_path("markup")),
        ]
    }
}

#[test]
fn every_page_has_both_forms_and_a_strict_policy() {
    let site = Site::new();
    for (name, path) in site.pages() {
        let page = site.get(&path);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{name}");
        let policy = page.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "style-src 'self'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.split("; ").any(|found| found == part), "{name}: {policy}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(
            (page.header("vary"), page.header("x-content-type-options")),
            (Some("Accept"), Some("nosniff"))
        );
        let html = page.text();
        for never in [" style=", " onclick=", "<script>", "javascript:"] {
            assert!(!html.contains(never), "{name}: {never}");
        }
        let data = site.json(&path);
        assert!(data.as_object().is_some_and(|fields| !fields.is_empty()), "{name}: {data}");
        // A page tells how long ago things were, so its length may change from one second to the next.
        let asked = head(&site.mirror.url(""), &path, &[]);
        let length = asked.header("content-length");
        assert!(
            length == page.header("content-length") || length == site.get(&path).header("content-length"),
            "{name}: {length:?}"
        );
    }
    for (path, kind) in [
        ("/static/style.css", "text/css; charset=utf-8"),
        ("/static/live.js", "text/javascript; charset=utf-8"),
    ] {
        assert_eq!(site.get(path).header("content-type"), Some(kind));
    }
}

#[test]
fn a_device_has_lines_to_copy_that_go_by_how_the_mirror_is_reached() {
    let site = Site::new();
    let behind = [
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "wheels.test"),
        ("X-Forwarded-Prefix", "/mirror"),
    ];
    let page = get(&site.mirror.url(""), &format!("/devices/{ORIN}"), &behind);
    let html = page.text();
    for line in [
        "pip install --index-url https://wheels.test/mirror/orin-jp6.2/simple/ torch",
        "uv pip install --default-index https://wheels.test/mirror/orin-jp6.2/simple/ torch",
        "poetry source add --priority=primary jetwheel https://wheels.test/mirror/orin-jp6.2/simple/",
        "FROM nvcr.io/nvidia/l4t-jetpack:r36.4.0",
        "ENV PIP_INDEX_URL=https://wheels.test/mirror/orin-jp6.2/simple/",
    ] {
        assert!(html.contains(line), "{line}: {html}");
    }
    // Links are relative, so that they hold below any prefix.
    assert!(html.contains("href=\"../orin-jp6.2/simple/\"") && !html.contains("href=\"/"), "{html}");
    let facts = site.json(&format!("/devices/{ORIN}"));
    assert_eq!(facts["device"]["compute_capability"], "8.7");
    assert!(facts["lines"]["pip"].as_str().unwrap().contains("/orin-jp6.2/simple/"));
}

#[test]
fn devices_in_use_come_first() {
    let site = Site::new();
    assert_eq!(site.json("/")["devices"][0]["last_asked"], Value::Null);
    get(&site.mirror.url(""), "/spark-cuda13.0/simple/demo/", &[]);
    let devices = site.json("/")["devices"].clone();
    assert_eq!(devices[0]["device"], "spark-cuda13.0");
    assert!(devices[0]["last_asked"].is_string() && devices[1]["last_asked"].is_null());
    // Matrices have a column for it, and are judged as its index is.
    assert_eq!(site.json("/projects/demo/")["devices"], json!(["spark-cuda13.0"]));
    let overview = site.json("/");
    assert_eq!((&overview["held"]["wheels"], &overview["held"]["projects"]), (&json!(5), &json!(4)));
    assert!(overview["free_bytes"].as_u64().unwrap() > 0);
    assert_eq!(overview["channels"][0]["channel"], "candidate");
}

#[test]
fn a_matrix_says_what_the_index_does_and_why() {
    let site = Site::new();
    for project in ["torch", "cupy-cuda12x", "markup", "demo"] {
        let page =
            site.json(&format!("/projects/{project}/?device={ORIN}&device=thor-jp7.0&device=orin-jp5.1.2"));
        assert_eq!(page["devices"], json!([ORIN, "thor-jp7.0", "orin-jp5.1.2"]));
        for file in page["files"].as_array().unwrap() {
            for cell in file["verdicts"].as_array().unwrap() {
                let device = cell["device"].as_str().unwrap();
                let index = get(&site.mirror.url(""), &format!("/{device}/simple/{project}/"), &[]);
                let listed = index.text().contains(&format!(">{}<", file["file"].as_str().unwrap()));
                assert_eq!(cell["listed"], json!(listed), "{device} {file}");
                let explained =
                    get(&site.mirror.url(""), &format!("/{device}/explain/{project}"), &[]).json();
                let files = explained["files"].as_array().unwrap();
                let same = files.iter().find(|explained| explained["file"] == file["file"]).unwrap();
                assert_eq!(cell["verdict"], same["verdict"], "{device} {file}");
                let codes = |reasons: &Value| -> Vec<Value> {
                    reasons.as_array().unwrap().iter().map(|reason| reason["code"].clone()).collect()
                };
                assert_eq!(codes(&cell["reasons"]), codes(&same["reasons"]), "{device} {file}");
            }
        }
    }
    let html = site.get(&format!("/projects/torch/?device={ORIN}"));
    let html = html.text();
    assert!(html.contains("class=\"cell bad\"") && html.contains("refused") && html.contains("✗"), "{html}");
    assert!(html.contains("What to do: "), "{html}");
}

#[test]
fn a_wheel_has_its_libraries_and_what_they_cover() {
    let site = Site::new();
    let path = site.wheel_path("cupy-cuda12x");
    let page = site.json(&format!("{path}?device={ORIN}"));
    assert_eq!(page["facts"]["gpu"], "kernels");
    let libraries = page["gpu_code"]["libraries"].as_array().unwrap();
    assert!(
        libraries.iter().all(|library| library["images"].as_object().unwrap().contains_key("sm_87")),
        "{libraries:?}"
    );
    assert!(libraries.iter().any(|library| library["devices"][ORIN] == "runs"), "{libraries:?}");
    let torch = site.json(&format!("{}?device={ORIN}", site.wheel_path("torch")));
    assert_eq!(torch["provenance"]["upstream"], "local");
    let html = site.get(&format!("{path}?device={ORIN}"));
    assert!(html.text().contains("<svg class=\"bar\"") && html.text().contains("sm_87"), "{}", html.text());
    // Where it is listed, its file is a link away.
    let listed = torch["verdicts"].as_array().unwrap().iter().find(|cell| cell["listed"] == true);
    if let Some(cell) = listed {
        let file = format!("../../{}/files/", cell["device"].as_str().unwrap());
        assert!(site.get(&site.wheel_path("torch")).text().contains(&file));
    }
}

#[test]
fn markup_in_a_wheel_is_text() {
    let site = Site::new();
    let report = json!({"device": ORIN, "passed": false, "gpu": {"name": MARKUP, "compute_capability": "8.7"}, "torch": "<script>alert(5)</script>",
        "wheels": [], "checks": [{"name": "<script>alert(6)</script>", "status": "fail", "seconds": 1.0, "text": MARKUP}]});
    let sent = send(
        &site.mirror.url(""),
        "POST",
        &format!("/{ORIN}/reports"),
        &[("Content-Type", "application/json")],
        report.to_string().as_bytes(),
    );
    assert_eq!(sent.status, 201, "{}", sent.text());
    let query = "%3Cscript%3Ealert(7)";
    let paths = [
        site.wheel_path("markup"),
        "/projects/markup/".to_owned(),
        format!("/devices/{ORIN}"),
        format!("/search?q={query}"),
        format!("/detect?text={query}"),
        format!("/projects/markup/?device={ORIN}&from={query}"),
        "/".to_owned(),
    ];
    for path in paths {
        let html = site.get(&path);
        for never in ["<script>", "<img", "<b>", "<svg onload", "onerror=alert(document.domain)>.so\""] {
            assert!(!html.text().contains(never), "{path}: {never}");
        }
    }
    let wheel = site.get(&site.wheel_path("markup"));
    assert!(wheel.text().contains("&lt;img src=x onerror=alert(document.domain)&gt;"), "{}", wheel.text());
    for path in [
        format!("/devices/{query}"),
        format!("/projects/torch/?device={query}"),
        format!("/snapshots/{query}"),
    ] {
        let answer = get(&site.mirror.url(""), &path, &[]);
        assert_eq!((answer.status, answer.text().contains("<script>")), (404, false), "{path}");
        assert!(answer.header("content-security-policy").is_some());
    }
}

#[test]
fn what_is_not_there_is_404_in_both_forms_and_names_the_nearest() {
    let site = Site::new();
    for (path, near) in [
        ("/devices/orin-jp6.22", "orin-jp6.2"),
        ("/projects/torhc/", "torch"),
        ("/snapshots/stabel", "stable"),
        ("/snapshots/candidate..candidat", "candidate"),
        ("/wheels/0000000000000000000000000000000000000000000000000000000000000000/x.whl", "no such file"),
    ] {
        let page = get(&site.mirror.url(""), path, &[]);
        assert_eq!(
            (page.status, page.header("content-type")),
            (404, Some("text/html; charset=utf-8")),
            "{path}"
        );
        assert!(page.text().contains(near), "{path}: {}", page.text());
        let data = get(&site.mirror.url(""), path, JSON);
        assert_eq!(data.status, 404);
        assert!(data.json()["error"].as_str().unwrap().contains(near), "{path}");
    }
    for path in ["/static/other.css", "/static/../x", "/wheels/abc/x.whl", "/projects/", "/devices/a/b"] {
        let status = get(&site.mirror.url(""), path, &[]).status;
        assert!(
            if path == "/projects/" { status == 200 } else { status == 404 || status == 400 },
            "{path}: {status}"
        );
    }
    assert_eq!(send(&site.mirror.url(""), "PUT", "/detect", &[], b"x").status, 405);
    assert_eq!(send(&site.mirror.url(""), "POST", "/projects/torch/", &[], b"x").status, 405);
}

#[test]
fn a_pasted_text_names_the_device_and_the_known_errors() {
    let site = Site::new();
    let release = "Model: NVIDIA Jetson AGX Orin Developer Kit - Jetpack 6.2 [L4T 36.4.3]\n";
    let text = format!(
        "{release}ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n\
        RuntimeError: CUDA error: no kernel image is available for execution on the device"
    );
    let form: String =
        url::form_urlencoded::Serializer::new(String::new()).append_pair("text", &text).finish();
    let headers = [("Accept", "application/json"), ("Content-Type", "application/x-www-form-urlencoded")];
    let answer = send(&site.mirror.url(""), "POST", "/detect", &headers, form.as_bytes()).json();
    assert_eq!(answer["device"], ORIN, "{answer}");
    let ids: Vec<&str> =
        answer["errors"].as_array().unwrap().iter().map(|error| error["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["no-kernel-image", "soname-missing"]);
    let here = answer["errors"][1]["here"].as_str().unwrap();
    assert!(
        here.contains("does not bring libcudnn.so.8, but libcudnn.so.9") && here.contains("orin-jp5"),
        "{here}"
    );
    // A long log is looked at from its end; a larger form than any log is refused.
    let long = format!("text={}{}", "x".repeat(200_000), form.trim_start_matches("text="));
    let answer = send(&site.mirror.url(""), "POST", "/detect", &headers, long.as_bytes());
    assert_eq!(answer.json()["errors"].as_array().unwrap().len(), 2);
    assert_eq!(send(&site.mirror.url(""), "POST", "/detect", &headers, &vec![b'x'; 300_000]).status, 413);
    let glibc = "/detect?device=orin-jp5.1.2&text=version+%60GLIBC_2.38%27+not+found";
    let here = site.json(glibc)["errors"][0]["here"].as_str().unwrap().to_owned();
    assert!(
        here.starts_with("orin-jp5.1.2: it has 2.31, and 2.38 is needed.") && here.contains("jp7"),
        "{here}"
    );
}

#[test]
fn long_lists_come_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    fs_err::create_dir(&wheels).unwrap();
    let many: Vec<Value> = (0..60).map(|number| json!({"filename": format!("many-1.{number}-py3-none-any.whl"), "files": {"many.py": ""}})).collect();
    make_wheels(&Value::Array(many), &wheels);
    let folder = dir.path().join("data");
    assert!(jetwheel(&folder).arg("add").arg(&wheels).output().unwrap().status.success());
    let site = Site { mirror: Mirror::serving(&folder), dir };
    let first = site.json("/projects/many/");
    assert_eq!((&first["total"], first["files"].as_array().unwrap().len()), (&json!(60), 25));
    assert_eq!(first["files"][0]["version"], "1.59");
    let last = site.json("/projects/many/?from=50");
    assert_eq!((last["files"].as_array().unwrap().len(), &last["files"][9]["version"]), (10, &json!("1.0")));
    assert!(site.get("/projects/many/?from=25").text().contains("26 to 50 of 60"));
    assert_eq!(site.json("/projects/many/?from=99999999999999999999")["from"], json!(0));
    assert_eq!(site.json("/projects/many/?from=4000")["from"], json!(59));
    assert_eq!(site.json("/search?q=many-1.5")["files"].as_array().unwrap().len(), 11);
    drop(site.dir);
}

#[test]
fn a_device_that_needs_a_token_is_not_shown_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.toml");
    fs_err::write(&config, "[access.devices]\n\"thor-*\" = \"token\"\n").unwrap();
    let folder = dir.path().join("data");
    let mut made = jetwheel(&folder);
    made.args(["token", "create", "reader", "--scope", "read", "--format", "json"]);
    let made = made.output().unwrap();
    let token: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{made:?}"));
    let bearer = format!("Bearer {}", token["token"].as_str().unwrap());
    let mut serve = jetwheel(&folder);
    serve.arg("--config").arg(&config).args(["serve", "--listen", "127.0.0.1:0"]);
    let mirror = Mirror::started_by(serve);
    let named =
        |headers: &[(&str, &str)]| get(&mirror.url(""), "/devices/", headers).text().contains("thor-jp7.0");
    assert!(!named(&[]) && named(&[("Authorization", &bearer)]));
    assert_eq!(get(&mirror.url(""), "/devices/thor-jp7.0", &[]).status, 401);
    assert_eq!(get(&mirror.url(""), "/devices/thor-jp7.0", &[("Authorization", &bearer)]).status, 200);
    assert_eq!(get(&mirror.url(""), "/static/style.css", &[]).status, 200);
}

/// Wheels of an upstream, one of which comes slowly.
fn slow_upstream(folder: &Path) -> (Upstream, Gate) {
    let wheels = folder.join("upstream");
    fs_err::create_dir(&wheels).unwrap();
    let text = "x".repeat(400_000);
    make_wheels(
        &json!({"filename": "slowpoke-2.0-py3-none-any.whl", "files": {"slowpoke/__init__.py": text}}),
        &wheels,
    );
    let upstream = Upstream::serving(&wheels);
    let gate = Gate::default();
    upstream.change("slowpoke-2.0-py3-none-any.whl", |served| {
        served.faults.extend([Fault::Hold(300, gate.clone()), Fault::Hold(300, gate.clone())]);
    });
    (upstream, gate)
}

/// What walks the pages, if it is installed; a sentence if not.
fn browser() -> PathBuf {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients/browser");
    let there = clients.join("node_modules/playwright-core").is_dir()
        && clients.join("node_modules/axe-core").is_dir();
    assert!(
        there,
        "playwright-core and axe-core are needed and are not in {}: run ./ci.sh test",
        clients.display()
    );
    clients
}

/// Finds a device's line, sees why a wheel is refused, pastes a release and an error, and watches a sync, by mouse and by
/// keyboard; looks at every page light and dark, narrow and wide.
#[test]
fn a_browser_walks_the_pages() {
    let clients = browser();
    let site = Site::new();
    let (upstream, gate) = slow_upstream(site.dir.path());
    let mut sync = jetwheel(&site.dir.path().join("data"));
    sync.args(["sync", "--device", ORIN, "--upstream", &upstream.url("/simple/"), "--no-deps", "slowpoke"]);
    let sync = sync.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pages: serde_json::Map<String, Value> = site
        .pages()
        .into_iter()
        .chain(site.more_pages())
        .map(|(name, path)| (name.to_owned(), Value::String(path)))
        .collect();
    let settings = json!({
        "clients": clients,
        "chromium": "/usr/bin/chromium",
        "base": site.mirror.url(""),
        "shots": Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots"),
        "pages": pages,
        "hostile": [site.wheel_path("markup")],
        "project": "torch",
        "device": ORIN,
        "release": format!("{RELEASE}\nlibcudnn.so.8: cannot open shared object file: No such file or directory"),
    });
    let file = site.dir.path().join("settings.json");
    fs_err::write(&file, settings.to_string()).unwrap();
    let mut node = Command::new("node");
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/walk.mjs")).arg(&file);
    let mut node =
        node.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("node is needed: run ./ci.sh test");
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let seen = lines.by_ref().map_while(Result::ok).any(|line| line == "seen");
    gate.open();
    let mut said = String::new();
    node.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let walked = node.wait().unwrap();
    let synced = sync.wait_with_output().unwrap();
    let synced = String::from_utf8_lossy(&synced.stderr).into_owned();
    assert!(walked.success(), "{said}\n{synced}");
    assert!(seen, "{said}\n{synced}");
}

#[test]
fn a_sync_is_told_of_while_it_runs_and_after_it() {
    let site = Site::new();
    let (upstream, gate) = slow_upstream(site.dir.path());
    let mut sync = jetwheel(&site.dir.path().join("data"));
    sync.args(["sync", "--device", ORIN, "--upstream", &upstream.url("/simple/"), "--no-deps", "slowpoke"]);
    let sync = sync.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let running = loop {
        let now = site.json("/sync");
        if now["syncs"][0]["open"][0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0) {
            break now;
        }
        assert!(std::time::Instant::now() < deadline, "{now}");
        std::thread::yield_now();
    };
    let pass = &running["syncs"][0];
    assert_eq!(
        (&pass["devices"], &pass["requirements"], &pass["ended"]),
        (&json!([ORIN]), &json!(["slowpoke"]), &Value::Null)
    );
    assert_eq!(pass["open"][0]["file"], "slowpoke-2.0-py3-none-any.whl");
    assert!(site.get("/sync").text().contains("fetching, "));
    assert!(site.get("/").text().contains("running"));
    gate.open();
    let synced = sync.wait_with_output().unwrap();
    assert!(synced.status.success(), "{}", String::from_utf8_lossy(&synced.stderr));
    let pass = site.json("/sync")["syncs"][0].clone();
    assert!(pass["ended"].is_string() && pass["outcome"].as_str().unwrap().starts_with("complete"), "{pass}");
    assert_eq!((&pass["files"], pass["open"].as_array().unwrap().len()), (&json!(1), 0));
    assert!(
        !site.get("/sync?paused=yes").text().contains("live.js")
            && site.get("/sync").text().contains("http-equiv=\"refresh\"")
    );
}
