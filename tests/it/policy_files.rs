//! A site's own policy files: devices, rules and advisories over the built-in tables.

use jetwheel::policy::{Code, NoteCode, Policy, Verdict, judge};
use jetwheel::wheel::{Facts, FatbinRow};
use serde_json::{Value, json};

use crate::policy::candidate;
use crate::support::clients::{JETPACK_6, Pip};
use crate::support::mirror::Mirror;
use crate::support::{jetwheel, make_wheels};

fn site(file: &str, text: &str) -> Result<Policy, String> {
    Policy::with_site(&[(file.to_owned(), text.to_owned())]).map_err(|error| error.to_string())
}

#[test]
fn site_profiles_state_what_differs_from_their_base() {
    let policy = site(
        "devices.toml",
        "[[device]]\nid = \"robots\"\nbase = \"orin-jp6.2\"\ncuda_compat = \"12.8\"\nl4t = \"36.4.9\"\n\
         sonames_add = [\"libcudss.so.0\"]\n",
    )
    .unwrap();
    let robots = policy.device("robots").unwrap();
    assert!(robots.sonames.contains("libcudss.so.0") && robots.sonames.contains("libcudnn.so.9"));
    assert_eq!(robots.nearest.as_deref(), Some("36.4.9"));

    // A wheel of CUDA 12.8 runs with cuda-compat-12-8, and without it is told of it.
    let mut facts = candidate(&json!({
        "filename": "torch-2.9.0+cu128-cp310-cp310-linux_aarch64.whl",
        "facts": {"sass": ["sm_87"], "needed": ["libcudart.so.12"]}
    }));
    let judgement = judge(&facts, robots, &policy);
    assert_eq!(judgement.verdict, Verdict::Admit, "{judgement:?}");
    assert_eq!(judgement.notes[0].code, NoteCode::NearestProfile);
    let judgement = judge(&facts, policy.device("orin-jp6.2").unwrap(), &policy);
    assert_eq!(judgement.reasons[0].code, Code::CudaTooNew);
    assert!(judgement.reasons[0].remedy.contains("cuda-compat-12-8"), "{judgement:?}");
    // Its own PTX is then known as well.
    facts.members[0].needed.clear();
    facts.members[0].fatbins[0].images = vec!["compute_80 ptx8.7".parse().unwrap()];
    assert_eq!(judge(&facts, robots, &policy).verdict, Verdict::AdmitJit);
    let judgement = judge(&facts, policy.device("orin-jp6.2").unwrap(), &policy);
    assert_eq!(judgement.reasons[0].code, Code::PtxTooNew);
}

#[test]
fn wrong_site_files_are_told_with_their_place() {
    let device = "[[device]]\nid = \"robots\"\n";
    for (file, text, words) in [
        (
            "devices.toml",
            "[[device]]\nid = \"r\"\nbase = \"orin-jp6.2\"\ncuda = \"12.8\"\n",
            &["line 4", "column 1", "`cuda`", "cuda_compat"][..],
        ),
        (
            "devices.toml",
            "[[device]]\nid = \"r\"\nbase = \"orin-jp6.9\"\n",
            &["line 3", "orin-jp6.9", "orin-jp6.2"],
        ),
        (
            "devices.toml",
            "[[device]]\nid = \"r\"\nbase = \"orin-jp6.2\"\npython = 3.10\n",
            &["line 4", "python"],
        ),
        (
            "devices.toml",
            "[[device]]\nid = \"r\"\nbase = \"orin-jp6.2\"\nstack = \"tegra\"\n",
            &["line 4", "tegra-nvgpu"],
        ),
        ("devices.toml", "[[device]]\nid = \"../r\"\nbase = \"orin-jp6.2\"\n", &["line 2", "small letters"]),
        (
            "devices.toml",
            "[[device]]\nid = \"r\"\nbase = \"orin-jp6.2\"\ndriver_cuda = \"14.0\"\n",
            &["line 1", "ptx_isa"],
        ),
        (
            "devices.toml",
            device,
            &["line 1", "robots", "compute_capability", "stack", "driver_cuda", "glibc", "glibcxx", "python"],
        ),
        (
            "devices.toml",
            "[[device]]\nid = \"a\"\nbase = \"orin-jp6.2\"\n[[device]]\nid = \"a\"\nbase = \"orin-jp6.2\"\n",
            &["line 5", "once"],
        ),
        ("rules.toml", "require = [\"torch\"]\n", &["line 1", "require_gpu"]),
        ("rules.toml", "[thresholds]\nrun = 75\n", &["line 2", "from 0 to 1"]),
        ("rules.toml", "compilers = \"no\"\n", &["line 1", "refuse", "warn"]),
        ("advisories/a.toml", "[[advisory]]\nid = \"a\"\n", &["line 1", "project"]),
        (
            "advisories/a.toml",
            "[[advisory]]\nid = \"a\"\nproject = \"x\"\ntext = \"\"\nversions = \"~12\"\n",
            &["line 5"],
        ),
        ("device.toml", "", &["devices.toml"]),
    ] {
        let error = site(file, text).unwrap_err();
        assert!(error.starts_with(&format!("{file}: ")), "{error}");
        for word in words {
            assert!(error.contains(word), "{text}\n{word} is not in: {error}");
        }
    }
}

