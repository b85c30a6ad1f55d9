//! Which wheel of a version is taken, and how a set is written down.

use std::path::Path;
use std::process::Command;

use jetwheel::digest::Sha256;
use jetwheel::resolve::{Lock, Metadata, Request, Resolution, json, pylock, requirements_txt, resolve};

use super::catalogue::{Catalogue, requirements, target};

fn set(catalogue: &mut Catalogue, asked: &[&str]) -> Resolution {
    let request = Request { requirements: requirements(asked), ..Request::default() };
    resolve(&request, &target("3.10"), catalogue).unwrap()
}

fn files(catalogue: &mut Catalogue, asked: &[&str]) -> Vec<String> {
    set(catalogue, asked).packages.into_iter().map(|package| package.candidate.file).collect()
}

#[test]
fn the_build_for_the_devices_cuda_comes_first() {
    let mut catalogue = Catalogue::default();
    for version in ["2.4.0", "2.4.0+cpu", "2.4.0+cu124", "2.4.0+cu126", "2.4.0+cu128"] {
        catalogue.add("torch", version, &[]);
    }
    assert_eq!(files(&mut catalogue, &["torch==2.4.0"]), ["torch-2.4.0+cu126-py3-none-any.whl"]);
    assert_eq!(files(&mut catalogue, &["torch==2.4.0+cu124"]), ["torch-2.4.0+cu124-py3-none-any.whl"]);
    assert_eq!(files(&mut catalogue, &["torch!=2.4.0+cu126"]), ["torch-2.4.0+cu128-py3-none-any.whl"]);
}

#[test]
fn then_the_better_tag_and_the_higher_build_tag() {
    let mut catalogue = Catalogue::default();
    for (file, priority, build) in [
        ("a-1-cp310-abi3-linux_aarch64.whl", 1, None),
        ("a-1-cp310-cp310-linux_aarch64.whl", 0, None),
        ("a-1-2-cp310-cp310-linux_aarch64.whl", 0, Some((2, String::new()))),
        ("a-1-10-cp310-cp310-linux_aarch64.whl", 0, Some((10, String::new()))),
    ] {
        let candidate = catalogue.add_file("a", "1", file, Metadata::default());
        candidate.tag_priority = Some(priority);
        candidate.build = build;
    }
    assert_eq!(files(&mut catalogue, &["a"]), ["a-1-10-cp310-cp310-linux_aarch64.whl"]);
}

#[test]
fn each_wheel_of_a_version_has_its_own_requirements() {
    let mut catalogue = Catalogue::default();
    let needs_missing = Metadata::parse(&["missing".to_owned()], None, &[]).unwrap();
    catalogue.add_file("a", "1", "a-1-2-py3-none-any.whl", needs_missing).build = Some((2, String::new()));
    catalogue.add_file("a", "1", "a-1-py3-none-any.whl", Metadata::default());
    assert_eq!(files(&mut catalogue, &["a"]), ["a-1-py3-none-any.whl"]);
}

#[test]
fn metadata_is_looked_up_only_where_it_decides() {
    let mut catalogue = Catalogue::default();
    for minor in 0..50 {
        catalogue.add("a", &format!("1.{minor}"), &["b"]);
        catalogue.add("b", &format!("1.{minor}"), &[]);
    }
    set(&mut catalogue, &["a"]);
    assert_eq!(catalogue.looked_up, 2);
}

/// torch with an extra and a dependency, with digests and sizes.
fn locked() -> Resolution {
    let mut catalogue = Catalogue::default();
    let torch = Metadata::parse(
        &["numpy".to_owned(), "opt ; extra == 'more'".to_owned()],
        None,
        &["more".to_owned()],
    )
    .unwrap();
    let candidate = catalogue.add_file(
        "torch",
        "2.5.0a0+nv24.08",
        "torch-2.5.0a0+nv24.08-cp310-cp310-linux_aarch64.whl",
        torch,
    );
    candidate.sha256 = Some("ab".repeat(32).parse::<Sha256>().unwrap());
    candidate.size = Some(807_000_000);
    candidate.url =
        "http://mirror:8080/orin-jp6.2/files/abab/torch-2.5.0a0+nv24.08-cp310-cp310-linux_aarch64.whl".into();
    candidate.upload_time = Some("2024-08-12T10:00:00Z".to_owned());
    candidate.requires_python = Some(">=3.8".to_owned());
    for name in ["numpy", "opt"] {
        let candidate = catalogue.add(name, "1.0", &[]);
        candidate.sha256 = Some("cd".repeat(32).parse::<Sha256>().unwrap());
        candidate.size = Some(1);
    }
    set(&mut catalogue, &["torch[more]==2.5.0a0"])
}

const INDEX: &str = "http://mirror:8080/orin-jp6.2/simple/";

