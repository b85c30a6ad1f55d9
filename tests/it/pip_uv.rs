//! The main job, end to end, with real clients as judges: devpi, `sync`, `serve`, then pip and uv for two devices.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::clients::{Fetched, JETPACK_6, JETPACK_7, Pip, Target, Uv};
use crate::support::devpi::Devpi;
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_retagged_twins, make_twins, make_wheels};

const ORIN: &str = "orin-jp6.2";
const THOR: &str = "thor-jp7.0";

/// Surveyed wheels, as twins: a CPU build, a CUDA 13 build with code for Thor, and a CUDA 12 build with code for Orin.
const SURVEYED: [&str; 3] = [
    "torch-2.9.1-cp312-cp312-manylinux_2_28_aarch64",
    "torchvision-0.26.0-cp312-cp312-manylinux_2_28_aarch64",
    "cupy_cuda12x-13.6.0-cp312-cp312-manylinux2014_aarch64",
];
const NVTIFF: &str = "nvidia_nvtiff_tegra_cu12-0.8.0.82-py3-none-manylinux_2_27_aarch64.whl";
const PURE: &str = "flask_gpu_status-1.2.0-py3-none-any.whl";
const PROJECTS: [&str; 5] =
    ["torch", "torchvision", "cupy-cuda12x", "nvidia-nvtiff-tegra-cu12", "flask-gpu-status"];

/// Fills a folder: every surveyed wheel for the Python of both devices, so that Python alone decides nothing.
fn make_corpus(into: &Path) {
    make_twins(&SURVEYED, into);
    make_retagged_twins(&SURVEYED, ("cp312", "cp310"), into);
    make_wheels(
        &json!([
            // The images are those of the real wheel, read by cuobjdump.
            {"filename": NVTIFF, "elfs": [{"path": "nvidia/nvtiff/lib/libnvtiff.so.0", "soname": "libnvtiff.so.0",
                "glibc": "2.17", "cuda": "12.9", "fatbins": [{"images": ["sm_72", "sm_87", "sm_101"], "count": 8}]}]},
            {"filename": PURE, "requires_python": ">=3.9", "files": {"flask_gpu_status/__init__.py": ""}},
        ]),
        into,
    );
}

fn assert_fetches(fetched: &Fetched, expected: &str) {
    assert!(fetched.done, "{}", fetched.said);
    assert_eq!(fetched.names, [expected], "{}", fetched.said);
}

fn assert_finds_nothing(fetched: &Fetched) {
    assert!(!fetched.done, "{}", fetched.said);
    assert!(fetched.names.is_empty(), "{:?}: {}", fetched.names, fetched.said);
}

/// Asks with every client; the wheel is named `None` where the device must not get any.
fn check(mirror: &Mirror, device: &str, target: Target, requirement: &str, wheel: Option<&str>) {
    let index = mirror.index_url(device);
    for pip in [Pip::v20_0_2(), Pip::v22_0_2(), Pip::newest()] {
        let fetched = pip.download(&index, target, requirement);
        match wheel {
            Some(wheel) => assert_fetches(&fetched, wheel),
            None => assert_finds_nothing(&fetched),
        }
    }
    let installed = Uv::install(&index, target, requirement);
    match wheel {
        Some(wheel) => {
            let mut parts = wheel.splitn(3, '-');
            let info = format!("{}-{}.dist-info", parts.next().unwrap(), parts.next().unwrap());
            assert_fetches(&installed, &info);
        }
        None => assert_finds_nothing(&installed),
    }
}

fn check_both_devices(mirror: &Mirror) {
    let orin = |requirement, wheel| check(mirror, ORIN, JETPACK_6, requirement, wheel);
    orin("cupy-cuda12x", Some("cupy_cuda12x-13.6.0-cp310-cp310-manylinux2014_aarch64.whl"));
    orin("nvidia-nvtiff-tegra-cu12", Some(NVTIFF));
    orin("Flask.GPU_status>=1", Some(PURE));
    orin("torchvision", None);
    orin("torch", None);
    let thor = |requirement, wheel| check(mirror, THOR, JETPACK_7, requirement, wheel);
    thor("torchvision", Some("torchvision-0.26.0-cp312-cp312-manylinux_2_28_aarch64.whl"));
    thor("torch", None);
    thor("torch==2.9.1", None);
    thor("flask-gpu-status", Some(PURE));
}

/// `explain` as JSON: (file, verdict, codes of the reasons), in the order given.
fn explain(data: &Path, project: &str, device: &str) -> Vec<(String, String, Vec<String>)> {
    let output =
        jetwheel(data).args(["explain", project, "--device", device, "--format", "json"]).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    rows(&serde_json::from_slice(&output.stdout).unwrap())
}

