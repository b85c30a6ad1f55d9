//! What wheels were compiled against: read from their bytes, and told where it does not go together.

use std::path::Path;
use std::sync::Arc;

use jetwheel::resolve::closure::Abi;
use jetwheel::store::Store;
use jetwheel::wheel::{Facts, InspectOptions, inspect_wheel};
use serde_json::{Value, json};

use crate::support::http::{InProcess, get, send, stock};
use crate::support::make_wheels;
use crate::support::upstream::Upstream;
use crate::sync::Site;

const ORIN: &str = "orin-jp6.2";
const JSON: (&str, &str) = ("Accept", "application/vnd.pypi.simple.v1+json");
const BODY: (&str, &str) = ("Content-Type", "application/json");

/// What `import_array()` of NumPy's headers leaves in a library: as `strings` shows it in pywavelets 1.4.1 and 1.8.0.
const NUMPY_1: &[&str] = &["numpy.core._multiarray_umath"];
const NUMPY_2: &[&str] = &["numpy._core._multiarray_umath", "numpy.core._multiarray_umath"];

/// Names of one function of PyTorch: as `readelf --dyn-syms` shows them in torchvision 0.20.1 and 0.21.0.
const OLD: &str = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs";
const CXX11: &str =
    "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

/// A wheel with an extension module that holds strings and imports symbols.
fn module(name: &str, version: &str, requires: &[&str], strings: &[&str], imports: &[&str]) -> Value {
    json!({"filename": format!("{name}-{version}-cp310-cp310-linux_aarch64.whl"), "requires_dist": requires,
        "elfs": [{"path": format!("{name}/_ext.cpython-310-aarch64-linux-gnu.so"), "strings": strings, "imports": imports,
            "glibc": "2.17", "cuda": "12.6", "fatbins": [["sm_87"]]}]})
}

/// PyTorch in small: its base library defines the function.
fn torch(version: &str, name: &str) -> Value {
    json!({"filename": format!("torch-{version}-cp310-cp310-linux_aarch64.whl"), "elfs": [{"path": "torch/lib/libc10.so",
        "soname": "libc10.so", "exports": [name], "glibc": "2.17", "cuda": "12.6", "fatbins": [["sm_87"]]}]})
}

fn numpy(version: &str) -> Value {
    json!({"filename": format!("numpy-{version}-cp310-cp310-manylinux_2_17_aarch64.whl"),
        "files": {"numpy/__init__.py": ""}})
}

fn vision(version: &str, requires: &[&str], name: &str) -> Value {
    let mut spec = module("torchvision", version, requires, &[], &[name]);
    spec["elfs"][0]["needed"] = json!(["libc10.so"]);
    spec
}

fn serving(dir: &Path, specs: &Value) -> InProcess {
    let wheels = dir.join("wheels");
    fs_err::create_dir_all(&wheels).unwrap();
    make_wheels(specs, &wheels);
    let store = Store::open(&dir.join("data")).unwrap();
    stock(&store, &wheels);
    InProcess::serving(Arc::new(store))
}

fn explained(server: &InProcess, project: &str) -> Value {
    get(&server.base, &format!("/{ORIN}/explain/{project}"), &[]).json()["files"].clone()
}

fn listed(server: &InProcess, project: &str) -> usize {
    let page = get(&server.base, &format!("/{ORIN}/simple/{project}/"), &[JSON]).json();
    page["files"].as_array().unwrap().len()
}

