//! Verdicts: the surveyed wheels, a real driver's answers, reported failures, and the machines that `detect` sees.

use std::collections::BTreeMap;

use jetwheel::policy::{Code, Judgement, Policy, Verdict, judge};
use jetwheel::wheel::{Compiler, Facts, FatbinRow, GpuClass, Member, MemberKind};
use serde_json::{Value, json};

use crate::support::data;

/// The devices of the reference verdicts.
const DEVICES: [(&str, &str); 8] = [
    ("Nano JP4", "nano-jp4.6.1"),
    ("TX2 JP4", "tx2-jp4.6.6"),
    ("Xavier JP5", "xavier-jp5.1.2"),
    ("Orin JP6", "orin-jp6.2"),
    ("Orin JP7.2", "orin-jp7.2"),
    ("Thor JP7", "thor-jp7.0"),
    ("Spark", "spark-cuda13.0"),
    ("GH200", "gh200-cuda13.0"),
];

fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(data(name)).unwrap()).unwrap()
}

/// The facts of a surveyed wheel, from the survey's JSON.
fn surveyed(survey: &Value, compilers: &Value) -> Facts {
    let filename = survey["filename"].as_str().unwrap();
    let metadata = &survey["metadata"];
    let members: Vec<Member> = survey["elfs"].as_array().unwrap().iter().map(member).collect();
    let known = compilers.as_object().unwrap().iter().find(|(name, _)| filename.starts_with(name.as_str()));
    let compilers = known.iter().flat_map(|(_, compilers)| compilers.as_object().unwrap());
    let compilers: Vec<Compiler> = compilers
        .map(|(name, row)| {
            let targets = row["targets"].as_array().unwrap().iter();
            let targets: Vec<_> =
                targets.map(|target| format!("compute_{}", target.as_str().unwrap())).collect();
            serde_json::from_value(json!({"path": name, "cuda": row["cuda"], "targets": targets})).unwrap()
        })
        .collect();
    let (name, rest) = filename.split_once('-').unwrap();
    let tags: Vec<_> =
        survey["wheel_tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    Facts {
        file: filename.to_owned(),
        sha256: survey["sha256"].as_str().unwrap().parse().unwrap(),
        size: survey["size"].as_u64().unwrap(),
        project: Some(name.parse().unwrap()),
        version: Some(rest.split('-').next().unwrap().to_owned()),
        tags: tags.into_iter().map(str::to_owned).collect(),
        requires_python: metadata["requires_python"].as_str().map(str::to_owned),
        requires_dist: strings(&metadata["requires_dist"]),
        provides_extra: Vec::new(),
        metadata_sha256: None,
        gpu: GpuClass::None,
        members,
        compilers,
        images: BTreeMap::new(),
        cuda_sources: 0,
        needed_dlopen: Vec::new(),
        damage: Vec::new(),
    }
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn member(elf: &Value) -> Member {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let archive = elf["machine"] == "ar";
    let mut isa: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for (key, count) in elf["scan"]["ptx_isa"].as_object().into_iter().flatten() {
        let (target, version) = key.split_once(" ptx").unwrap();
        let count = count.as_u64().unwrap();
        let slot = isa.entry(target.replace("sm_", "compute_")).or_default();
        if count > slot.0 {
            *slot = (count, version.to_owned());
        }
    }
    let image = |label: &str| {
        let label = label.trim_end_matches('?');
        let label = match (label.strip_prefix("kind8:sm_"), isa.get(label)) {
            (Some(target), _) => format!("lto_{target}"),
            (None, Some((_, version))) => format!("{label} ptx{version}"),
            (None, None) if label.starts_with("compute") => panic!("{label}: no PTX ISA"),
            (None, None) => label.to_owned(),
        };
        label.parse().unwrap()
    };
    let sections = elf["scan"]["sigs"].as_object().into_iter().flatten();
    let fatbins = sections.flat_map(|(section, signatures)| {
        signatures.as_object().unwrap().iter().map(|(signature, count)| FatbinRow {
            section: Some(section.clone()),
            images: signature.split_whitespace().map(image).collect(),
            count: count.as_u64().unwrap(),
        })
    });
    let runpath = text(&elf["runpath"]).or_else(|| text(&elf["rpath"])).unwrap_or_default();
    Member {
        path: text(&elf["path"]).unwrap(),
        size: elf["size"].as_u64().unwrap_or(0),
        kind: if archive { MemberKind::Archive } else { MemberKind::Elf },
        machine: (elf["machine"] == "AArch64").then(|| "aarch64".to_owned()),
        soname: text(&elf["soname"]),
        needed: strings(&elf["needed"]),
        runpath: runpath.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
        glibc: text(&elf["max_ver"]["GLIBC"]),
        glibcxx: text(&elf["max_ver"]["GLIBCXX"]),
        cxxabi: text(&elf["max_ver"]["CXXABI"]),
        registered_fatbins: elf["nvFatBinSegment_wrappers"].as_u64().unwrap_or(0),
        fatbins: fatbins.collect(),
        bare_cubins: BTreeMap::new(),
        images: BTreeMap::new(),
    }
}

/// All surveyed wheels, by file name.
fn survey() -> Vec<Facts> {
    let compilers = read("jit.json");
    let mut paths: Vec<_> =
        std::fs::read_dir(data("golden")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            surveyed(&serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap(), &compilers)
        })
        .collect()
}

