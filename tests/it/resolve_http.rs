//! Files judged together, on every surface, and sets over HTTP.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use jetwheel::policy::Policy;
use jetwheel::server::{Limits, PolicySource};
use jetwheel::store::Store;
use serde_json::{Value, json};

use crate::support::http::{Answer, InProcess, get, local, send, stock, take};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

const ORIN: &str = "orin-jp6.2";
const DEVICES: [&str; 4] = [ORIN, "thor-jp7.0", "orin-jp7.2", "xavier-jp5.1.2"];
const JSON: (&str, &str) = ("Accept", "application/vnd.pypi.simple.v1+json");
const BODY: (&str, &str) = ("Content-Type", "application/json");

const VISION_OLD: &str = "torchvision-0.23.0-cp310-cp310-linux_aarch64.whl";
const VISION_NEW: &str = "torchvision-0.24.1-cp310-cp310-linux_aarch64.whl";
const TORCH_NEW: &str = "torch-2.9.1+cu126-cp310-cp310-linux_aarch64.whl";

/// A wheel with kernels of one architecture.
fn gpu_wheel(filename: &str, image: &str, needed: &[&str], requires: &[&str]) -> Value {
    let project = filename.split('-').next().unwrap();
    let library = format!("lib{project}_cuda.so");
    json!({"filename": filename, "requires_dist": requires, "elfs": [{"path": format!("{project}/lib/{library}"),
        "soname": library, "needed": needed, "glibc": "2.17", "cuda": "12.6",
        "fatbins": [{"images": [image], "count": 2}]}]})
}

/// torch 2.9.1 has no code for Orin, so torchvision 0.24.1, though it has, is of no use there; nor is what needs that.
/// `linker` links a library that only `torch` brings, and one of its files does not require it.
fn specs() -> Value {
    json!([
        gpu_wheel("torch-2.9.1-cp310-cp310-linux_aarch64.whl", "sm_90", &[], &["numpy"]),
        gpu_wheel("torch-2.8.0-cp310-cp310-linux_aarch64.whl", "sm_87", &[], &["numpy"]),
        gpu_wheel(VISION_NEW, "sm_87", &[], &["torch==2.9.1", "numpy"]),
        gpu_wheel(VISION_OLD, "sm_87", &[], &["torch==2.8.0", "numpy"]),
        {"filename": "app-2.0-py3-none-any.whl", "requires_dist": ["torchvision==0.24.1"], "files": {"app/__init__.py": ""}},
        {"filename": "app-1.0-py3-none-any.whl", "requires_dist": ["torchvision"], "files": {"app/__init__.py": ""}},
        gpu_wheel("linker-1.1-cp310-cp310-linux_aarch64.whl", "sm_87", &["libtorch_cuda.so"], &["numpy"]),
        gpu_wheel("linker-1.0-cp310-cp310-linux_aarch64.whl", "sm_87", &["libtorch_cuda.so"], &["torch"]),
        {"filename": "numpy-1.26.4-cp310-cp310-manylinux_2_17_aarch64.whl", "requires_python": ">=3.9",
            "files": {"numpy/__init__.py": ""}},
        {"filename": "numpy-2.3.0-cp312-cp312-manylinux_2_17_aarch64.whl", "files": {"numpy/__init__.py": ""}},
        {"filename": "pure-1.0-py3-none-any.whl", "requires_dist": ["no-such-project>=1"], "files": {"pure/__init__.py": ""}},
    ])
}

fn fill(dir: &Path, specs: &Value) -> Store {
    let wheels = dir.join("wheels");
    fs_err::create_dir_all(&wheels).unwrap();
    make_wheels(specs, &wheels);
    let store = Store::open(&dir.join("data")).unwrap();
    stock(&store, &wheels);
    store
}