/// The set for a request, or why there is none.
fn resolved(server: &InProcess, requirements: &[&str]) -> Result<Vec<String>, String> {
    let body = json!({"requirements": requirements}).to_string();
    let answer = send(&server.base, "POST", &format!("/{ORIN}/resolve"), &[BODY], body.as_bytes());
    let answer = answer.json();
    let Some(packages) = answer["packages"].as_array() else {
        return Err(answer["error"]["text"].as_str().unwrap().to_owned());
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Ok(packages.iter().map(|one| format!("{} {}", text(&one["name"]), text(&one["version"]))).collect())
}

#[test]
fn inspecting_tells_what_members_were_compiled_against() {
    let dir = tempfile::tempdir().unwrap();
    make_wheels(
        &json!([
            module("one", "1.0", &[], NUMPY_1, &[]),
            module("two", "1.0", &[], NUMPY_2, &[]),
            module("cython", "1.0", &[], &["numpy.core.multiarray failed to import"], &[]),
            vision("1.0", &[], OLD),
            torch("2.6.0", CXX11),
        ]),
        dir.path(),
    );
    let of = |file: &str| {
        let facts = inspect_wheel(&dir.path().join(file), &InspectOptions::default()).unwrap().facts;
        (facts.members[0].numpy_abi, facts.members[0].cxx11_abi)
    };
    assert_eq!(of("one-1.0-cp310-cp310-linux_aarch64.whl"), (Some(1), None));
    assert_eq!(of("two-1.0-cp310-cp310-linux_aarch64.whl"), (Some(2), None));
    assert_eq!(of("cython-1.0-cp310-cp310-linux_aarch64.whl"), (None, None));
    assert_eq!(of("torchvision-1.0-cp310-cp310-linux_aarch64.whl"), (None, Some(false)));
    assert_eq!(of("torch-2.6.0-cp310-cp310-linux_aarch64.whl"), (None, Some(true)));
}

/// Expected: `strings` and `readelf --dyn-syms` on the wheels. aarch64 builds of torch went over to the C++11 ABI with 2.6.
#[test]
fn facts_of_real_wheels_tell_it_too() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("index/facts");
    let of = |file: &str| {
        let facts: Facts =
            serde_json::from_str(&fs_err::read_to_string(folder.join(format!("{file}.json"))).unwrap())
                .unwrap();
        let abi = Abi::of(&facts);
        (abi.numpy, abi.cxx11)
    };
    assert_eq!(of("torch-2.5.1-cp312-cp312-manylinux2014_aarch64"), (Some(2), Some(false)));
    assert_eq!(of("torch-2.9.1-cp312-cp312-manylinux_2_28_aarch64"), (Some(2), Some(true)));
    assert_eq!(of("torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64"), (Some(2), Some(true)));
    assert_eq!(of("torchvision-0.26.0-cp312-cp312-manylinux_2_28_aarch64"), (None, Some(true)));
    let onnxruntime = "onnxruntime-1.23.2-cp312-cp312-manylinux_2_27_aarch64.manylinux_2_28_aarch64";
    assert_eq!(of(onnxruntime), (Some(2), None));
}

#[test]
fn what_was_compiled_against_numpy_1_gets_no_numpy_2() {
    let dir = tempfile::tempdir().unwrap();
    let specs = json!([
        module("runtime", "1.0", &["numpy>=1.21"], NUMPY_1, &[]),
        module("newer", "1.0", &["numpy>=1.21"], NUMPY_2, &[]),
        module("optional", "1.0", &[], NUMPY_1, &[]),
        numpy("1.26.4"),
        numpy("2.2.6"),
    ]);
    let server = serving(dir.path(), &specs);
    let (old, new) = ("numpy 1.26.4", "numpy 2.2.6");
    assert_eq!(resolved(&server, &["runtime"]).unwrap(), [old, "runtime 1.0"]);
    assert_eq!(resolved(&server, &["newer"]).unwrap(), ["newer 1.0", new]);
    // One that can do without numpy brings none, but does not go with 2.
    assert_eq!(resolved(&server, &["optional"]).unwrap(), ["optional 1.0"]);
    assert_eq!(resolved(&server, &["optional", "newer"]).unwrap(), ["newer 1.0", old, "optional 1.0"]);
    let why = resolved(&server, &["runtime", "numpy>=2"]).unwrap_err();
    let told = "runtime 1.0 needs numpy>=1.21 and numpy<2 (compiled against the C API of NumPy 1).";
    assert!(why.contains(told), "{why}");
    let rows = explained(&server, "runtime");
    assert_eq!(rows[0]["verdict"], "admit", "{rows}");
    let note = rows[0]["notes"][0]["text"].as_str().unwrap();
    assert!(note.contains("does not load with numpy 2.2.6") && note.contains("\"numpy<2\""), "{note}");
    assert_eq!(explained(&server, "newer")[0]["notes"], json!([]));
}

#[test]
fn what_was_compiled_against_numpy_1_is_refused_where_there_is_numpy_2_alone() {
    let dir = tempfile::tempdir().unwrap();
    let specs = json!([
        module("runtime", "1.0", &["numpy>=1.21"], NUMPY_1, &[]),
        module("optional", "1.0", &[], NUMPY_1, &[]),
        {"filename": "app-1.0-py3-none-any.whl", "requires_dist": ["runtime"], "files": {"app.py": ""}},
        numpy("2.2.6"),
    ]);
    let server = serving(dir.path(), &specs);
    let reason = explained(&server, "runtime")[0]["reasons"][0].clone();
    assert_eq!(reason["code"], "numpy-abi", "{reason}");
    assert_eq!((&reason["found"], &reason["wanted"]), (&json!(["numpy 2.2.6"]), &json!(["numpy<2"])));
    assert_eq!(reason["member"], "runtime/_ext.cpython-310-aarch64-linux-gnu.so");
    assert!(reason["remedy"].as_str().unwrap().contains("numpy<2"), "{reason}");
    assert_eq!((listed(&server, "runtime"), listed(&server, "optional"), listed(&server, "app")), (0, 1, 1));
    let why = resolved(&server, &["app"]).unwrap_err();
    assert!(why.contains("runtime 1.0 is there, but refused") && why.contains("NumPy 1"), "{why}");
}

