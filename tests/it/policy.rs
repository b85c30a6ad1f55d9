//! Verdicts: the surveyed wheels, a real driver's answers, reported failures.

use std::collections::BTreeMap;

use jetwheel::policy::{Code, Judgement, NoteCode, Policy, Reason, Verdict, judge, judge_listing};
use jetwheel::wheel::{Compiler, Facts, FatbinRow, Member, MemberKind};
use serde_json::{Value, json};

use crate::support::{data, jetwheel};

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
    serde_json::from_str(&fs_err::read_to_string(data(name)).unwrap()).unwrap()
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
        project: Some(name.parse().unwrap()),
        version: Some(rest.split('-').next().unwrap().to_owned()),
        tags: tags.into_iter().map(str::to_owned).collect(),
        requires_python: metadata["requires_python"].as_str().map(str::to_owned),
        requires_dist: strings(&metadata["requires_dist"]),
        members,
        compilers,
        ..Facts::blank(
            filename.to_owned(),
            survey["sha256"].as_str().unwrap().parse().unwrap(),
            survey["size"].as_u64().unwrap(),
        )
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
        numpy_abi: None,
        cxx11_abi: None,
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
        fs_err::read_dir(data("golden")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            surveyed(&serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap(), &compilers)
        })
        .collect()
}

/// The reasons beside tags and `Requires-Python`, which the reference verdicts do not look at.
pub(crate) fn of_contents(judgement: &Judgement) -> Vec<Code> {
    let tags = [Code::PythonTag, Code::PlatformTag, Code::RequiresPython];
    judgement.reasons.iter().map(|reason| reason.code).filter(|code| !tags.contains(code)).collect()
}