/// Files that a page lists, with their paths.
fn page(base: &str, device: &str, project: &str) -> Vec<(String, String)> {
    let answer = get(base, &format!("/{device}/simple/{project}/"), &[JSON]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let files = answer.json()["files"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    files
        .iter()
        .map(|file| (text(&file["filename"]), text(&file["url"]).replace("../../", &format!("/{device}/"))))
        .collect()
}

fn names(base: &str, device: &str, project: &str) -> Vec<String> {
    page(base, device, project).into_iter().map(|(name, _)| name).collect()
}

fn explain(base: &str, device: &str, project: &str) -> Value {
    get(base, &format!("/{device}/explain/{project}"), &[]).json()
}

fn explained(base: &str, device: &str, file: &str) -> Value {
    let project = file.split('-').next().unwrap();
    let files = explain(base, device, project)["files"].as_array().unwrap().clone();
    files.into_iter().find(|row| row["file"] == file).unwrap()
}

fn path_of(base: &str, device: &str, file: &str) -> String {
    let sha256 = explained(base, device, file)["sha256"].as_str().unwrap().to_owned();
    format!("/{device}/files/{sha256}/{}", file.replace('+', "%2B"))
}

fn post(base: &str, device: &str, body: &Value) -> Answer {
    send(base, "POST", &format!("/{device}/resolve"), &[BODY], body.to_string().as_bytes())
}

#[test]
fn a_wheel_whose_pair_the_device_cannot_have_is_hidden_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let server = InProcess::serving(Arc::new(fill(dir.path(), &specs())));
    let base = &server.base;
    assert_eq!(names(base, ORIN, "torchvision"), [VISION_OLD]);
    let path = path_of(base, ORIN, VISION_NEW);
    for path in [path.clone(), format!("{path}.metadata")] {
        let answer = get(base, &path, &[]);
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.phrase.contains("pair-mismatch: goes with torch==2.9.1"), "{answer:?}");
        assert!(answer.text().contains("use torchvision 0.23.0 with torch 2.8.0"), "{answer:?}");
    }
    let row = explained(base, ORIN, VISION_NEW);
    assert_eq!((&row["verdict"], &row["reasons"][0]["code"]), (&json!("refuse"), &json!("pair-mismatch")));
    assert_eq!(get(base, &path_of(base, ORIN, VISION_OLD), &[]).status, 200);
    // So is what pins the hidden one in turn.
    let app = explained(base, ORIN, "app-2.0-py3-none-any.whl");
    assert_eq!(app["verdict"], "refuse", "{app}");
    assert_eq!(names(base, ORIN, "app"), ["app-1.0-py3-none-any.whl"]);
}

#[test]
fn a_library_that_only_a_sibling_brings_must_be_required() {
    let dir = tempfile::tempdir().unwrap();
    let server = InProcess::serving(Arc::new(fill(dir.path(), &specs())));
    let base = &server.base;
    assert_eq!(names(base, ORIN, "linker"), ["linker-1.0-cp310-cp310-linux_aarch64.whl"]);
    let row = explained(base, ORIN, "linker-1.1-cp310-cp310-linux_aarch64.whl");
    assert_eq!(row["reasons"][0]["code"], "soname-missing", "{row}");
    assert_eq!(row["reasons"][0]["wanted"], json!(["libtorch_cuda.so"]));
    // What is not known proves nothing.
    assert_eq!(explained(base, ORIN, "pure-1.0-py3-none-any.whl")["verdict"], "admit");
}

#[test]
fn a_dependency_of_which_nothing_fits_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let specs = json!([
        {"filename": "user-1.0-py3-none-any.whl", "requires_dist": ["kernels>=1"], "files": {"user/__init__.py": ""}},
        gpu_wheel("kernels-1.0-cp310-cp310-linux_aarch64.whl", "sm_90", &[], &[]),
    ]);
    let server = InProcess::serving(Arc::new(fill(dir.path(), &specs)));
    let row = explained(&server.base, ORIN, "user-1.0-py3-none-any.whl");
    assert_eq!((&row["verdict"], &row["notes"][0]["code"]), (&json!("admit"), &json!("unfit-dependency")));
    assert_eq!(names(&server.base, ORIN, "user").len(), 1);
}