#[test]
fn a_wheel_goes_with_the_torch_of_its_string_abi() {
    let dir = tempfile::tempdir().unwrap();
    let specs = json!([
        torch("2.5.1", OLD),
        torch("2.6.0", CXX11),
        torch("2.7.0", CXX11),
        vision("0.20.1", &["torch"], OLD),
        vision("0.21.0", &["torch>=2.6"], CXX11),
        vision("0.20.9", &["torch>=2.6"], OLD),
        module("linker", "1.0", &[], &[], &[OLD]),
    ]);
    let server = serving(dir.path(), &specs);
    assert_eq!(resolved(&server, &["torchvision"]).unwrap(), ["torch 2.7.0", "torchvision 0.21.0"]);
    assert_eq!(resolved(&server, &["torchvision==0.20.1"]).unwrap(), ["torch 2.5.1", "torchvision 0.20.1"]);
    // One that names no torch brings none, but goes with the right one.
    assert_eq!(resolved(&server, &["linker", "torch"]).unwrap(), ["linker 1.0", "torch 2.5.1"]);
    let why = resolved(&server, &["torchvision==0.20.1", "torch==2.7.0"]).unwrap_err();
    let told = "needs torch and torch!=2.6.0,!=2.7.0 (compiled with the old C++ string ABI).";
    assert!(why.contains(told), "{why}");

    let rows = explained(&server, "torchvision");
    let row = |version: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        rows.find(|row| row["file"].as_str().unwrap().contains(version)).unwrap()
    };
    let reason = &row("0.20.9")["reasons"][0];
    assert_eq!(reason["code"], "abi-mismatch", "{reason}");
    assert_eq!((&reason["found"], &reason["wanted"]), (&json!(["old ABI"]), &json!(["C++11 ABI"])));
    assert!(reason["remedy"].as_str().unwrap().contains("made for torch 2.7.0"), "{reason}");
    assert_eq!((&row("0.21.0")["verdict"], &row("0.21.0")["notes"]), (&json!("admit"), &json!([])));
    let note = row("0.20.1")["notes"][0]["text"].as_str().unwrap();
    assert!(note.contains("torch 2.7.0 with the C++11 one"), "{note}");
    assert_eq!(listed(&server, "torchvision"), 2);
}

#[test]
fn a_sync_brings_the_numpy_and_the_torch_that_go_with_what_it_inspected() {
    let dir = tempfile::tempdir().unwrap();
    make_wheels(
        &json!([
            module("runtime", "1.0", &["numpy>=1.21"], NUMPY_1, &[]),
            numpy("1.26.4"),
            numpy("2.2.6"),
            torch("2.5.1", OLD),
            torch("2.7.0", CXX11),
            vision("0.20.1", &["torch"], OLD),
        ]),
        dir.path(),
    );
    let upstream = Upstream::serving(dir.path());
    let site = Site::new();
    let url = upstream.url("/simple/");
    let report = site.sync(0, &["--device", ORIN, "--upstream", &url, "runtime", "torchvision"]);
    let packages = report["devices"][0]["packages"].as_array().unwrap().iter();
    let set: Vec<String> = packages
        .map(|one| format!("{} {}", one["name"].as_str().unwrap(), one["version"].as_str().unwrap()))
        .collect();
    assert_eq!(set, ["numpy 1.26.4", "runtime 1.0", "torch 2.5.1", "torchvision 0.20.1"], "{report}");
}

/// Facts of an earlier program still count, so that nothing is fetched again but what may hold what it did not look at.
#[test]
fn earlier_facts_count_unless_what_they_lack_may_matter() {
    let facts = |inspector: u32, path: &str, needed: &[&str]| -> Facts {
        serde_json::from_value(
            json!({"file": "x-1.0-py3-none-any.whl", "sha256": "00".repeat(32), "size": 1, "gpu": "none",
            "inspector": inspector, "members": [{"path": path, "size": 1, "kind": "elf", "needed": needed}]}),
        )
        .unwrap()
    };
    let library = "nvidia/cublas/lib/libcublas.so.12";
    assert!(facts(1, library, &["libc.so.6"]).are_current());
    assert!(!facts(0, library, &["libc.so.6"]).are_current());
    assert!(!facts(1, library, &["libc10.so"]).are_current());
    assert!(!facts(1, "cupy/core.cpython-310-aarch64-linux-gnu.so", &[]).are_current());
    assert!(!facts(1, "torchvision/_C.so", &[]).are_current());
    assert!(facts(2, "torchvision/_C.so", &[]).are_current());
    assert_eq!(Abi::of(&facts(1, "torchvision/_C.so", &[])), Abi::default());
}