/// Expected values: `oracle/rule_reference.py` of the survey, over the same facts.
#[test]
fn judges_the_surveyed_wheels_as_the_reference_does() {
    // The reference judges each wheel for itself.
    let policy = Policy::with_site(&[("rules.toml".to_owned(), "auxiliary = []\n".to_owned())]).unwrap();
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

/// NVSHMEM without code for Thor, which torch pins: it is listed, and its note says what it lacks.
#[test]
fn an_auxiliary_project_does_not_make_its_dependants_uninstallable() {
    let policy = Policy::builtin();
    let facts =
        survey().into_iter().find(|facts| facts.file.starts_with("nvidia_nvshmem_cu13-3.4.5")).unwrap();
    let judgement = judge(&facts, policy.device("thor-jp7.0").unwrap(), &policy);
    assert_eq!((judgement.verdict, judgement.reasons.len()), (Verdict::Admit, 0));
    assert!(judgement.notes.iter().any(|note| note.text.contains("no kernel image")), "{judgement:?}");
    let judgement = judge(&facts, policy.device("orin-jp6.2").unwrap(), &policy);
    assert_eq!(judgement.verdict, Verdict::Refuse, "its CUDA is too new as well");
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

/// The facts of a file that is one image, or one fatbinary.
fn loose(name: &str, kind: MemberKind, images: &[&str]) -> Facts {
    let images: Vec<_> = images.iter().map(|image| image.parse().unwrap()).collect();
    let row = FatbinRow { section: None, images, count: 1 };
    let mut member = member(&json!({"path": name}));
    member.kind = kind;
    member.fatbins = vec![row];
    let mut facts = named(name);
    facts.project = None;
    facts.version = None;
    facts.tags = Vec::new();
    facts.members = vec![member];
    facts
}

/// The facts of an empty wheel of that name.
fn named(filename: &str) -> Facts {
    let parsed = filename.parse::<jetwheel::wheel::WheelFilename>().ok();
    Facts {
        project: parsed.as_ref().map(|name| name.project.clone()),
        version: parsed.as_ref().map(|name| name.version_text().to_owned()),
        tags: parsed.iter().flat_map(jetwheel::wheel::WheelFilename::tags).collect(),
        ..Facts::blank(filename.to_owned(), "0".repeat(64).parse().unwrap(), 1)
    }
}

/// The file that a line of the driver's record names, as facts.
fn driver_image(name: &str) -> Facts {
    let stem = name.strip_prefix("img/").unwrap();
    if let Some(isa) = stem.strip_prefix("ptxisa_").and_then(|rest| rest.strip_suffix(".ptx")) {
        return loose(stem, MemberKind::Ptx, &[&format!("compute_75 ptx{isa}")]);
    }
    if let Some(mix) = stem.strip_prefix("mix_").and_then(|rest| rest.strip_suffix(".fatbin")) {
        let images: Vec<String> = mix
            .split('_')
            .map(|part| match part.strip_prefix('p') {
                Some(ptx) => format!("compute_{ptx} ptx9.0"),
                None => format!("sm_{part}"),
            })
            .collect();
        let images: Vec<&str> = images.iter().map(String::as_str).collect();
        return loose(stem, MemberKind::Fatbin, &images);
    }
    if let Some(target) = stem.strip_prefix("c_").and_then(|rest| rest.strip_suffix(".ptx")) {
        return loose(stem, MemberKind::Ptx, &[&format!("compute_{target} ptx9.0")]);
    }
    loose(stem, MemberKind::Cubin, &[stem.strip_suffix(".cubin").unwrap()])
}

/// Lines of the driver's record, by the section that begins with `--`; the first has no name.
fn driver_lines() -> Vec<(String, String, String)> {
    let text = fs_err::read_to_string(data("driver-cc90-cuda13.0.txt")).unwrap();
    let mut section = String::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("-- with ") {
            name.clone_into(&mut section);
        } else if let Some((image, answer)) =
            line.split_once(' ').filter(|(image, _)| image.starts_with("img/"))
        {
            lines.push((section.clone(), image.to_owned(), answer.to_owned()));
        }
    }
    lines
}

/// Expected values: what a driver of CUDA 13.0 answered on a GPU of compute capability 9.0.
#[test]
fn agrees_with_a_driver_on_every_image() {
    let policy = Policy::builtin();
    let device = policy.device("gh200-cuda13.0").unwrap();
    let lines: Vec<_> = driver_lines().into_iter().filter(|(section, ..)| section.is_empty()).collect();
    assert_eq!(lines.len(), 52);
    for (_, image, answer) in lines {
        let judgement = judge(&driver_image(&image), device, &policy);
        let first = judgement.reasons.first().map(|reason| reason.code);
        let expected = match answer.as_str() {
            "CUDA_SUCCESS" => None,
            // PTX for a newer chip is no valid PTX to this driver.
            "CUDA_ERROR_NO_BINARY_FOR_GPU" | "CUDA_ERROR_INVALID_PTX" => Some(Code::NoKernelImage),
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" => Some(Code::PtxTooNew),
            other => panic!("{image}: {other}"),
        };
        assert_eq!(first, expected, "{image}: {answer}");
    }
}

/// The other two sections of the record were made under variables that change what the driver tries. Without PTX JIT, PTX
/// files still load, as they are handed over as such. With forced PTX JIT, a fatbinary without PTX does not load: that is the
/// variable's doing, no property of the image, and the one line on which the rule does not speak.
#[test]
fn speaks_of_drivers_without_forcing_variables() {
    let policy = Policy::builtin();
    let device = policy.device("gh200-cuda13.0").unwrap();
    let mut differ = Vec::new();
    for (section, image, answer) in driver_lines() {
        let runs = judge(&driver_image(&image), device, &policy).reasons.is_empty();
        if runs != (answer == "CUDA_SUCCESS") {
            differ.push(format!("{section} {image}"));
        }
    }
    assert_eq!(differ, ["CUDA_FORCE_PTX_JIT=1 img/mix_80_90a.fatbin"]);
}

/// The policy of a reported case, with its device `case`, through the files that a site would write.
pub(crate) fn policy_of(case: &Value) -> Policy {
    let facts = &case["device_facts"];
    let quoted = |value: &Value| value.to_string();
    let sm = facts["sm"].as_str().unwrap().strip_prefix("sm_").unwrap();
    let integrated = ["53", "62", "72", "87", "110"].contains(&sm);
    let stack = match (facts["cuda_flavour"].as_str().unwrap(), sm) {
        ("l4t", _) => "tegra-nvgpu",
        ("sbsa", "87") => "sbsa-nvgpu",
        _ => "sbsa-openrm",
    };
    let (major, minor) = sm.split_at(sm.len() - 1);
    let devices = format!(
        "[[device]]\nid = \"case\"\ncompute_capability = \"{major}.{minor}\"\nintegrated = {integrated}\n\
         stack = \"{stack}\"\ndriver_cuda = {}\nptx_isa = {}\nglibc = {}\nglibcxx = {}\npython = {}\nsonames = {}\n",
        quoted(&facts["driver_cuda"]),
        quoted(&facts["ptx_isa_max"]),
        quoted(&facts["glibc"]),
        quoted(&facts["glibcxx"]),
        quoted(&case["python"]),
        quoted(&facts["sonames"]),
    );
    let rules = format!(
        "require_gpu = {}\ntegra_same_major = {}\ncompilers = \"{}\"\n",
        quoted(&case["policy"]["require_cuda"]),
        quoted(&case["policy"]["tegra_same_major"]),
        if case["policy"]["toolchain"] == "warn" { "warn" } else { "refuse" },
    );
    let advisories = case["advisories"].as_array().unwrap().iter().map(|row| {
        let capabilities: Vec<String> = strings(&row["sm"])
            .iter()
            .map(|sm| {
                let sm = sm.strip_prefix("sm_").unwrap();
                format!("{}.{}", &sm[..sm.len() - 1], &sm[sm.len() - 1..])
            })
            .collect();
        format!(
            "[[advisory]]\nid = \"case\"\nproject = {}\nversions = {}\ncompute_capability = {capabilities:?}\n\
             action = \"{}\"\ntext = {}\n",
            quoted(&row["project"]),
            quoted(&row["versions"]),
            if row["effect"] == "deny" { "refuse" } else { "warn" },
            quoted(&row["text"]),
        )
    });
    let files =
        [("devices.toml", devices), ("rules.toml", rules), ("advisories/case.toml", advisories.collect())]
            .map(|(name, text)| (name.to_owned(), text));
    Policy::with_site(&files).unwrap()
}

/// A candidate of a reported case, as facts: all its images in each fatbinary of one library.
pub(crate) fn candidate(row: &Value) -> Facts {
    let mut facts = named(row["filename"].as_str().unwrap());
    let stated = &row["facts"];
    let text = |key: &str| stated[key].as_str().map(str::to_owned);
    facts.requires_dist = strings(&stated["requires_dist"]);
    let ptx = strings(&stated["ptx"]).into_iter().map(|image| image.replace('/', " ptx"));
    let images: Vec<_> =
        strings(&stated["sass"]).into_iter().chain(ptx).map(|image| image.parse().unwrap()).collect();
    let mut library = member(&json!({"path": "lib/_C.so", "machine": "AArch64"}));
    library.needed = strings(&stated["needed"]);
    library.glibc = text("glibc");
    library.glibcxx = text("glibcxx");
    if !images.is_empty() {
        library.registered_fatbins = 10;
        library.fatbins = vec![FatbinRow { section: Some(".nv_fatbin".to_owned()), images, count: 10 }];
    }
    facts.members = vec![library];
    let targets = strings(&stated["ptxas_targets"]);
    if !targets.is_empty() {
        let targets: Vec<_> = targets.iter().map(|target| target.replace("sm_", "compute_")).collect();
        facts.compilers =
            vec![serde_json::from_value(json!({"path": "bin/ptxas", "targets": targets})).unwrap()];
    }
    facts
}

/// Expected values: the reports that the cases name. Codes that need other wheels are the resolver's part.
#[test]
fn judges_the_reported_failures() {
    let mut judged = 0;
    for case in read("device-cases.json").as_array().unwrap() {
        let policy = policy_of(case);
        let device = policy.device("case").unwrap();
        for row in case["candidates"].as_array().unwrap() {
            let file = row["filename"].as_str().unwrap();
            let key = row["key"].as_str().unwrap_or(file);
            let judgement = judge(&candidate(row), device, &policy);
            let first = judgement.reasons.first().map(|reason| reason.code);
            let expected = match case["expected"]["refuse"][key].as_str() {
                None | Some("PAIR_TORCH_MISMATCH" | "PAIR_ABI_MISMATCH" | "NUMPY_ABI" | "SPEC_CONFLICT") => {
                    None
                }
                Some("NO_GPU_CODE") => Some(Code::NoGpuCode),
                Some("SASS_ARCH_MISSING") => Some(Code::NoKernelImage),
                Some("PTX_TOO_NEW") => Some(Code::PtxTooNew),
                Some("GLIBC_TOO_NEW") => Some(Code::GlibcTooNew),
                Some("GLIBCXX_TOO_NEW") => Some(Code::GlibcxxTooNew),
                Some("DRIVER_TOO_OLD") => Some(Code::CudaTooNew),
                Some("TAG_INVALID" | "TAG_PYTHON") => Some(Code::PythonTag),
                Some("TAG_PLATFORM") => Some(Code::PlatformTag),
                Some("TOOLCHAIN_ARCH_UNKNOWN") => Some(Code::CompilerTargetMissing),
                Some("SONAME_MISSING") => Some(Code::SonameMissing),
                Some("ADVISORY") => Some(Code::Advisory),
                Some(other) => panic!("{other}"),
            };
            assert_eq!(first, expected, "{} {key}: {judgement:?}", case["id"]);
            let notes: Vec<_> = judgement.notes.iter().map(|note| note.code).collect();
            let same_major = case["expected"]["warn"][key] == "SAME_MAJOR_ONLY";
            assert_eq!(notes.contains(&NoteCode::SameMajorOnly), same_major, "{} {key}", case["id"]);
            for word in strings(&case["expected"]["remedy"][key]) {
                let said = |reason: &Reason| reason.text.contains(&word) || reason.remedy.contains(&word);
                assert!(judgement.reasons.iter().any(said), "{} {key}: {word}", case["id"]);
            }
            judged += 1;
        }
    }
    assert_eq!(judged, 34);
}

/// A wheel of many small extension modules, none of which holds a twentieth of the fatbinaries: all of them decide.
#[test]
fn small_modules_decide_together() {
    let policy = Policy::builtin();
    let device = policy.device("orin-jp6.2").unwrap();
    let mut facts = named("demo-1.0-cp310-cp310-linux_aarch64.whl");
    let module = |number: u32, image: &str| {
        let mut module = member(&json!({"path": format!("demo/m{number}.so"), "machine": "AArch64"}));
        module.registered_fatbins = 1;
        let images = vec![image.parse().unwrap()];
        module.fatbins = vec![FatbinRow { section: Some(".nv_fatbin".to_owned()), images, count: 1 }];
        module
    };
    facts.members = (0..40).map(|number| module(number, "sm_87")).collect();
    assert_eq!(judge(&facts, device, &policy).verdict, Verdict::Admit);
    facts.members[7] = module(7, "sm_90");
    let judgement = judge(&facts, device, &policy);
    assert_eq!(
        (judgement.verdict, &judgement.reasons[0].found[..]),
        (Verdict::Partial, &["demo/m7.so".to_owned()][..])
    );
    facts.members = (0..40).map(|number| module(number, "sm_90")).collect();
    assert_eq!(of_contents(&judge(&facts, device, &policy)), [Code::NoKernelImage]);
}

/// Of variants, those that the driver can take are named, and no others: bitsandbytes, for Xavier.
#[test]
fn a_refusal_names_images_of_usable_variants_alone() {
    let policy = Policy::builtin();
    let wheel = survey().into_iter().find(|facts| facts.file.starts_with("bitsandbytes")).unwrap();
    let judgement = judge(&wheel, policy.device("xavier-jp5.1.2").unwrap(), &policy);
    let reason = judgement.reasons.iter().find(|reason| reason.code == Code::NoKernelImage).unwrap();
    assert!(reason.member.as_ref().unwrap().ends_with("_cuda118.so"), "{reason:?}");
    assert!(!reason.found.iter().any(|image| image == "sm_100" || image == "sm_120"), "{reason:?}");
}

#[test]
fn an_unfit_python_does_not_hide_the_other_reasons() {
    let policy = Policy::builtin();
    let torch = survey().into_iter().find(|facts| facts.file.starts_with("torch-2.11.0")).unwrap();
    let judgement = judge(&torch, policy.device("orin-jp6.2").unwrap(), &policy);
    let codes: Vec<_> = judgement.reasons.iter().map(|reason| reason.code).collect();
    assert_eq!(codes, [Code::PythonTag, Code::CudaTooNew, Code::NoKernelImage]);
    assert!(judgement.reasons.iter().all(|reason| !reason.text.is_empty() && !reason.remedy.is_empty()));
    assert!(judgement.reasons[2].remedy.contains("orin-jp7.2"), "{judgement:?}");
}

#[test]
fn tells_of_a_page_what_it_can() {
    let policy = Policy::builtin();
    let codes = |file: &str, requires: Option<&str>, id: &str| -> Vec<Code> {
        let reasons = judge_listing(&file.parse().unwrap(), requires, policy.device(id).unwrap(), &policy);
        reasons.iter().map(|reason| reason.code).collect()
    };
    let torch = "torch-2.9.0-cp310-cp310-manylinux_2_28_aarch64.whl";
    assert_eq!(codes(torch, Some(">=3.10,!=3.14.1"), "orin-jp6.2"), []);
    assert_eq!(codes(torch, Some(">=3.10.2"), "orin-jp6.2"), []);
    assert_eq!(codes(torch, Some(">=3.11"), "orin-jp6.2"), [Code::RequiresPython]);
    assert_eq!(codes(torch, None, "xavier-jp5.1.2"), [Code::PythonTag]);
    assert_eq!(codes(torch, None, "nano-jp4.6.1"), [Code::PythonTag, Code::PlatformTag]);
    assert_eq!(codes("a-1-py3-none-any.whl", Some("not a specifier"), "tx1-jp4.6.1"), []);
}

/// A list of 1,000 wheels is judged at once when a page is made. What counts is the processor's time, whatever else the machine
/// does; the limit is some twenty times what a build without optimisation takes. The figure of a release build is in `docs/`.
#[test]
fn judges_a_page_of_wheels_quickly() {
    let policy = Policy::builtin();
    let survey = survey();
    let device = policy.device("thor-jp7.0").unwrap();
    let start = processor_ms();
    let rounds = 20;
    for _ in 0..rounds {
        for facts in &survey {
            std::hint::black_box(judge(facts, device, &policy));
        }
    }
    let took = processor_ms() - start;
    assert!(took < 2 * rounds * survey.len() as u64, "{took} ms for {rounds} times {} wheels", survey.len());
}

/// What this thread has had of a processor, in milliseconds: fields 14 and 15 of `/proc/thread-self/stat`, in hundredths of a
/// second (`proc(5)`).
fn processor_ms() -> u64 {
    let stat = fs_err::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    ticks.sum::<u64>() * 10
}

#[test]
fn lists_the_profiles_and_advisories() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = jetwheel(folder.path()).args(arguments).output().unwrap();
        (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
            output.status.code(),
        )
    };
    let (table, _, _) = run(&["devices"]);
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    for (_, id) in DEVICES {
        assert!(table.lines().any(|line| line.starts_with(&format!("{id} "))), "{id}\n{table}");
    }
    let (one, _, _) = run(&["devices", "orin-jp6.2"]);
    assert!(one.contains("tegra-nvgpu") && one.lines().all(|line| line.chars().count() <= 100), "{one}");
    let (json, _, _) = run(&["devices", "tx1-jp4.6.6", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["id"], "nano-jp4.6.6");
    let (_, error, code) = run(&["devices", "orin-jp6.9"]);
    assert!(error.contains("orin-jp6.2") && code == Some(2), "{error}");
    let (all, _, _) = run(&["advisories", "--device", "thor-jp7.0"]);
    assert!(all.contains("nvidia-cublas ") && all.lines().all(|line| line.chars().count() <= 100), "{all}");
    let (none, _, _) = run(&["advisories", "--device", "orin-jp6.2"]);
    assert_eq!(none, "no advisory concerns this device\n");
}