/// A page and a file that are cached depend on rows of other projects, and on the policy.
#[test]
fn a_new_wheel_of_another_project_and_a_policy_edit_count_at_the_next_request() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(fill(dir.path(), &specs()));
    let folder = dir.path().join("policies");
    fs_err::create_dir(&folder).unwrap();
    let load = |dir: &Path| {
        let file = dir.join("rules.toml");
        let files = fs_err::read_to_string(file).map(|text| vec![("rules.toml".to_owned(), text)]);
        Policy::with_site(&files.unwrap_or_default()).map_err(|error| error.to_string())
    };
    let policies = PolicySource::folder(folder.clone(), Box::new(load)).unwrap();
    let server = InProcess::with(Arc::clone(&store), policies, Limits::default());
    let base = &server.base;
    let path = path_of(base, ORIN, VISION_NEW);
    assert_eq!((names(base, ORIN, "torchvision").len(), get(base, &path, &[]).status), (1, 403));
    assert_eq!((names(base, ORIN, "app").len(), names(base, ORIN, "pure").len()), (1, 1));

    let wheels = dir.path().join("more");
    fs_err::create_dir(&wheels).unwrap();
    make_wheels(&json!([gpu_wheel(TORCH_NEW, "sm_87", &[], &["numpy"])]), &wheels);
    take(&store, &wheels.join(TORCH_NEW), &local());
    assert_eq!((names(base, ORIN, "torchvision").len(), get(base, &path, &[]).status), (2, 200));
    assert_eq!(names(base, ORIN, "app").len(), 2, "the change reaches through a project in between");

    // Without torch among the projects that must hold GPU code its pins are nobody's business.
    fs_err::remove_file(wheels.join(TORCH_NEW)).unwrap();
    make_wheels(
        &json!([gpu_wheel(
            "torchaudio-2.9.9-cp310-cp310-linux_aarch64.whl",
            "sm_87",
            &[],
            &["torch==2.9.9"]
        )]),
        &wheels,
    );
    take(&store, &wheels.join("torchaudio-2.9.9-cp310-cp310-linux_aarch64.whl"), &local());
    assert_eq!(names(base, ORIN, "torchaudio"), Vec::<String>::new());
    fs_err::write(folder.join("rules.toml"), "require_gpu = [\"onnxruntime-gpu\"]\n").unwrap();
    assert_eq!(names(base, ORIN, "torchaudio").len(), 1);
}

fn on_the_command_line(data: &Path, arguments: &[&str]) -> (i32, Value) {
    let output = jetwheel(data).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), value)
}

#[test]
fn pages_files_explanations_sets_and_the_command_line_agree() {
    let dir = tempfile::tempdir().unwrap();
    drop(fill(dir.path(), &specs()));
    let data = dir.path().join("data");
    let mut mirror = Mirror::serving(&data);
    let base = mirror.url("");
    let mut seen = Vec::new();
    for device in DEVICES {
        for project in ["torch", "torchvision", "app", "linker", "numpy", "pure"] {
            let explanation = explain(&base, device, project);
            let listed: BTreeSet<String> = names(&base, device, project).into_iter().collect();
            for row in explanation["files"].as_array().unwrap() {
                let file = row["file"].as_str().unwrap();
                let admitted = row["verdict"] != "refuse";
                assert_eq!(listed.contains(file), admitted, "{device} {row}");
                let path = format!("/{device}/files/{}/{file}", row["sha256"].as_str().unwrap());
                assert_eq!(get(&base, &path, &[]).status, if admitted { 200 } else { 403 }, "{device} {row}");
            }
            let answer = post(&base, device, &json!({"requirements": [project]}));
            if let Some(packages) = answer.json()["packages"].as_array() {
                for package in packages {
                    let name = package["name"].as_str().unwrap();
                    let file = package["file"].as_str().unwrap().to_owned();
                    assert!(names(&base, device, name).contains(&file), "{device} {package}");
                }
            }
            seen.push((device, project, explanation, answer.status, answer.json()));
        }
    }
    mirror.end();
    for (device, project, explanation, status, answer) in seen {
        let (_, told) =
            on_the_command_line(&data, &["--format", "json", "explain", project, "--device", device]);
        assert_eq!(told, explanation, "{device} {project}");
        let arguments =
            ["--format", "json", "resolve", project, "--device", device, "--base-url", "http://mirror.test"];
        let (code, told) = on_the_command_line(&data, &arguments);
        assert_eq!(told, answer, "{device} {project}");
        assert_eq!((code, status), if code == 0 { (0, 200) } else { (1, 409) }, "{device} {project}");
    }
}