fn rows(answer: &Value) -> Vec<(String, String, Vec<String>)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let files = answer["files"].as_array().unwrap().iter();
    files
        .map(|file| {
            let reasons = file["reasons"].as_array().unwrap().iter().map(|reason| text(&reason["code"]));
            (text(&file["file"]), text(&file["verdict"]), reasons.collect())
        })
        .collect()
}

fn verdict_of<'a>(rows: &'a [(String, String, Vec<String>)], part: &str) -> (&'a str, Vec<&'a str>) {
    let mut found = rows.iter().filter(|(file, ..)| file.contains(part));
    let (_, verdict, codes) = found.next().unwrap_or_else(|| panic!("{part} is not in {rows:?}"));
    assert!(found.next().is_none(), "{part} is twice in {rows:?}");
    (verdict, codes.iter().map(String::as_str).collect())
}

/// What the mirror is for; also that the clients are asked as a device would ask.
#[test]
fn straight_from_devpi_every_client_takes_the_cpu_build_and_the_one_without_code_for_orin() {
    let corpus = tempfile::tempdir().unwrap();
    make_corpus(corpus.path());
    let devpi = Devpi::start();
    devpi.upload_all(corpus.path());
    let index = devpi.index_url();
    for (project, wheel, info) in [
        ("torch", "torch-2.9.1-cp310-cp310-manylinux_2_28_aarch64.whl", "torch-2.9.1.dist-info"),
        (
            "torchvision",
            "torchvision-0.26.0-cp310-cp310-manylinux_2_28_aarch64.whl",
            "torchvision-0.26.0.dist-info",
        ),
    ] {
        for pip in [Pip::v20_0_2(), Pip::v22_0_2(), Pip::newest()] {
            assert_fetches(&pip.download(&index, JETPACK_6, project), wheel);
        }
        assert_fetches(&Uv::install(&index, JETPACK_6, project), info);
    }
}

#[test]
fn each_device_gets_from_a_devpi_what_runs_on_it_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (corpus, data) = (folder.path().join("corpus"), folder.path().join("data"));
    fs_err::create_dir(&corpus).unwrap();
    make_corpus(&corpus);
    let devpi = Devpi::start();
    devpi.upload_all(&corpus);

    let output = jetwheel(&data)
        .args(["sync", "--device", ORIN, "--device", THOR, "--upstream", &devpi.index_url()])
        .args(PROJECTS)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // torch has nothing for either device, which may be told by exit code 1.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");

    // Why, for each file. The verdicts are those of tests/data/verdicts-open.json for the wheels of the survey.
    let torch = explain(&data, "torch", ORIN);
    assert_eq!(verdict_of(&torch, "cp310"), ("refuse", vec!["no-gpu-code"]));
    assert_eq!(verdict_of(&torch, "cp312").1.first(), Some(&"python-tag"));
    let torchvision = explain(&data, "torchvision", ORIN);
    assert_eq!(verdict_of(&torchvision, "cp310"), ("refuse", vec!["cuda-too-new", "no-kernel-image"]));
    assert_eq!(verdict_of(&explain(&data, "cupy-cuda12x", ORIN), "cp310"), ("admit", vec![]));
    assert_eq!(verdict_of(&explain(&data, "nvidia-nvtiff-tegra-cu12", ORIN), "nvtiff"), ("admit", vec![]));
    assert_eq!(verdict_of(&explain(&data, "flask-gpu-status", ORIN), "flask"), ("admit", vec![]));
    let torchvision = explain(&data, "torchvision", THOR);
    assert_eq!(verdict_of(&torchvision, "cp312"), ("admit", vec![]));
    assert_eq!(verdict_of(&torchvision, "cp310").1.first(), Some(&"python-tag"));
    assert_eq!(verdict_of(&explain(&data, "torch", THOR), "cp312"), ("refuse", vec!["no-gpu-code"]));
    assert_eq!(verdict_of(&explain(&data, "cupy-cuda12x", THOR), "cp312").0, "admit-jit");

    let mirror = Mirror::serving(&data);
    check_both_devices(&mirror);
    drop(devpi);
    check_both_devices(&mirror);
    drop(mirror);

    // What was fetched is what devpi had, byte for byte; and a mirror that starts without its upstream has it too.
    let mirror = Mirror::serving(&data);
    let fetched = Pip::newest().download(&mirror.index_url(ORIN), JETPACK_6, "nvidia-nvtiff-tegra-cu12");
    assert_eq!(fetched.bytes(NVTIFF), fs_err::read(corpus.join(NVTIFF)).unwrap());
}
