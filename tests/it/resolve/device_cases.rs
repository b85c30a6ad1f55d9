//! The reported failures (`tests/data/device-cases.json`): judging, then the closure, then the request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use jetwheel::policy::{Code, Judgement, NoteCode, Verdict, judge};
use jetwheel::resolve::closure::{Abi, Brief, Wheel, closure_by};
use jetwheel::resolve::{KnownFile, Request, request_conflicts, resolve_rows};
use jetwheel::wheel::Facts;
use serde_json::{Value, json};

use super::catalogue::requirements;
use crate::policy::{candidate, policy_of};
use crate::support::data;

/// The codes of `DEVICE-CASES.md` as those of the contract.
fn code(name: &str) -> Code {
    match name {
        "HASH_MISMATCH" => Code::HashMismatch,
        "METADATA_MISMATCH" => Code::MetadataMismatch,
        "TAG_INVALID" | "TAG_PYTHON" => Code::PythonTag,
        "TAG_PLATFORM" => Code::PlatformTag,
        "GLIBC_TOO_NEW" => Code::GlibcTooNew,
        "GLIBCXX_TOO_NEW" => Code::GlibcxxTooNew,
        "DRIVER_TOO_OLD" => Code::CudaTooNew,
        "SPEC_CONFLICT" => Code::SpecConflict,
        "NO_GPU_CODE" => Code::NoGpuCode,
        "SASS_ARCH_MISSING" => Code::NoKernelImage,
        "PTX_TOO_NEW" => Code::PtxTooNew,
        "TOOLCHAIN_ARCH_UNKNOWN" => Code::CompilerTargetMissing,
        "SONAME_MISSING" => Code::SonameMissing,
        "PAIR_TORCH_MISMATCH" => Code::PairMismatch,
        "PAIR_ABI_MISMATCH" => Code::AbiMismatch,
        "NUMPY_ABI" => Code::NumpyAbi,
        "ADVISORY" => Code::Advisory,
        other => panic!("{other}"),
    }
}

fn abi(facts: &Value) -> Abi {
    Abi {
        numpy: facts["numpy_abi"].as_u64().map(|major| u32::try_from(major).unwrap()),
        cxx11: facts["cxx11_abi"].as_u64().map(|abi| abi == 1),
        built_against: facts["built_against"].as_str().map(|text| text.parse().unwrap()),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn all_reported_failures_are_caught_and_nothing_else() {
    let text = fs_err::read_to_string(data("device-cases.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(cases.len(), 15);
    for case in &cases {
        check(case);
    }
}

fn check(case: &Value) {
    let policy = policy_of(case);
    let device = policy.device("case").unwrap();
    let rows = case["candidates"].as_array().unwrap();
    let key = |row: &Value| row["key"].as_str().or(row["filename"].as_str()).unwrap().to_owned();
    let mut keys: Vec<String> = rows.iter().map(key).collect();
    let mut judged: Vec<(Arc<Facts>, Judgement, Abi)> = rows
        .iter()
        .map(|row| {
            let facts = candidate(row);
            let judgement = judge(&facts, device, &policy);
            (Arc::new(facts), judgement, abi(&row["facts"]))
        })
        .collect();
    for row in case["installed"].as_array().unwrap() {
        let python = case["python"].as_str().unwrap().replace('.', "");
        let (name, version) = (row["name"].as_str().unwrap(), row["version"].as_str().unwrap());
        let file = format!("{name}-{version}-cp{python}-cp{python}-linux_aarch64.whl");
        let facts = candidate(&json!({"filename": file, "facts": {}}));
        let judgement = Judgement { verdict: Verdict::Admit, reasons: Vec::new(), notes: Vec::new() };
        judged.push((Arc::new(facts), judgement, abi(row)));
        keys.push("installed".to_owned());
    }
    let wheels: Vec<Wheel> = judged
        .iter()
        .map(|(facts, judgement, abi)| Wheel {
            brief: Arc::new(Brief::of(facts).with_abi(abi.clone())),
            verdict: judgement.verdict,
        })
        .collect();
    for (at, change) in closure_by(&wheels, device, &policy) {
        change.apply(&mut judged[at].1);
    }

    let mut files: Vec<KnownFile> = judged
        .into_iter()
        .map(|(facts, judgement, abi)| KnownFile {
            listed: policy.lists(facts.project.as_ref().unwrap(), judgement.verdict),
            facts,
            judgement,
            held: true,
            abi,
            yanked: None,
            upstream: "case".to_owned(),
            upload_time: None,
        })
        .collect();
    let asked = texts(&case["request"]);
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let request = Request { requirements: requirements(&asked), ..Request::default() };
    let resolution = resolve_rows(&request, device, "", |project| {
        let of_project = files.iter().filter(|file| file.facts.project.as_ref() == Some(project));
        Ok::<_, Infallible>(of_project.cloned().collect())
    });
    for (at, reason) in request_conflicts(&request, resolution.as_ref().ok(), device, &files) {
        files[at].listed = false;
        files[at].judgement.reasons.push(reason);
    }

    let id = &case["id"];
    let by_key: BTreeMap<&String, &KnownFile> = keys.iter().zip(&files).collect();
    for admitted in texts(&case["expected"]["admit"]) {
        assert!(by_key[&admitted].listed, "{id} {admitted}: {:?}", by_key[&admitted].judgement);
    }
    for (refused, wanted) in case["expected"]["refuse"].as_object().unwrap() {
        let file = by_key[refused];
        assert!(!file.listed, "{id} {refused} is listed");
        let first = file.judgement.reasons.iter().map(|reason| reason.code).min();
        assert_eq!(first, Some(code(wanted.as_str().unwrap())), "{id} {refused}: {:?}", file.judgement);
        for word in texts(&case["expected"]["remedy"][refused]) {
            let told = |text: &String| text.contains(&word);
            assert!(
                file.judgement.reasons.iter().any(|reason| told(&reason.text) || told(&reason.remedy)),
                "{id} {refused}: {word} is not named: {:?}",
                file.judgement
            );
        }
    }
    for (noted, wanted) in case["expected"]["warn"].as_object().into_iter().flatten() {
        let wanted = if wanted == "SAME_MAJOR_ONLY" { NoteCode::SameMajorOnly } else { NoteCode::Advisory };
        assert!(by_key[noted].judgement.notes.iter().any(|note| note.code == wanted), "{id} {noted}");
    }
    // What the request gets is among what is admitted.
    for package in resolution.iter().flat_map(|resolution| &resolution.packages) {
        let file = &package.candidate.file;
        assert!(
            texts(&case["expected"]["admit"]).contains(file) || file.contains("torch-2.1.0a0"),
            "{id}: {file}"
        );
    }
}