#[test]
fn sets_are_written_down() {
    let resolution = locked();
    insta::assert_snapshot!(requirements_txt(&resolution, &target("3.10"), INDEX), @r"
    # Made by jetwheel for orin-jp6.2, Python 3.10.12; not for any other device.
    --index-url http://mirror:8080/orin-jp6.2/simple/
    numpy==1.0 \
        --hash=sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
    opt==1.0 \
        --hash=sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
    torch[more]==2.5.0a0+nv24.8 \
        --hash=sha256:abababababababababababababababababababababababababababababababab
    ");
    insta::assert_snapshot!(pylock(&resolution, &target("3.10"), INDEX), @r#"
    lock-version = "1.0"
    environments = ["platform_machine == 'aarch64' and sys_platform == 'linux' and implementation_name == 'cpython' and python_version == '3.10'"]
    requires-python = "==3.10.*"
    created-by = "jetwheel"

    [[packages]]
    name = "numpy"
    version = "1.0"
    index = "http://mirror:8080/orin-jp6.2/simple/"

    [[packages.wheels]]
    name = "numpy-1.0-py3-none-any.whl"
    url = "files/numpy-1.0-py3-none-any.whl"
    size = 1
    hashes = {sha256 = "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"}

    [[packages]]
    name = "opt"
    version = "1.0"
    index = "http://mirror:8080/orin-jp6.2/simple/"

    [[packages.wheels]]
    name = "opt-1.0-py3-none-any.whl"
    url = "files/opt-1.0-py3-none-any.whl"
    size = 1
    hashes = {sha256 = "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"}

    [[packages]]
    name = "torch"
    version = "2.5.0a0+nv24.8"
    requires-python = ">=3.8"
    index = "http://mirror:8080/orin-jp6.2/simple/"

    [[packages.dependencies]]
    name = "numpy"

    [[packages.dependencies]]
    name = "opt"

    [[packages.wheels]]
    name = "torch-2.5.0a0+nv24.08-cp310-cp310-linux_aarch64.whl"
    upload-time = 2024-08-12T10:00:00Z
    url = "http://mirror:8080/orin-jp6.2/files/abab/torch-2.5.0a0+nv24.08-cp310-cp310-linux_aarch64.whl"
    size = 807000000
    hashes = {sha256 = "abababababababababababababababababababababababababababababababab"}

    [tool.jetwheel]
    device = "orin-jp6.2"
    "#);
    insta::assert_snapshot!(serde_json::to_string_pretty(&json(&resolution, "orin-jp6.2")).unwrap(), @r#"
    {
      "device": "orin-jp6.2",
      "notes": [],
      "packages": [
        {
          "file": "numpy-1.0-py3-none-any.whl",
          "name": "numpy",
          "requires": [],
          "sha256": "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
          "size": 1,
          "url": "files/numpy-1.0-py3-none-any.whl",
          "version": "1.0"
        },
        {
          "file": "opt-1.0-py3-none-any.whl",
          "name": "opt",
          "requires": [],
          "sha256": "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
          "size": 1,
          "url": "files/opt-1.0-py3-none-any.whl",
          "version": "1.0"
        },
        {
          "file": "torch-2.5.0a0+nv24.08-cp310-cp310-linux_aarch64.whl",
          "name": "torch",
          "requires": [
            "numpy",
            "opt"
          ],
          "sha256": "abababababababababababababababababababababababababababababababab",
          "size": 807000000,
          "url": "http://mirror:8080/orin-jp6.2/files/abab/torch-2.5.0a0+nv24.08-cp310-cp310-linux_aarch64.whl",
          "version": "2.5.0a0+nv24.08"
        }
      ]
    }
    "#);
}

#[test]
fn a_lock_is_for_one_device() {
    let text = pylock(&locked(), &target("3.10"), INDEX);
    let lock = Lock::read(&text, "orin-jp6.2").unwrap();
    assert_eq!(lock.pins, ["numpy==1.0", "opt==1.0", "torch==2.5.0a0+nv24.8"]);
    insta::assert_snapshot!(Lock::read(&text, "thor-jp7.0").unwrap_err(), @"the lock was made for orin-jp6.2, not for thor-jp7.0: resolve anew for thor-jp7.0");
    assert!(Lock::read("lock-version = '1.0'", "orin-jp6.2").is_err());
}

/// `packaging.pylock` is in packaging 25.1 and later; an older one only reads the requirements.
#[test]
fn packaging_reads_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| fs_err::write(dir.path().join(name), text).unwrap();
    write("pylock.toml", pylock(&locked(), &target("3.10"), INDEX));
    write("requirements.txt", requirements_txt(&locked(), &target("3.10"), INDEX));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/check_lock.py");
    let output = Command::new("python3").arg(script).arg(dir.path()).output().expect("python3 is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
