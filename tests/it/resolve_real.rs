//! Sets as real installers read them: what `resolve` writes, pip and uv take as it is, from this mirror alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use jetwheel::policy::Policy;
use jetwheel::server::{Limits, PolicySource};
use jetwheel::store::Store;
use serde_json::{Value, json};

use crate::support::clients::client_program;
use crate::support::http::{InProcess, send, stock};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_retagged_twins, make_twins, make_wheels};

const THOR: &str = "thor-jp7.0";

/// Twins of surveyed wheels for Thor, with small stand-ins for what else they need.
const SURVEYED: [&str; 2] = [
    "torchvision-0.26.0-cp312-cp312-manylinux_2_28_aarch64",
    "torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64",
];

struct Site {
    mirror: Option<Mirror>,
    dir: tempfile::TempDir,
}

/// A wheel without anything in it.
fn plain(project: &str, version: &str) -> Value {
    let name = project.replace('-', "_");
    json!({"filename": format!("{name}-{version}-py3-none-any.whl"), "files": {format!("{name}/__init__.py"): ""}})
}

impl Site {
    /// Fills a store by `add`. What torch asks for is given by its own pins: each name with a version that they take.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let wheels = dir.path().join("wheels");
        fs_err::create_dir(&wheels).unwrap();
        make_twins(&SURVEYED, &wheels);
        make_others(&wheels);
        let data = dir.path().join("data");
        let added = jetwheel(&data).arg("add").arg(&wheels).output().unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let mirror = Some(Mirror::serving(&data));
        Self { mirror, dir }
    }

    /// Runs `resolve` for Thor beside the server; what it printed.
    fn resolve(&self, output: &str, requirements: &[&str]) -> String {
        let base_url = self.mirror.as_ref().unwrap().url("");
        let output = jetwheel(&self.dir.path().join("data"))
            .args([
                "resolve",
                "--device",
                THOR,
                "--output",
                output,
                "--base-url",
                base_url.trim_end_matches('/'),
            ])
            .args(requirements)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs_err::write(&path, text).unwrap();
        path
    }

    /// Runs a client with nothing of the host's settings and no index but those that its input names.
    fn client(&self, client: &str, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(client_program(client, program));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.dir.path())
            .env("LC_ALL", "C.UTF-8");
        command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command.env("UV_NO_CONFIG", "1").env("UV_NO_CACHE", "1");
        let output = command.args(arguments).current_dir(self.dir.path()).output().unwrap();
        let said =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{client} {arguments:?}: {said}");
        said
    }
}

/// An application, and stand-ins for what else the surveyed wheels in a folder need.
fn make_others(wheels: &Path) {
    let mut others = vec![
        plain("numpy", "2.3.1"),
        plain("pillow", "12.0.0"),
        plain("app", "1.0"),
        json!({"filename": "vision_app-1.0-py3-none-any.whl", "requires_dist": ["torchvision>=0.26", "app[extra]"],
            "files": {"vision_app/__init__.py": ""}}),
    ];
    others.extend(needed_by(wheels).iter().map(|requirement| stand_in(requirement)));
    make_wheels(&Value::from(others), wheels);
}

/// The requirements of the surveyed wheels that apply on Thor, as `inspect` reads them.
fn needed_by(wheels: &Path) -> Vec<String> {
    let output =
        jetwheel(&wheels.join("none")).args(["--format", "json", "inspect"]).arg(wheels).output().unwrap();
    let inspected: Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = inspected["files"].as_array().unwrap();
    let requires = files.iter().flat_map(|file| file["requires_dist"].as_array().unwrap());
    let texts = requires.map(|text| text.as_str().unwrap().to_owned());
    let known = ["numpy", "pillow", "torch"];
    let name = |text: &str| {
        text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').next().unwrap().to_owned()
    };
    texts
        .filter(|text| !text.contains("extra ==") && !text.contains("win32") && !text.contains("darwin"))
        .filter(|text| !known.contains(&name(text).as_str()))
        .collect()
}

/// A wheel that satisfies a requirement by the lowest version that it names, else by 99; with the extras that it asks for.
fn stand_in(requirement: &str) -> Value {
    let head = requirement.split(';').next().unwrap().replace([' ', '(', ')'], "");
    let end = head.find(|letter: char| "[=<>!~".contains(letter)).unwrap_or(head.len());
    let name = head[..end].to_owned();
    let extras: Vec<String> = match head.split_once('[') {
        Some((_, rest)) => rest.split(']').next().unwrap().split(',').map(ToOwned::to_owned).collect(),
        None => Vec::new(),
    };
    let bound = ["==", ">=", "~="].into_iter().find_map(|operator| head.split_once(operator));
    let version = match bound {
        Some((_, rest)) => rest.split(',').next().unwrap().replace('*', "0"),
        None => "99".to_owned(),
    };
    let mut spec = plain(&name, &version);
    spec["provides_extra"] = json!(extras);
    spec
}

