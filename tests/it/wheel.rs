//! What inspecting yields: file names and tags against `packaging`, wheels against the survey, hostile zips.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use jetwheel::digest::Sha256;
use jetwheel::wheel::{self, Error, Facts, InspectOptions, Inspection, SupportedTags, WheelFilename};
use proptest::prelude::*;
use serde_json::Value;

use crate::support::{data, jetwheel, make_twins, make_wheels};

fn json(path: &str) -> Value {
    serde_json::from_str(&fs_err::read_to_string(data(path)).unwrap()).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Recorded by `tests/support/record_packaging.py`.
#[test]
fn file_names_are_read_as_packaging_reads_them() {
    for row in json("packaging.json")["names"].as_array().unwrap() {
        let file = row["file"].as_str().unwrap();
        let name = match (file.parse::<WheelFilename>(), row.get("error")) {
            (Ok(name), None) => name,
            (Err(error), Some(_)) => {
                assert!(error.to_string().starts_with(file), "{error}");
                continue;
            }
            (found, error) => panic!("{file}: {found:?}, packaging: {error:?}"),
        };
        assert_eq!(name.to_string(), file);
        assert_eq!(name.project.as_str(), row["project"], "{file}");
        assert_eq!(name.version.to_string(), row["version"], "{file}");
        match row["build"].as_array().unwrap().as_slice() {
            [] => assert_eq!(name.build, None, "{file}"),
            [number, rest] => {
                let build = Some((number.as_u64().unwrap(), rest.as_str().unwrap().to_owned()));
                assert_eq!(name.build, build, "{file}");
            }
            other => panic!("{other:?}"),
        }
        let tags: BTreeSet<String> = name.tags().collect();
        assert_eq!(tags, texts(&row["tags"]).into_iter().collect(), "{file}");
    }
}

/// Recorded by `tests/support/record_packaging.py`.
#[test]
fn tags_are_supported_in_the_order_of_packaging() {
    for row in json("packaging.json")["supported"].as_array().unwrap() {
        let number = |index: usize| u16::try_from(row["python"][index].as_u64().unwrap()).unwrap();
        let python = (number(0), number(1));
        let platforms = texts(&row["platforms"]);
        let expected = texts(&row["tags"]);
        assert_eq!(SupportedTags::new(python, &platforms).iter().collect::<Vec<_>>(), expected);

        // Without the old name in the list, it stands behind the new one all the same.
        let modern: Vec<String> =
            platforms.into_iter().filter(|platform| !platform.starts_with("manylinux2014")).collect();
        let supported = SupportedTags::new(python, &modern);
        assert_eq!(supported.iter().collect::<Vec<_>>(), expected);
        for (place, tag) in expected.iter().enumerate() {
            let name: WheelFilename = format!("demo-1.0-{tag}.whl").parse().unwrap();
            assert_eq!(supported.priority(&name), Some(u32::try_from(place).unwrap()), "{tag}");
            assert!(supported.mismatches(&name).is_empty());
        }
    }
}

fn inspect(file: &str, bytes: &[u8]) -> Result<Inspection, Error> {
    wheel::inspect_wheel_source(file, &bytes, &InspectOptions::default())
}

/// Twins of all surveyed wheels, compared with the survey by `tests/support/compare_golden.py`.
#[test]
fn twins_come_out_as_surveyed() {
    let dir = tempfile::tempdir().unwrap();
    let mut names: Vec<String> = fs_err::read_dir(data("golden"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".json", ""))
        .collect();
    names.sort();
    assert_eq!(names.len(), 36);
    make_twins(&names.iter().map(String::as_str).collect::<Vec<_>>(), dir.path());
    let mut files = Vec::new();
    for name in &names {
        let path = dir.path().join(format!("{name}.whl"));
        files.push(wheel::inspect_wheel(&path, &InspectOptions::default()).unwrap().facts);
    }
    let answer = dir.path().join("answer.json");
    fs_err::write(&answer, serde_json::json!({ "files": files }).to_string()).unwrap();
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/compare_golden.py"))
        .arg("--twin")
        .arg(&answer)
        .output()
        .expect("python3 is needed: install it, or run ./ci.sh test, which does");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The facts of the real wheels, as `inspect` gave them after `compare_golden.py` had found them equal to the survey.
#[test]
fn kept_facts_are_those_of_the_survey() {
    let mut count = 0;
    for entry in fs_err::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("index/facts")).unwrap() {
        let path = entry.unwrap().path();
        let facts: Facts = serde_json::from_str(&fs_err::read_to_string(&path).unwrap()).unwrap();
        let survey = json(&format!("golden/{}", path.file_name().unwrap().to_str().unwrap()));
        assert_eq!(facts.sha256.to_string(), survey["sha256"], "{}", facts.file);
        assert_eq!(facts.damage, []);
        assert_eq!(facts.inspector, wheel::INSPECTOR, "{}: to be inspected anew", facts.file);
        count += 1;
    }
    assert!(count >= 20, "{count}");
}

/// One member of a zip archive, with all that a header can lie about.
#[derive(Clone)]
struct Raw {
    name: String,
    /// Name in the header before the data, where it differs.
    local_name: Option<String>,
    data: Vec<u8>,
    method: u16,
    flags: u16,
    crc: Option<u32>,
    size: Option<u32>,
    /// Number of the member whose header is named as this one's.
    at: Option<usize>,
}

fn raw(name: &str, data: impl Into<Vec<u8>>) -> Raw {
    Raw {
        name: name.to_owned(),
        local_name: None,
        data: data.into(),
        method: 0,
        flags: 0,
        crc: None,
        size: None,
        at: None,
    }
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A zip archive with those members (APPNOTE 4.3.7, 4.3.12, 4.3.16).
fn zip(members: &[Raw]) -> Vec<u8> {
    let (mut out, mut directory, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for member in members {
        let mut crc = flate2::Crc::new();
        crc.update(&member.data);
        let crc = member.crc.unwrap_or(crc.sum());
        let stored = if member.method == 8 { deflate(&member.data) } else { member.data.clone() };
        let size = member.size.unwrap_or(u32::try_from(member.data.len()).unwrap());
        let place = u32::try_from(out.len()).unwrap();
        places.push(place);
        let common = |name: &str| {
            let mut header = Vec::new();
            for field in [member.flags, member.method, 0, 33] {
                header.extend(field.to_le_bytes());
            }
            for field in [crc, u32::try_from(stored.len()).unwrap(), size] {
                header.extend(field.to_le_bytes());
            }
            header.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            header.extend([0, 0]);
            header
        };
        let local = member.local_name.as_ref().unwrap_or(&member.name);
        out.extend(b"PK\x03\x04\x14\0");
        out.extend(common(local));
        out.extend(local.as_bytes());
        out.extend(&stored);
        directory.extend(b"PK\x01\x02\x14\x03\x14\0");
        directory.extend(common(&member.name));
        directory.extend([0; 6]);
        directory.extend((0o100_644_u32 << 16).to_le_bytes());
        directory.extend(member.at.map_or(place, |index| places[index]).to_le_bytes());
        directory.extend(member.name.as_bytes());
    }
    let count = u16::try_from(members.len()).unwrap_or(u16::MAX).to_le_bytes();
    let at = u32::try_from(out.len()).unwrap().to_le_bytes();
    let length = u32::try_from(directory.len()).unwrap().to_le_bytes();
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    for part in [&count[..], &count, &length, &at, &[0, 0]] {
        out.extend(part);
    }
    out
}

const FILE: &str = "demo-1.0-py3-none-any.whl";

fn record_line(member: &Raw) -> String {
    let digest = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::of(&member.data).0);
    format!("{},sha256={digest},{}\n", member.name, member.data.len())
}

/// A whole wheel around some members.
fn members(extra: &[Raw]) -> Vec<Raw> {
    let mut members = vec![
        raw("demo/__init__.py", "x = 1\n"),
        raw("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"),
        raw("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"),
    ];
    members.extend_from_slice(extra);
    let record: String = members.iter().map(record_line).collect();
    members.push(raw("demo-1.0.dist-info/RECORD", record + "demo-1.0.dist-info/RECORD,,\n"));
    members
}

/// Damage as lines: code, member, text.
fn damage_of(file: &str, members: &[Raw]) -> String {
    let facts = inspect(file, &zip(members)).unwrap().facts;
    let line = |damage: &wheel::Damage| {
        let code = serde_json::to_value(damage.code).unwrap();
        format!("{} {} {}\n", code.as_str().unwrap(), damage.member.as_deref().unwrap_or("-"), damage.text)
    };
    facts.damage.iter().map(line).collect()
}

fn edit(members: &mut [Raw], name: &str, edit: impl FnOnce(&mut Raw)) {
    edit(members.iter_mut().find(|member| member.name.ends_with(name)).unwrap());
}

#[test]
fn a_whole_wheel_has_no_damage() {
    let mut deflated = raw("demo/data.bin", vec![7; 300_000]);
    deflated.method = 8;
    let inspection = inspect(FILE, &zip(&members(&[deflated]))).unwrap();
    assert_eq!(inspection.facts.damage, []);
    assert_eq!(inspection.facts.project.unwrap().as_str(), "demo");
    assert_eq!(inspection.facts.version.unwrap(), "1.0");
    assert_eq!(inspection.facts.tags, ["py3-none-any"]);
    assert_eq!(inspection.facts.metadata_sha256, Some(Sha256::of(&inspection.metadata)));
}

/// Two threads share the work on a member that outweighs the others.
#[test]
fn a_large_member_is_read_by_two_threads() {
    let data: Vec<u8> =
        (0..9_000_000_u32).flat_map(|index| (index.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    let mut large = raw("demo/data.bin", data);
    large.method = 8;
    let options = InspectOptions { threads: std::num::NonZeroUsize::new(2), ..InspectOptions::default() };
    let bytes = zip(&members(&[large.clone()]));
    let facts = wheel::inspect_wheel_source(FILE, &&bytes[..], &options).unwrap().facts;
    assert_eq!(facts.damage, []);
    assert_eq!(facts.sha256, Sha256::of(&bytes));

    large.crc = Some(7);
    let bytes = zip(&members(&[large]));
    let facts = wheel::inspect_wheel_source(FILE, &&bytes[..], &options).unwrap().facts;
    assert_eq!(facts.damage.len(), 1);
}

/// Python's `zipfile` writes the forms: stored or deflated, sizes in a zip64 field that the directory lacks, and sizes
/// behind the data, as in a wheel that was written to a pipe. The sizes lie about those of buffers, and the largest is
/// read by two threads.
#[test]
fn all_forms_of_zip_are_read() {
    let script = "\
import base64, hashlib, random, sys, zipfile
class Pipe:
    def __init__(self, f): self.f = f
    def write(self, b): return self.f.write(b)
    def flush(self): self.f.flush()
for form in sys.argv[2:]:
    method, zip64, pipe, size = (int(x) for x in form.split('-'))
    members = {'demo/data.bin': random.Random(size).randbytes(min(size, 1 << 20)) * max(1, size >> 20),
        'demo-1.0.dist-info/METADATA': b'Metadata-Version: 2.1\\nName: demo\\nVersion: 1.0\\n',
        'demo-1.0.dist-info/WHEEL': b'Wheel-Version: 1.0\\nTag: py3-none-any\\n'}
    record = ''.join('%s,sha256=%s,%d\\n' % (name, base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('='), len(data))
        for name, data in members.items())
    members['demo-1.0.dist-info/RECORD'] = (record + 'demo-1.0.dist-info/RECORD,,\\n').encode()
    with open(sys.argv[1] + '/' + form, 'wb') as f, zipfile.ZipFile(Pipe(f) if pipe else f, 'w', method, compresslevel=1) as out:
        for name, data in members.items():
            with out.open(name, 'w', force_zip64=bool(zip64)) as m: m.write(data)
";
    let dir = tempfile::tempdir().unwrap();
    let mut forms = Vec::new();
    for (method, zip64, pipe) in
        [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (8, 0, 0), (8, 0, 1), (8, 1, 0), (8, 1, 1)]
    {
        for size in [0, 1, 1000, (128 << 10) - 1, 128 << 10, (128 << 10) + 1] {
            forms.push(format!("{method}-{zip64}-{pipe}-{size}"));
        }
    }
    forms.extend(["0-1-0", "0-1-1", "8-0-1"].map(|form| format!("{form}-{}", 33 << 20)));
    let status = Command::new("python3").args(["-c", script]).arg(dir.path()).args(&forms).status().unwrap();
    assert!(status.success());
    let options = InspectOptions { threads: std::num::NonZeroUsize::new(2), ..InspectOptions::default() };
    for form in forms {
        let inspection = wheel::inspect_wheel_as(FILE, &dir.path().join(&form), &options).unwrap();
        assert_eq!(inspection.facts.damage, [], "{form}");
        assert_eq!(inspection.facts.version.as_deref(), Some("1.0"), "{form}");
    }
}

#[test]
fn what_is_no_zip_archive_is_an_error() {
    let whole = zip(&members(&[]));
    let message = |bytes: &[u8]| {
        let error = inspect(FILE, bytes).unwrap_err();
        format!("{error}: {}", std::error::Error::source(&error).map_or(String::new(), ToString::to_string))
    };
    for cut in [0, 1, 21, whole.len() / 2, whole.len() - 1] {
        assert!(message(&whole[..cut]).starts_with("demo-1.0-py3-none-any.whl: not a whole zip archive"));
    }
    assert!(message(b"<html>not found</html>").contains("not a whole zip archive"));
    assert!(inspect("demo.whl", &whole).unwrap_err().to_string().contains("not a wheel's"));
}

#[test]
fn record_is_checked_against_the_bytes() {
    let mut wrong = members(&[raw("demo/a.py", "a\n"), raw("demo/b.py", "b\n")]);
    edit(&mut wrong, "a.py", |member| member.data = b"A\n".to_vec());
    edit(&mut wrong, "b.py", |member| member.data = b"bb\n".to_vec());
    wrong.push(raw("demo/unlisted.py", ""));
    edit(&mut wrong, "RECORD", |member| {
        member.data.extend(b"demo/absent.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n");
        member.data.extend(b"demo/__pycache__/a.pyc,,\n");
        member.data.extend(b"demo/__init__.py,md5=kAFQmDzST7DWlj99KOF_cg,6\n");
    });
    insta::assert_snapshot!(damage_of(FILE, &wrong), @r#"
    hash-mismatch demo/absent.py line 7 of RECORD lists it, but the wheel has no such member
    hash-mismatch demo/__init__.py line 9 of RECORD states "md5=kAFQmDzST7DWlj99KOF_cg", expected sha256= or stronger
    hash-mismatch demo/unlisted.py RECORD does not list it
    hash-mismatch demo/a.py sha256=BvlhuAK8Ru4WhVXwZtKPTw6a_fP4gXTB7m-d4AT8MKA, expected sha256=h0KPxSKAPTEGXnvOPPA_5HUJZjHl4Hu9eg_eYMTPJcc as RECORD states
    hash-mismatch demo/b.py sha256=qBwxrGJiC5IVoU_wBUTLB6VbdlWU86s7535wkjrifPE, expected sha256=AmOCmYm2_ZVPcrqvL8ZLwuLwHWktTecphuqAj26ZgT8 as RECORD states
    hash-mismatch demo/b.py 3 bytes, expected 2 as RECORD states
    "#);
}

#[test]
fn metadata_is_checked_against_the_file_name() {
    let mut wrong = members(&[]);
    edit(&mut wrong, "METADATA", |member| member.data = b"Name: other\nVersion: 1.1\n".to_vec());
    edit(&mut wrong, "WHEEL", |member| member.data = b"Tag: cp312-cp312-linux_aarch64\n".to_vec());
    edit(&mut wrong, "RECORD", |member| member.data = vec![]);
    let text = damage_of(FILE, &wrong);
    insta::assert_snapshot!(text.lines().take(3).collect::<Vec<_>>().join("\n"), @r#"
    metadata-mismatch demo-1.0.dist-info/METADATA Name is "other", expected demo as in the file name
    metadata-mismatch demo-1.0.dist-info/METADATA Version is "1.1", expected 1.0 as in the file name
    metadata-mismatch demo-1.0.dist-info/WHEEL the tags are cp312-cp312-linux_aarch64, but the file name claims py3-none
    "#);

    // Spelled otherwise, but the same by PEP 440 and PEP 503.
    let mut same = members(&[]);
    edit(&mut same, "METADATA", |member| member.data = b"Name: De.Mo\nVersion: v1.0.0\n".to_vec());
    let same = zip(&same);
    let facts = inspect(FILE, &same).unwrap().facts;
    assert!(
        facts
            .damage
            .iter()
            .all(|damage| damage.code == wheel::DamageCode::HashMismatch || damage.text.contains("Name is")),
        "{:?}",
        facts.damage
    );
}

#[test]
fn platform_tags_may_be_renamed_but_not_to_another_processor() {
    let wheel = |file: &str, tag: &str| {
        let mut members = members(&[]);
        edit(&mut members, "WHEEL", |member| member.data = format!("Tag: {tag}\n").into());
        edit(&mut members, "RECORD", |member| member.data = vec![]);
        let text = damage_of(file, &members);
        text.lines().filter(|line| line.contains("/WHEEL the tags")).collect::<String>()
    };
    assert_eq!(wheel("demo-1.0-cp312-cp312-manylinux2014_aarch64.whl", "cp312-cp312-linux_aarch64"), "");
    assert_eq!(wheel("demo-1.0-py3-none-manylinux2014_aarch64.whl", "py3-none-manylinux2014_sbsa"), "");
    insta::assert_snapshot!(wheel("demo-1.0-cp312-cp312-linux_aarch64.whl", "cp312-cp312-linux_x86_64"), @"metadata-mismatch demo-1.0.dist-info/WHEEL the tags are cp312-cp312-linux_x86_64, but the file name claims linux_aarch64");
}

#[test]
fn members_that_cannot_be_trusted_are_damage() {
    let mut list = vec![
        raw("../evil.py", ""),
        raw("/etc/passwd", ""),
        raw("demo\\a.py", ""),
        raw("C:a.py", ""),
        raw("demo/./__init__.py", ""),
        raw("demo/encrypted.py", "secret"),
        raw("demo/lzma.py", "x"),
        raw("demo/crc.py", "x"),
        raw("demo/longer.py", vec![b'x'; 1000]),
        raw("demo/garbage.py", "x"),
    ];
    list[5].flags = 1;
    list[6].method = 14;
    list[7].crc = Some(7);
    (list[8].method, list[8].size) = (8, Some(10));
    let text = damage_of(FILE, &members(&list));
    insta::assert_snapshot!(text, @r"
    damaged ../evil.py a path with '..', expected one that stays inside the wheel
    damaged /etc/passwd an absolute path, expected one that stays inside the wheel
    damaged demo\a.py a path with a backslash, expected one that stays inside the wheel
    damaged C:a.py a path with a drive letter, expected one that stays inside the wheel
    damaged demo/./__init__.py another member leads to the same path
    damaged demo/encrypted.py it is encrypted, expected it plain
    damaged demo/lzma.py it is compressed by method Lzma, expected it stored (0) or deflated (8)
    hash-mismatch demo\a.py line 6 of RECORD lists it, but the wheel has no such member
    hash-mismatch demo/./__init__.py line 8 of RECORD contradicts an earlier one
    hash-mismatch demo/__init__.py RECORD does not list it
    hash-mismatch demo\a.py RECORD does not list it
    hash-mismatch demo/./__init__.py sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU, expected sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q as RECORD states
    damaged demo/crc.py CRC-32 8cdc1683, expected 00000007 as the zip directory states
    damaged demo/longer.py 1000 bytes, expected 10 as the zip directory states
    ");
}

#[test]
fn a_directory_that_contradicts_itself_is_damage() {
    let mut twice = members(&[]);
    twice.push(raw("demo-1.0.dist-info/METADATA", "Name: demo\nVersion: 6.6\n"));
    let mut renamed = members(&[]);
    renamed[0].local_name = Some("demo/__main__.py".into());
    let mut overlapping = members(&[raw("demo/b.py", "x = 1\n")]);
    overlapping[3].at = Some(0);
    insta::assert_snapshot!(damage_of(FILE, &twice), @r#"
    damaged - the zip directory: duplicate file names in central directory
    metadata-mismatch demo-1.0.dist-info/METADATA Version is "6.6", expected 1.0 as in the file name
    hash-mismatch demo-1.0.dist-info/METADATA sha256=gpTz5_nt9SAP3pwMT34URERyZ911_e9kkS3giZSNoyQ, expected sha256=NKonpgZPlYtBt4GiF_KQ_Qq1-WUeK25Kzas0G3uTwwU as RECORD states
    hash-mismatch demo-1.0.dist-info/METADATA 24 bytes, expected 46 as RECORD states
    "#);
    insta::assert_snapshot!(damage_of(FILE, &renamed), @"damaged - the zip directory: Local file header filename mismatch (does not match central directory)");
    insta::assert_snapshot!(damage_of(FILE, &overlapping), @"damaged - members overlap in the file, expected each byte in one of them");
}

#[test]
fn bombs_are_not_inflated() {
    let mut bomb = raw("demo/zeros.bin", vec![0; 40 << 20]);
    bomb.method = 8;
    let text = damage_of(FILE, &members(&[bomb]));
    assert!(text.starts_with("damaged demo/zeros.bin "), "{text}");
    assert!(text.contains(" bytes inflate to 41943040, expected at most 400 times as many"), "{text}");

    let mut large = members(&[]);
    edit(&mut large, "METADATA", |member| {
        member.data.resize(5 << 20, b' ');
        member.method = 8;
    });
    let text = damage_of(FILE, &large);
    insta::assert_snapshot!(text.lines().next().unwrap(), @"damaged demo-1.0.dist-info/METADATA 5242880 bytes, expected at most 4194304");

    let many: Vec<Raw> = (0..60_001).map(|index| raw(&format!("demo/{index:06}"), "")).collect();
    let mut bytes = zip(&many);
    // More members than 16 bits count: Python's own reader and ours then believe the directory's length.
    let error = inspect(FILE, &bytes).unwrap_err().to_string();
    assert!(error.contains("members, expected at most 60000"), "{error}");
    bytes.truncate(bytes.len() - 1);
    assert!(inspect(FILE, &bytes).is_err());
}

/// As a file of 60 GB of zeros, which takes no space on a disk, this was an allocation of 100 GB, and the end of the process.
#[test]
fn an_end_record_that_claims_many_members_is_not_believed() {
    let (count, entry) = (70_000_u64, 46_u64);
    let size = count * entry;
    let mut bytes = vec![0; 1 << 20];
    let directory = bytes.len() as u64;
    bytes.resize(bytes.len() + usize::try_from(size).unwrap(), 0);
    let record = bytes.len() as u64;
    // APPNOTE 4.3.14, 4.3.15, 4.3.16.
    bytes.extend(b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0");
    bytes.extend([count, count, size, directory].map(u64::to_le_bytes).concat());
    bytes.extend([b"PK\x06\x07\0\0\0\0".as_slice(), &record.to_le_bytes(), b"\x01\0\0\0"].concat());
    bytes.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
    let error = inspect(FILE, &bytes).unwrap_err().to_string();
    assert!(error.ends_with("70000 members, expected at most 60000"), "{error}");
}

#[test]
fn lists_that_are_long_beyond_use_are_not_kept() {
    let mut long = members(&[]);
    edit(&mut long, "RECORD", |member| {
        member.data.extend(format!("\"{}\",sha256=x,1\n", "a".repeat(20 << 20)).bytes());
    });
    insta::assert_snapshot!(damage_of(FILE, &long), @"hash-mismatch demo-1.0.dist-info/RECORD a line of 20971533 bytes, expected at most 262144");

    // 4,000 libraries that need 500 others each.
    let dir = tempfile::tempdir().unwrap();
    let needed: Vec<String> = (0..500).map(|number| format!("lib{number}.so")).collect();
    let library =
        serde_json::json!({ "filename": FILE, "elfs": [{ "path": "demo/a.so", "needed": needed }] });
    make_wheels(&library, dir.path());
    let script = "\
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'a', zipfile.ZIP_DEFLATED, compresslevel=1) as out:
    data = out.read('demo/a.so')
    for i in range(4000): out.writestr('demo/%d.so' % i, data)
";
    let wheel = dir.path().join(FILE);
    assert!(Command::new("python3").args(["-c", script]).arg(&wheel).status().unwrap().success());
    let facts = wheel::inspect_wheel(&wheel, &InspectOptions::default()).unwrap().facts;
    assert_eq!(facts.members, []);
    let said = |damage: &wheel::Damage| damage.text.starts_with("the facts of its members take ");
    assert!(facts.damage.iter().any(said), "{:?}", facts.damage.last());
}

#[test]
fn wheels_without_their_metadata_are_damage() {
    let bare = [raw("demo/__init__.py", "x = 1\n")];
    insta::assert_snapshot!(damage_of(FILE, &bare), @"damaged - no demo-1.0.dist-info folder, expected one");
    let mut renamed = members(&[]);
    for member in &mut renamed {
        member.name = member.name.replace("demo-1.0.dist-info", "other-2.0.dist-info");
    }
    let text = damage_of(FILE, &renamed);
    insta::assert_snapshot!(text.lines().next().unwrap(), @"metadata-mismatch - the metadata folder is other-2.0.dist-info, expected demo-1.0.dist-info");
}

#[test]
fn the_command_shows_files_and_its_exit_code_says_whether_all_is_well() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::create_dir(dir.path().join("wheels")).unwrap();
    let path = |name: &str| dir.path().join("wheels").join(name);
    fs_err::write(path(FILE), zip(&members(&[]))).unwrap();
    fs_err::copy(data("fatbin/cubin/cu130-sm_110f.cubin"), path("kernel.cubin")).unwrap();
    fs_err::write(path("README.txt"), "not shown").unwrap();
    let run = |arguments: &[&str]| {
        let output =
            jetwheel(dir.path()).current_dir(dir.path()).arg("inspect").args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };

    let (code, out, _) = run(&["wheels", "--format", "json"]);
    let answer: Value = serde_json::from_str(&out).unwrap();
    let files = answer["files"].as_array().unwrap();
    assert_eq!(code, 0, "{out}");
    assert_eq!(
        files.iter().map(|file| file["file"].as_str().unwrap()).collect::<Vec<_>>(),
        [FILE, "kernel.cubin"]
    );
    assert_eq!(files[0]["gpu"], "none");
    assert_eq!(files[1]["gpu"], "kernels");
    assert_eq!(files[1]["images"], serde_json::json!({ "sm_110f": 1 }));
    assert_eq!(files[1]["members"][0]["fatbins"][0]["images"], serde_json::json!(["sm_110f"]));

    let (code, out, _) = run(&["wheels"]);
    assert_eq!(code, 0);
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");

    let mut broken = members(&[]);
    broken[0].crc = Some(7);
    fs_err::write(path("broken-1.0-py3-none-any.whl"), zip(&broken)).unwrap();
    assert_eq!(run(&["wheels"]).0, 1);

    fs_err::write(path("cut-1.0-py3-none-any.whl"), &zip(&broken)[..99]).unwrap();
    let (code, out, err) = run(&["wheels", "absent.so"]);
    assert_eq!(code, 3);
    assert!(
        out.contains("kernel.cubin") && err.contains("cut-1.0-py3-none-any.whl") && err.contains("absent.so")
    );

    // What would never open or never end is an error at once; so is what lies beside good files and cannot be read.
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe.whl")).status().unwrap().success());
    for odd in ["pipe.whl", "/dev/zero", "/dev/null"] {
        let (code, _, err) = run(&[odd]);
        assert_eq!(code, 3);
        assert!(err.contains("not a regular file"), "{err}");
    }

    let (code, _, err) = run(&["wheels", "--device", "no-such-device"]);
    assert_eq!(code, 2);
    assert!(err.contains("no-such-device"), "{err}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A flipped byte is damage, an error, or of no meaning; never a panic.
    #[test]
    fn no_flipped_byte_panics(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut deflated = raw("demo/data.bin", (0..9000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
        deflated.method = 8;
        let mut bytes = zip(&members(&[deflated]));
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = inspect(FILE, &bytes);
        bytes.truncate(cut.index(bytes.len()));
        let _ = inspect(FILE, &bytes);
    }

    /// The archive is whole, and what is in its members is not.
    #[test]
    fn no_mutated_member_panics(
        number in 1..5_usize, from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
        junk in prop::collection::vec(any::<u8>(), 0..40), method in prop::sample::select(vec![0_u16, 8]),
    ) {
        let cubin = fs_err::read(data("fatbin/cubin/cu130-sm_110f.cubin")).unwrap();
        let mut members = members(&[raw("demo/kernel.cubin", cubin)]);
        let member = &mut members[number];
        let (from, to) = (from.index(member.data.len()), to.index(member.data.len()));
        member.data.splice(from.min(to)..from.max(to).min(from.min(to) + 64), junk);
        member.method = method;
        let _ = inspect(FILE, &zip(&members)).unwrap();
    }
}