/// Each key of a site's files changes what it should: the facts, the files, and the codes of before and after.
#[test]
fn every_key_has_its_effect() {
    let wheel = |file: &str, facts: Value| candidate(&json!({"filename": file, "facts": facts}));
    let torch = wheel("torch-2.9.0-cp310-cp310-linux_aarch64.whl", json!({}));
    let demo = wheel("demo-1.0-cp310-cp310-linux_aarch64.whl", json!({}));
    let desktop = wheel("demo-1.0-cp310-cp310-linux_aarch64.whl", json!({"sass": ["sm_80"]}));
    let compiler = wheel("triton-3.6.0-cp310-cp310-linux_aarch64.whl", json!({"ptxas_targets": ["sm_80"]}));
    let fits = wheel("demo-1.5-cp310-cp310-linux_aarch64.whl", json!({"sass": ["sm_87"]}));
    let in_part = mixed(&[(&["sm_87", "sm_90"], 60), (&["sm_90"], 40)]);
    let dispatching = mixed(&[(&["sm_87"], 10), (&["sm_80"], 30), (&["sm_90"], 60)]);
    let advisory = |more: &str| {
        format!("[[advisory]]\nid = \"a\"\nproject = \"demo\"\ntext = \"bad\"\naction = \"refuse\"\n{more}\n")
    };
    let rules = |text: &str| ("rules.toml", text.to_owned());
    let file = |more: &str| ("advisories/a.toml", advisory(more));
    for (facts, (name, text), before, after) in [
        (&torch, rules("require_gpu = []"), Some(Code::NoGpuCode), None),
        (&torch, rules("require_gpu_add = [\"demo\"]"), Some(Code::NoGpuCode), Some(Code::NoGpuCode)),
        (&demo, rules("require_gpu_add = [\"de*\"]"), None, Some(Code::NoGpuCode)),
        (&desktop, rules("tegra_same_major = \"allow\""), Some(Code::NoKernelImage), None),
        (&compiler, rules("compilers = \"warn\""), Some(Code::CompilerTargetMissing), None),
        (&in_part, rules("thresholds = { run = 0.5 }"), Some(Code::PartialKernels), None),
        (
            &in_part,
            rules("thresholds = { stray = 0.7 }"),
            Some(Code::PartialKernels),
            Some(Code::NoKernelImage),
        ),
        (&dispatching, rules("thresholds = { uniform = 0.1 }"), None, Some(Code::PartialKernels)),
        (&fits, file(""), None, Some(Code::Advisory)),
        (&fits, file("versions = \">=1.5,<2\""), None, Some(Code::Advisory)),
        (&fits, file("versions = \"<1.5\""), None, None),
        (&fits, file("versions = \"==1.*\"\ncompute_capability = [\"8.*\"]"), None, Some(Code::Advisory)),
        (&fits, file("compute_capability = [\"1*.*\"]"), None, None),
        (&fits, file("devices = [\"orin-jp6*\"]"), None, Some(Code::Advisory)),
        (&fits, file("devices = [\"thor-*\"]"), None, None),
    ] {
        let first = |policy: &Policy| {
            let judgement = judge(facts, policy.device("orin-jp6.2").unwrap(), policy);
            judgement.reasons.first().map(|reason| reason.code)
        };
        assert_eq!(first(&Policy::builtin()), before, "{} before {text}", facts.file);
        assert_eq!(first(&site(name, &text).unwrap()), after, "{} after {text}", facts.file);
    }
    let policy = site(
        "rules.toml",
        "partial = [\"demo\"]\nauxiliary = [\"x-*\"]\n[[owner]]\nprojects = [\"torch*\"]\nupstream = \"jp6\"\n",
    );
    let policy = policy.unwrap();
    let [demo, x, torch] = ["demo", "x-y", "torchvision"].map(|name| name.parse().unwrap());
    assert!(policy.lists(&demo, Verdict::Partial) && !Policy::builtin().lists(&demo, Verdict::Partial));
    assert!(policy.is_auxiliary(&x) && !policy.is_auxiliary(&demo));
    assert_eq!((policy.owner(&torch), policy.owner(&demo)), (Some("jp6"), None));
}