/// The reasons beside tags and `Requires-Python`, which the reference verdicts do not look at.
fn of_contents(judgement: &Judgement) -> Vec<Code> {
    let tags = [Code::PythonTag, Code::PlatformTag, Code::RequiresPython];
    judgement.reasons.iter().map(|reason| reason.code).filter(|code| !tags.contains(code)).collect()
}

/// Expected values: `oracle/rule_reference.py` of the survey, over the same facts.
#[test]
fn judges_the_surveyed_wheels_as_the_reference_does() {
    let policy = Policy::builtin();
    let expected = read("verdicts-open.json");
    let mut cells = 0;
    let mut wrong = Vec::new();
    for facts in survey() {
        for (name, id) in DEVICES {
            let device = policy.device(id).unwrap();
            let judgement = judge(&facts, device, &policy);
            let codes = of_contents(&judgement);
            let cell = expected[&facts.file][name].as_str().unwrap();
            cells += 1;
            if !agrees(cell, &codes, &judgement) {
                wrong.push(format!("{} on {id}: {cell}, not {codes:?} {}", facts.file, judgement.verdict));
            }
        }
    }
    assert_eq!(cells, 36 * 8);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn agrees(cell: &str, codes: &[Code], judgement: &Judgement) -> bool {
    let has = |wanted: Code| codes.contains(&wanted);
    match cell {
        "RUN" | "-" | "any" | "jit?" | "JIT-ok" => codes.is_empty() && judgement.verdict != Verdict::AdmitJit,
        "RUN-JIT" => codes.is_empty() && judgement.verdict != Verdict::Admit,
        "PARTIAL" => codes == [Code::PartialKernels],
        "cpu" => codes.is_empty() || codes == [Code::NoGpuCode],
        "JIT-no" => codes == [Code::CompilerTargetMissing],
        refused => {
            let wanted = refused.split('+').map(|part| match part {
                "no-cuda" => has(Code::CudaTooNew),
                "no-glibc" => has(Code::GlibcTooNew) || has(Code::GlibcxxTooNew),
                "no-arch" => has(Code::NoKernelImage),
                other => panic!("{other}"),
            });
            let mut wanted: Vec<bool> = wanted.collect();
            // A CPU build may be refused as such beside its glibc.
            let extra = usize::from(has(Code::NoGpuCode))
                + usize::from(has(Code::CompilerTargetMissing))
                + usize::from(has(Code::GlibcTooNew) && has(Code::GlibcxxTooNew));
            let all = wanted.iter().all(|&found| found);
            wanted.truncate(codes.len());
            all && codes.len() == refused.split('+').count() + extra
        }
    }
}