#[test]
fn a_set_comes_in_three_forms_with_urls_of_this_mirror() {
    let dir = tempfile::tempdir().unwrap();
    let server = InProcess::serving(Arc::new(fill(dir.path(), &specs())));
    let base = &server.base;
    let answer =
        post(base, ORIN, &json!({"requirements": ["app"], "constraints": ["app<2"], "output": "json"}));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let set = answer.json();
    let found: Vec<&str> =
        set["packages"].as_array().unwrap().iter().map(|package| package["file"].as_str().unwrap()).collect();
    assert_eq!(
        found,
        [
            "app-1.0-py3-none-any.whl",
            "numpy-1.26.4-cp310-cp310-manylinux_2_17_aarch64.whl",
            "torch-2.8.0-cp310-cp310-linux_aarch64.whl",
            VISION_OLD
        ]
    );
    assert_eq!(set["device"], ORIN);
    for package in set["packages"].as_array().unwrap() {
        let path = package["url"].as_str().unwrap().strip_prefix("http://mirror.test").unwrap();
        let file = get(base, path, &[]);
        assert_eq!(file.status, 200, "{package}");
        assert_eq!(package["size"], file.body.len());
        assert_eq!(package["sha256"], jetwheel::digest::Sha256::of(&file.body).to_string());
    }
    let proxied = send(
        base,
        "POST",
        &format!("/{ORIN}/resolve"),
        &[
            BODY,
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "wheels.example.org"),
            ("X-Forwarded-Prefix", "/jetson"),
        ],
        json!({"requirements": ["torch"], "output": "pylock"}).to_string().as_bytes(),
    );
    assert_eq!((proxied.status, proxied.header("content-type")), (200, Some("application/toml")));
    let lock: toml::Table = proxied.text().parse().unwrap();
    assert_eq!(lock["tool"]["jetwheel"]["device"].as_str(), Some(ORIN));
    let url = lock["packages"][0]["wheels"][0]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("https://wheels.example.org/jetson/{ORIN}/files/")), "{url}");
    let pins = post(base, ORIN, &json!({"requirements": ["torch"], "output": "requirements"}));
    assert_eq!(pins.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(pins.text().contains("torch==2.8.0 \\\n    --hash=sha256:"), "{pins:?}");
}

#[test]
fn no_set_is_a_conflict_with_its_causes() {
    let dir = tempfile::tempdir().unwrap();
    let server = InProcess::serving(Arc::new(fill(dir.path(), &specs())));
    let answer =
        post(&server.base, ORIN, &json!({"requirements": ["torchvision==0.24.1"], "output": "pylock"}));
    assert_eq!((answer.status, answer.header("content-type")), (409, Some("application/json")));
    let error = answer.json()["error"].clone();
    assert_eq!(error["causes"][0]["reason"]["code"], "pair-mismatch", "{error}");
    assert!(error["text"].as_str().unwrap().contains("torchvision==0.23.0"), "{error}");
}