/// A library of fatbinaries with these images, so many of each.
fn mixed(sets: &[(&[&str], u64)]) -> Facts {
    let file = "demo-1.0-cp310-cp310-linux_aarch64.whl";
    let mut facts = candidate(&json!({"filename": file, "facts": {"sass": ["sm_87"]}}));
    let row = facts.members[0].fatbins[0].clone();
    let rows = sets.iter().map(|&(images, count)| FatbinRow {
        images: images.iter().map(|image| image.parse().unwrap()).collect(),
        count,
        ..row.clone()
    });
    facts.members[0].fatbins = rows.collect();
    facts
}

/// A site's files through the served index, with pip as the judge and no restart between the edits.
#[test]
fn pip_sees_an_edit_at_its_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let (wheels, site, store) =
        (folder.path().join("wheels"), folder.path().join("site"), folder.path().join("data"));
    let file = "demo-1.0-cp310-cp310-linux_aarch64.whl";
    for path in [&wheels, &site] {
        fs_err::create_dir(path).unwrap();
    }
    make_wheels(
        &json!([{"filename": file, "elfs": [{"path": "demo/_C.so", "fatbins": [{"images": ["sm_80"], "count": 4}]}]}]),
        &wheels,
    );
    assert!(jetwheel(&store).arg("add").arg(&wheels).status().unwrap().success());
    let mirror = Mirror::serving_with(&store, &["--policies".as_ref(), site.as_os_str()]);
    let takes = |device: &str| {
        let fetched = Pip::newest().download(&mirror.index_url(device), JETPACK_6, "demo");
        assert_eq!(fetched.done, fetched.names == [file], "{}", fetched.said);
        fetched.done
    };
    assert!(!takes("orin-jp6.2"), "sm_80 is refused on Orin");
    fs_err::write(site.join("rules.toml"), "tegra_same_major = \"allow\"\n").unwrap();
    assert!(takes("orin-jp6.2"), "it is a switch");
    fs_err::write(site.join("devices.toml"), "[[device]]\nid = \"robots\"\nbase = \"orin-jp6.2\"\n").unwrap();
    assert!(takes("robots"));
    fs_err::create_dir(site.join("advisories")).unwrap();
    let advisory = "[[advisory]]\nid = \"a\"\nproject = \"demo\"\ndevices = [\"robots\"]\naction = \"refuse\"\ntext = \"bad\"\n";
    fs_err::write(site.join("advisories/a.toml"), advisory).unwrap();
    assert!(!takes("robots") && takes("orin-jp6.2"));
    fs_err::remove_file(site.join("rules.toml")).unwrap();
    assert!(!takes("orin-jp6.2"));
}

/// A server reads the folder anew while it runs: what never ends would stop it.
#[test]
fn what_is_no_file_is_no_policy() {
    let dir = tempfile::tempdir().unwrap();
    let policies = dir.path().join("policies");
    fs_err::create_dir_all(policies.join("advisories")).unwrap();
    for name in ["rules.toml", "advisories/site.toml"] {
        let path = policies.join(name);
        let look = || {
            let mut command = jetwheel(&dir.path().join("data"));
            let output = command.arg("--policies").arg(&policies).arg("devices").output().unwrap();
            assert_eq!(output.status.code(), Some(2));
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(look().contains("not a regular file"), "{}", look());
        fs_err::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(look().contains("not a regular file"), "{}", look());
        fs_err::remove_file(&path).unwrap();
        fs_err::write(&path, vec![b'#'; (16 << 20) + 1]).unwrap();
        assert!(look().contains("larger than"), "{}", look());
        fs_err::remove_file(&path).unwrap();
    }
}