/// `torch==2.11.0` of each line of what uv and pip would install.
fn would_install(said: &str) -> Vec<String> {
    let mut names: Vec<String> = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("+ "))
        .map(|line| line.split(" (").next().unwrap().trim().to_owned())
        .collect();
    names.sort();
    names
}

fn set(json: &str) -> Vec<String> {
    let set: Value = serde_json::from_str(json).unwrap();
    let packages = set["packages"].as_array().unwrap().iter();
    let mut names: Vec<String> = packages
        .map(|package| {
            format!("{}=={}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap())
        })
        .collect();
    names.sort();
    names
}

#[test]
fn uv_and_pip_take_the_set_that_resolve_found() {
    let site = Site::new();
    let asked = ["vision-app"];
    let wanted = set(&site.resolve("json", &asked));
    assert_eq!(wanted.len(), 12, "{wanted:?}");
    for name in ["torch==2.11.0", "torchvision==0.26.0", "numpy==2.3.1"] {
        assert!(wanted.contains(&name.to_owned()), "{wanted:?}");
    }
    let python = client_program("uv", "python");
    let python = python.to_str().unwrap();
    let target = site.dir.path().join("target");
    let target = target.to_str().unwrap();
    let machine =
        ["--python-version", "3.12", "--python-platform", "aarch64-manylinux_2_39", "--python", python];

    // A requirements file, with its hashes, from the index that it names.
    let pins = site.file("requirements.txt", &site.resolve("requirements", &asked));
    let pins = pins.to_str().unwrap();
    let dry = ["pip", "install", "--dry-run", "--require-hashes", "--target", target, "-r", pins];
    assert_eq!(would_install(&site.client("uv", "uv", &[&dry[..], &machine].concat())), wanted);
    let pip = [
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-cache-dir",
        "--require-hashes",
        "--ignore-installed",
        "--only-binary=:all:",
        "--implementation",
        "cp",
        "--python-version",
        "3.12",
        "--platform",
        "linux_aarch64",
        "--platform",
        "manylinux_2_28_aarch64",
        "--platform",
        "manylinux_2_17_aarch64",
        "--target",
        target,
        "-r",
        pins,
    ];
    let said = site.client("pip-newest", "python", &pip);
    let line =
        said.lines().find_map(|line| line.strip_prefix("Would install ")).unwrap_or_else(|| panic!("{said}"));
    let mut installed: Vec<String> = line
        .split_whitespace()
        .map(|one| {
            let (name, version) = one.rsplit_once('-').unwrap();
            format!("{}=={version}", name.to_lowercase().replace('_', "-"))
        })
        .collect();
    installed.sort();
    assert_eq!(installed, wanted);
}

/// uv holds a lock against the Python that it finds, so this one is for a site's device with the Python of the clients.
#[test]
fn uv_installs_from_a_lock_alone() {
    let python = client_program("uv", "python");
    let version = Command::new(&python)
        .args(["-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        .output()
        .unwrap();
    let version = String::from_utf8(version.stdout).unwrap().trim().to_owned();
    let dir = tempfile::tempdir().unwrap();
    let wheels = dir.path().join("wheels");
    fs_err::create_dir(&wheels).unwrap();
    make_retagged_twins(&SURVEYED, ("cp312", &format!("cp{}", version.replace('.', ""))), &wheels);
    make_others(&wheels);
    let store = Arc::new(Store::open(&dir.path().join("data")).unwrap());
    stock(&store, &wheels);
    let device = format!("[[device]]\nid = \"site\"\nbase = \"{THOR}\"\npython = \"{version}\"\n");
    let policy = Policy::with_site(&[("devices.toml".to_owned(), device)]).unwrap();
    let server = InProcess::with(store, PolicySource::fixed(policy), Limits::default());
    let site = Site { mirror: None, dir };
    let set_of = |output: &str| {
        let host = server.base.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let body = json!({"requirements": ["vision-app"], "output": output}).to_string();
        let headers = [("Content-Type", "application/json"), ("X-Forwarded-Host", host.as_str())];
        let answer = send(&server.base, "POST", "/site/resolve", &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.text().to_owned()
    };
    let wanted = set(&set_of("json"));
    assert_eq!(wanted.len(), 12, "{wanted:?}");
    let lock = site.file("pylock.toml", &set_of("pylock"));
    let (lock, python) = (lock.to_str().unwrap(), python.to_str().unwrap());
    let target = site.dir.path().join("target");
    let target = target.to_str().unwrap();
    let install = [
        "pip",
        "install",
        "--no-index",
        "--target",
        target,
        "--preview",
        "--python",
        python,
        "--python-platform",
        "aarch64-manylinux_2_39",
        "-r",
        lock,
    ];
    let said = site.client("uv", "uv", &install);
    let there =
        fs_err::read_dir(target).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut there: Vec<String> = there
        .filter_map(|name| {
            let (name, version) = name.strip_suffix(".dist-info")?.rsplit_once('-')?;
            Some(format!("{}=={version}", name.replace('_', "-")))
        })
        .collect();
    there.sort();
    assert_eq!(there, wanted, "{said}");
}