#[test]
fn a_lock_holds_for_its_device_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(fill(dir.path(), &specs()));
    let server = InProcess::serving(Arc::clone(&store));
    let base = &server.base;
    let lock =
        post(base, ORIN, &json!({"requirements": ["torchvision"], "output": "pylock"})).text().to_owned();
    let again = post(base, ORIN, &json!({"lock": lock, "output": "pylock"}));
    assert_eq!((again.status, again.text()), (200, lock.as_str()), "the same set, byte for byte");
    let other = post(base, "thor-jp7.0", &json!({"lock": lock}));
    assert_eq!(other.status, 409, "{other:?}");
    let text = other.json()["error"]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("made for orin-jp6.2, not for thor-jp7.0"), "{text}");
    // Its URLs, turned to the other device's index, are answered by that device's verdicts.
    let moved = lock.lines().find_map(|line| line.strip_prefix("url = \"http://mirror.test")).unwrap();
    let torch = lock.lines().find(|line| line.starts_with("url") && line.contains("torch-")).unwrap();
    let torch = torch.trim_start_matches("url = \"http://mirror.test").trim_end_matches('"');
    assert_eq!(get(base, moved.trim_end_matches('"'), &[]).status, 200);
    let refused = get(base, &torch.replace(ORIN, "thor-jp7.0"), &[]);
    assert_eq!(refused.status, 403, "{refused:?}");

    drop(server);
    drop(store);
    let file = dir.path().join("pylock.toml");
    fs_err::write(&file, &lock).unwrap();
    let data = dir.path().join("data");
    let resolve = |device: &str| {
        jetwheel(&data).args(["resolve", "-r"]).arg(&file).args(["--device", device]).output().unwrap()
    };
    assert_eq!(resolve(ORIN).status.code(), Some(0));
    let other = resolve("thor-jp7.0");
    assert_eq!(other.status.code(), Some(1));
    let said = String::from_utf8([other.stdout, other.stderr].concat()).unwrap();
    assert!(said.contains("made for orin-jp6.2, not for thor-jp7.0"), "{said}");
}

#[test]
fn a_request_that_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let server = InProcess::serving(Arc::new(fill(dir.path(), &specs())));
    let base = &server.base;
    let target = format!("/{ORIN}/resolve");
    let send =
        |method: &str, kind: &str, body: &[u8]| send(base, method, &target, &[("Content-Type", kind)], body);
    for (body, wanted) in [
        (&b"{"[..], "line 1 column 1"),
        (b"", "the body is not what resolve takes"),
        (b"\xff\xfe", "the body is not what resolve takes"),
        (b"[]", "the body is not what resolve takes"),
        (br#"{"requirements": "torch"}"#, "expected a sequence"),
        (br#"{"requirement": ["torch"]}"#, "unknown field `requirement`"),
        (br#"{"requirements": ["torch"], "output": "xml"}"#, "unknown variant `xml`"),
        (br#"{"requirements": []}"#, "name at least one project"),
        (br#"{"requirements": ["torch", "=="]}"#, "requirements[1]: \"==\" is not a requirement"),
        (br#"{"requirements": ["torch"], "constraints": ["a b"]}"#, "constraints[0]:"),
        (br#"{"requirements": ["x @ https://example.org/x-1-py3-none-any.whl"]}"#, "a URL is not taken"),
        (br#"{"requirements": ["torch; platform_version == '1'"]}"#, "platform_version"),
        (br#"{"lock": "a = 1"}"#, "names no device"),
    ] {
        let answer = send("POST", "application/json", body);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.text().contains(wanted), "{wanted}: {}", answer.text());
    }
    let deep = "[".repeat(100_000);
    assert_eq!(send("POST", "application/json", deep.as_bytes()).status, 400);
    let many = vec!["torch"; 10_000];
    let answer = post(base, ORIN, &json!({"requirements": many}));
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("10000 requirements and constraints are too many"), "{answer:?}");
    let large = post(base, ORIN, &json!({"requirements": ["a".repeat(2 << 20)]}));
    assert_eq!(large.status, 413, "{large:?}");
    let long = post(base, ORIN, &json!({"requirements": ["a".repeat(100_000)]}));
    assert_eq!(long.status, 400);
    assert!(long.body.len() < 1000, "what is wrong is not repeated in full");

    assert_eq!(send("POST", "text/xml", b"<a/>").status, 415);
    for kind in ["application/json; charset=utf-8", "application/x-www-form-urlencoded"] {
        assert_eq!(send("POST", kind, br#"{"requirements": ["numpy"]}"#).status, 200, "{kind}");
    }
    for method in ["GET", "PUT", "DELETE"] {
        let answer = send(method, "application/json", b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
    }
    let unknown = post(base, "orin-jp6.22", &json!({"requirements": ["numpy"]}));
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains(ORIN), "{unknown:?}");
}
