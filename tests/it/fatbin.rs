//! The scanner against `cuobjdump` and `readelf`, at any chunk size, on damaged input, in flat memory.
//!
//! `tests/data/fatbin/expected.json` holds what `cuobjdump` and the format's reference scanner say of each specimen.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the tests run on 64 bits, on files that they make themselves"
)]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::Command;

use fs_err as fs;
use jetwheel::fatbin::{Compression, ErrorKind, Finish, Format, GpuCode, Scan, Scanner};
use serde_json::{Value, json};

use crate::support::{data, make_twins, make_wheels};

/// Scans bytes in chunks, and once more where the scanner asks for it.
fn scan(name: &str, bytes: &[u8], chunk: usize) -> Scan {
    scan_in(name, bytes, chunk).0
}

/// The same, with the number of bytes that were read again.
fn scan_in(name: &str, bytes: &[u8], chunk: usize) -> (Scan, usize) {
    let mut scanner = Scanner::detailed(name, bytes.len() as u64);
    bytes.chunks(chunk.max(1)).for_each(|chunk| scanner.feed(chunk));
    let mut reread = match scanner.finish() {
        Finish::Done(scan) => return (scan, 0),
        Finish::Reread(reread) => reread,
    };
    let mut again = 0;
    for chunk in bytes.chunks(chunk.max(1)) {
        again += chunk.len();
        if let ControlFlow::Break(()) = reread.feed(chunk) {
            break;
        }
    }
    (reread.finish(), again)
}

fn expected() -> serde_json::Map<String, Value> {
    let text = fs::read(data("fatbin/expected.json")).unwrap();
    let Value::Object(mut all) = serde_json::from_slice(&text).unwrap() else { panic!("not an object") };
    let Some(Value::Object(files)) = all.remove("files") else { panic!("no files") };
    files
}

fn specimen(name: &str) -> Vec<u8> {
    fs::read(data("fatbin").join(name)).unwrap()
}

/// Kind, as `expected.json` names it, and name of the target.
fn kind_and_arch(code: &GpuCode) -> (String, String) {
    let target = code.target();
    let (kind, prefix) = match code {
        GpuCode::Cubin(_) | GpuCode::Other(0x10, _) => ("elf".to_owned(), "sm_"),
        GpuCode::Ptx(..) => ("ptx".to_owned(), "compute_"),
        GpuCode::RelocatablePtx(..) => ("relptx".to_owned(), "compute_"),
        GpuCode::LtoIr(_) => ("ltoir".to_owned(), "lto_"),
        GpuCode::TileIr(_) => ("tileir".to_owned(), "sm_"),
        GpuCode::Other(kind, _) => (format!("unknown:{kind:#x}"), "sm_"),
    };
    (kind, format!("{prefix}{target}"))
}

/// A scan in the words of `expected.json`.
fn told(scan: &Scan, size: usize) -> Value {
    match &scan.format {
        Format::Ptx(code @ GpuCode::Ptx(_, isa)) => {
            return json!({"ptx": {"arch": kind_and_arch(code).1, "version": isa.to_string()}});
        }
        Format::Cubin(code) => return json!({"cubin": {"arch": kind_and_arch(code).1, "size": size}}),
        _ => {}
    }
    let detail = scan.detail.as_ref().unwrap();
    let fatbins = detail.fatbins.iter().map(|fatbin| {
        let entries = fatbin.entries.iter().map(|entry| {
            let (kind, arch) = kind_and_arch(&entry.code);
            let compressed = entry.compression.map(|compression| match compression {
                Compression::Lz77 => "lz77",
                Compression::Lz4 => "lz4",
                Compression::Lz4Frame => "lz4frame",
                Compression::Zstd => "zstd",
            });
            let version = format!("{}.{}", entry.version.0, entry.version.1);
            let mut told = json!({"kind": kind, "arch": arch, "version": version, "compressed": compressed,
                "stored": entry.stored, "size": entry.size});
            let mut add =
                |key: &str, value: Value| told.as_object_mut().unwrap().insert(key.to_owned(), value);
            if entry.bomb.is_some() {
                add("bomb", json!(true));
            }
            if entry.debug {
                add("debug", json!(true));
            }
            if let Some(identifier) = &entry.identifier {
                add("ident", json!(identifier));
            }
            told
        });
        json!({"offset": fatbin.at, "size": fatbin.size, "section": fatbin.section,
            "entries": entries.collect::<Vec<_>>(), "damaged": fatbin.damaged})
    });
    let cubins = detail.cubins.iter().map(
        |cubin| json!({"offset": cubin.at, "arch": kind_and_arch(&cubin.code).1, "section": cubin.section}),
    );
    // That a file's name promises something else is told beside.
    let errors = scan.damage.iter().filter(|error| !matches!(error.kind, ErrorKind::Name { .. })).count();
    json!({"fatbins": fatbins.collect::<Vec<_>>(), "cubins": cubins.collect::<Vec<_>>(), "errors": errors,
        "ignored": detail.ignored})
}

/// What `expected.json` says, with errors by their number alone: their wording is ours.
fn wanted(scan: &Value) -> Value {
    let mut scan = scan.clone();
    if let Some(errors) = scan.get("errors").map(|errors| errors.as_array().unwrap().len()) {
        scan["errors"] = json!(errors);
    }
    for fatbin in scan.get_mut("fatbins").and_then(Value::as_array_mut).into_iter().flatten() {
        fatbin["damaged"] = json!(fatbin.get("damaged").is_some());
    }
    scan
}

#[test]
fn reads_each_specimen_as_recorded_at_any_chunk_size() {
    let mut seen = 0;
    for (name, record) in expected() {
        if name.starts_with("wheel/") {
            continue;
        }
        let bytes = specimen(&name);
        let file = name.rsplit('/').next().unwrap();
        let whole = scan(file, &bytes, usize::MAX);
        for chunk in [1, 13, 64, 4096, usize::MAX] {
            let scan = scan(file, &bytes, chunk);
            assert_eq!(told(&scan, bytes.len()), wanted(&record["scan"]), "{name} in chunks of {chunk}");
            assert_eq!(scan, whole, "{name} in chunks of {chunk}");
        }
        seen += 1;
    }
    assert_eq!(seen, 96);
}

#[test]
fn comes_to_the_recorded_outcome_on_malformed_specimens() {
    for (name, record) in expected() {
        let Some(outcome) = record.get("outcome").and_then(Value::as_str) else { continue };
        let bytes = specimen(&name);
        let scan = scan(name.rsplit('/').next().unwrap(), &bytes, 64);
        let fatbins = scan.detail.as_ref().unwrap().fatbins.len();
        match outcome.split([',', ':', ' ', ';']).next().unwrap() {
            "accept" => {
                assert!(scan.damage.is_empty() && scan.format == Format::Fatbin && fatbins == 1, "{name}");
            }
            "reject" => assert!(!scan.damage.is_empty() && scan.rows.is_empty(), "{name}: {:?}", scan.damage),
            "keep" | "list" => assert!(scan.damage.len() == 1 && scan.rows.len() == 1, "{name}"),
            "one" => assert!(scan.damage.len() == 1 && fatbins == 1, "{name}"),
            other => panic!("{name}: no such outcome: {other}"),
        }
        for error in &scan.damage {
            let text = error.to_string();
            assert!(text.starts_with("byte 0x") && text.contains("expected"), "{name}: {text}");
        }
    }
}

#[test]
fn lists_the_images_that_cuobjdump_lists() {
    let mut compared = 0;
    for (name, record) in expected() {
        let listing = record["cuobjdump"]["listing"].as_array().cloned().unwrap_or_default();
        if name.starts_with("malformed/") || listing.is_empty() {
            continue;
        }
        let bytes = specimen(&name);
        let scan = scan(&name, &bytes, 4096);
        let detail = scan.detail.unwrap();
        // cuobjdump lists `.nv_fatbin` before `__nv_relfatbin`; archives and loose fatbinaries have no sections.
        let in_order = [Some(".nv_fatbin"), Some("__nv_relfatbin"), None];
        let ours: Vec<Value> = in_order
            .iter()
            .flat_map(|section| {
                detail.fatbins.iter().filter(move |fatbin| fatbin.section.as_deref() == *section)
            })
            .flat_map(|fatbin| &fatbin.entries)
            .map(|entry| {
                let (kind, _) = kind_and_arch(&entry.code);
                let version = format!("{}.{}", entry.version.0, entry.version.1);
                json!([kind, format!("sm_{}", entry.code.target()), version])
            })
            .collect();
        let theirs: Vec<Value> = listing
            .iter()
            .filter(|image| image["kind"] != "concatenated entry")
            .map(|image| {
                let kind = match image["kind"].as_str().unwrap() {
                    "nvvm" => "ltoir",
                    "tile ir" => "tileir",
                    other => other,
                };
                json!([kind, image["arch"], image["version"]])
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
        compared += 1;
    }
    assert!(compared >= 30, "{compared} specimens have a listing");
}

#[test]
fn reads_the_members_of_a_wheel() {
    let record = &expected()["wheel/tiny-1.0-py3-none-linux_aarch64.whl"]["scan"];
    let file = fs::File::open(data("fatbin/wheel/tiny-1.0-py3-none-linux_aarch64.whl")).unwrap();
    let mut wheel = zip::ZipArchive::new(file).unwrap();
    for index in 0..wheel.len() {
        let mut member = wheel.by_index(index).unwrap();
        let mut bytes = Vec::new();
        std::io::copy(&mut member, &mut bytes).unwrap();
        let name = member.name().unwrap().into_owned();
        let scan = scan(&name, &bytes, 1000);
        assert_eq!(told(&scan, bytes.len()), wanted(&record[&name]), "{name}");
    }
}

/// What `readelf` says: needed libraries, soname, run path, highest versions of three families.
#[derive(Debug, PartialEq)]
struct Needs {
    needed: Vec<String>,
    soname: Option<String>,
    runpath: Vec<String>,
    highest: [Option<String>; 3],
}

fn readelf(file: &std::path::Path) -> Needs {
    let output = Command::new("readelf")
        .args(["-W", "-d", "-V"])
        .arg(file)
        .env("LC_ALL", "C")
        .output()
        .expect("readelf is needed as the judge of ELF files: install binutils");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let bracketed = |tag: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains(tag));
        lines.map(|line| line.split_once('[').unwrap().1.trim_end_matches(']').to_owned()).collect()
    };
    let names: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_once("Name: ")?.1.split_once("  Flags:"))
        .map(|(name, _)| name.trim())
        .collect();
    let highest = ["GLIBC_", "GLIBCXX_", "CXXABI_"].map(|family| {
        let numbers = |name: &&str| {
            let numbers: Option<Vec<u32>> =
                name.strip_prefix(family)?.split('.').map(|n| n.parse().ok()).collect();
            numbers
        };
        let highest = names.iter().filter_map(numbers).max()?;
        Some(highest.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
    });
    let mut runpath = bracketed("(RUNPATH)");
    if runpath.is_empty() {
        runpath = bracketed("(RPATH)");
    }
    Needs {
        needed: bracketed("(NEEDED)"),
        soname: bracketed("(SONAME)").pop(),
        runpath: runpath.iter().flat_map(|path| path.split(':')).map(str::to_owned).collect(),
        highest,
    }
}

fn needs(scan: Scan) -> Needs {
    let Format::Elf(facts) = scan.format else { panic!("not an ELF file") };
    Needs {
        needed: facts.needed,
        soname: facts.soname,
        runpath: facts.runpath,
        highest: [facts.glibc, facts.glibcxx, facts.cxxabi],
    }
}

#[test]
fn needs_what_readelf_says() {
    // Real ones: the binary under test, this one, and the libraries that it has loaded.
    let mut files = vec![std::env::current_exe().unwrap(), env!("CARGO_BIN_EXE_jetwheel").into()];
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let loaded: BTreeSet<&str> = maps.lines().filter_map(|line| Some(&line[line.find('/')?..])).collect();
    files.extend(loaded.into_iter().filter(|path| path.contains(".so")).map(Into::into));
    assert!(files.len() >= 5, "few libraries are loaded: {files:?}");
    for entry in fs::read_dir(data("fatbin/so")).unwrap() {
        let path = entry.unwrap().path();
        files.extend(Some(path).filter(|path| path.extension().is_some_and(|extension| extension == "so")));
    }
    // Made ones, for aarch64, with the needs of surveyed wheels.
    let made = tempfile::tempdir().unwrap();
    make_wheels(
        &json!({"filename": "demo-1.0-cp310-cp310-linux_aarch64.whl", "elfs": [{"path": "demo/_C.so", "soname": "_C.so",
            "needed": ["libcudart.so.12"], "runpath": "$ORIGIN/lib:$ORIGIN", "glibc": "2.35", "glibcxx": "3.4.30"}]}),
        made.path(),
    );
    make_twins(&["torch-2.9.1-cp312-cp312-manylinux_2_28_aarch64"], made.path());
    for wheel in fs::read_dir(made.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>() {
        let mut wheel = zip::ZipArchive::new(fs::File::open(wheel).unwrap()).unwrap();
        for index in 0..wheel.len() {
            let mut member = wheel.by_index(index).unwrap();
            let name = member.name().unwrap().replace('/', "-");
            if name.contains(".so") {
                let path = made.path().join(format!("{index}-{name}"));
                std::io::copy(&mut member, &mut fs::File::create(&path).unwrap()).unwrap();
                files.push(path);
            }
        }
    }
    for file in files {
        let bytes = fs::read(&file).unwrap();
        let scan = scan("library.so", &bytes, 1 << 16);
        assert_eq!(scan.damage, [], "{}", file.display());
        assert_eq!(needs(scan), readelf(&file), "{}", file.display());
    }
}

/// An ELF file of parts in any order, as linkers, patchelf and stripping tools leave them.
struct Layout {
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Dynamic,
    Strings,
    Versions,
    Padding,
}

impl Layout {
    const STRINGS: &'static [u8] =
        b"\0liba.so.1\0libdemo.so\0$ORIGIN:/opt\0GLIBC_2.9\0GLIBC_2.17\0GLIBC_PRIVATE\0libc.so.6\0";

    fn offset_of(text: &str) -> u64 {
        let text = format!("\0{text}\0");
        let found = Self::STRINGS.windows(text.len()).position(|window| window == text.as_bytes());
        found.unwrap() as u64 + 1
    }

    /// Lays the parts out behind headers of 4 KiB, with a segment for each and sections where asked for.
    fn new(order: &[Part], padding: usize, segments: bool, sections: bool) -> Self {
        const BASE: u64 = 0x40_0000;
        let length = |part: Part| match part {
            Part::Dynamic => 16 * 8,
            Part::Strings => Self::STRINGS.len(),
            Part::Versions => 16 * 4,
            Part::Padding => padding,
        };
        let mut at = 4096;
        let mut places = Vec::new();
        for part in order {
            places.push((*part, at));
            at += length(*part).next_multiple_of(16);
        }
        let place = |part| places.iter().find(|(other, _)| *other == part).unwrap().1 as u64;
        let mut bytes = vec![0; at];
        let mut put =
            |at: u64, field: &[u8]| bytes[at as usize..at as usize + field.len()].copy_from_slice(field);
        put(0, b"\x7fELF\x02\x01\x01");
        put(16, &[3, 0, 183, 0, 1]);
        put(52, &64_u16.to_le_bytes());
        if segments {
            put(32, &64_u64.to_le_bytes());
            put(54, &56_u16.to_le_bytes());
            put(56, &2_u16.to_le_bytes());
            let headers = [(1_u32, 0, at as u64), (2, place(Part::Dynamic), length(Part::Dynamic) as u64)];
            for (index, (kind, offset, len)) in headers.into_iter().enumerate() {
                let header = 64 + 56 * index as u64;
                put(header, &kind.to_le_bytes());
                put(header + 8, &offset.to_le_bytes());
                put(header + 16, &(BASE + offset).to_le_bytes());
                put(header + 32, &len.to_le_bytes());
            }
        }
        put(place(Part::Strings), Self::STRINGS);
        let tags = [
            (1, Self::offset_of("liba.so.1")),
            (1, Self::offset_of("libc.so.6")),
            (14, Self::offset_of("libdemo.so")),
            (29, Self::offset_of("$ORIGIN:/opt")),
            (5, BASE + place(Part::Strings)),
            (10, Self::STRINGS.len() as u64),
            (0x6fff_fffe, BASE + place(Part::Versions)),
            (0x6fff_ffff, 1),
        ];
        for (index, (tag, value)) in tags.into_iter().enumerate() {
            put(place(Part::Dynamic) + 16 * index as u64, &u64::to_le_bytes(tag));
            put(place(Part::Dynamic) + 16 * index as u64 + 8, &value.to_le_bytes());
        }
        let versions = place(Part::Versions);
        put(versions, &[1, 0, 3, 0]);
        put(versions + 4, &(Self::offset_of("libc.so.6") as u32).to_le_bytes());
        put(versions + 8, &16_u32.to_le_bytes());
        for (index, name) in ["GLIBC_2.17", "GLIBC_2.9", "GLIBC_PRIVATE"].into_iter().enumerate() {
            let record = versions + 16 + 16 * index as u64;
            put(record + 8, &(Self::offset_of(name) as u32).to_le_bytes());
            put(record + 12, &(if index == 2 { 0_u32 } else { 16 }).to_le_bytes());
        }
        if sections {
            // Null, names, strings, dynamic, versions; the names before the table.
            let names = b"\0.shstrtab\0.dynstr\0.dynamic\0.gnu.version_r\0\0\0\0\0\0";
            let (names_at, table) = (at as u64, (at + names.len()) as u64);
            bytes.extend(names);
            let rows = [
                (0_u32, 0_u32, 0, 0, 0_u32),
                (1, 3, names_at, names.len(), 0),
                (11, 3, place(Part::Strings), length(Part::Strings), 0),
                (19, 6, place(Part::Dynamic), length(Part::Dynamic), 2),
                (28, 0x6fff_fffe, place(Part::Versions), length(Part::Versions), 2),
            ];
            for (name, kind, at, len, link) in rows {
                let mut row = vec![0; 64];
                row[..4].copy_from_slice(&name.to_le_bytes());
                row[4..8].copy_from_slice(&kind.to_le_bytes());
                row[24..32].copy_from_slice(&at.to_le_bytes());
                row[32..40].copy_from_slice(&(len as u64).to_le_bytes());
                row[40..44].copy_from_slice(&link.to_le_bytes());
                bytes.extend(row);
            }
            bytes[40..48].copy_from_slice(&table.to_le_bytes());
            bytes[58..60].copy_from_slice(&64_u16.to_le_bytes());
            bytes[60..62].copy_from_slice(&5_u16.to_le_bytes());
            bytes[62..64].copy_from_slice(&1_u16.to_le_bytes());
        }
        Self { bytes }
    }
}

fn orders() -> Vec<Vec<Part>> {
    let mut orders = vec![vec![]];
    for _ in 0..4 {
        let parts = [Part::Dynamic, Part::Strings, Part::Versions, Part::Padding];
        let longer = |order: &Vec<Part>| {
            let more = parts.iter().filter(|part| !order.contains(part));
            more.map(|part| [order.as_slice(), &[*part]].concat()).collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

#[test]
fn reads_needs_wherever_they_stand() {
    let wanted = || Needs {
        needed: vec!["liba.so.1".into(), "libc.so.6".into()],
        soname: Some("libdemo.so".into()),
        runpath: vec!["$ORIGIN".into(), "/opt".into()],
        highest: [Some("2.17".into()), None, None],
    };
    for order in orders() {
        for (segments, sections) in [(true, false), (false, true), (true, true)] {
            // Past the front and the segment that are kept, or within.
            for padding in [100, 200_000, 5 << 20] {
                let layout = Layout::new(&order, padding, segments, sections);
                for chunk in [100_000, 1 << 16, 777] {
                    let scan = scan("libdemo.so", &layout.bytes, chunk);
                    let what = format!("{order:?} segments {segments} sections {sections} chunk {chunk}");
                    assert_eq!(scan.damage, [], "{what}");
                    assert_eq!(needs(scan), wanted(), "{what}");
                }
            }
        }
    }
}

#[test]
fn does_not_read_again_what_patchelf_appended() {
    // The new segment at the end: dynamic section and its strings; the versions stay at the front.
    let order = [Part::Versions, Part::Padding, Part::Dynamic, Part::Strings];
    let layout = Layout::new(&order, 5 << 20, true, true);
    assert_eq!(scan_in("libdemo.so", &layout.bytes, 1 << 16).1, 0);
    // As linkers write it: strings and versions at the front, beyond what is kept of it, the dynamic section last.
    let order = [Part::Padding, Part::Strings, Part::Versions, Part::Dynamic];
    let mut layout = Layout::new(&order, 200_000, true, true);
    layout.bytes.extend(vec![0; 10 << 20]);
    let (scan, again) = scan_in("libdemo.so", &layout.bytes, 4096);
    assert!(again <= 300_000, "{again} bytes were read again");
    assert_eq!(scan.damage, []);
}

/// A small generator of numbers (xorshift), so that a failure is found again from its seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn mutant(seeds: &[(String, Vec<u8>)], numbers: &mut Numbers) -> (String, Vec<u8>) {
    let (name, seed) = &seeds[numbers.below(seeds.len())];
    let mut bytes = seed.clone();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(6) {
            0 => bytes.truncate(at),
            1 => {
                let (_, other) = &seeds[numbers.below(seeds.len())];
                let from = numbers.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            2 => {
                // A field of 8 bytes with a value that is apt to overflow.
                let values = [0, 1, 7, 8, 64, u64::MAX, u64::MAX - 7, 1 << 63, 1 << 31, u64::from(u32::MAX)];
                let value = values[numbers.below(values.len())].to_le_bytes();
                let at = at & !7;
                let len = value.len().min(bytes.len() - at);
                bytes[at..at + len].copy_from_slice(&value[..len]);
            }
            // Headers stand at the front, and tell the most.
            3 => {
                let at = numbers.below(bytes.len().min(512));
                bytes[at] = numbers.next() as u8;
            }
            _ => bytes[at] ^= 1 << numbers.below(8),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    (name.clone(), bytes)
}

/// Tells a child process of this test binary to do the work, so that its memory is its own.
pub(crate) const CHILD: &str = "JETWHEEL_TEST_CHILD";

/// Runs a test in a process of its own, and yields its peak of resident memory in KiB.
pub(crate) fn peak_of_child(name: &str) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let peak = text.split_once("peak ").expect("the child tells its peak").1;
    peak.split_whitespace().next().unwrap().parse().unwrap()
}

pub(crate) fn own_peak() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    format!("peak {}", peak.trim())
}

#[test]
fn survives_twenty_thousand_mutants_in_little_memory() {
    const MUTANTS: u64 = 20_000;
    if std::env::var_os(CHILD).is_none() {
        let peak = peak_of_child("fatbin::survives_twenty_thousand_mutants_in_little_memory");
        assert!(peak < 64 << 10, "{peak} KiB");
        return;
    }
    let small = |name: &String| !name.starts_with("wheel/");
    let mut seeds: Vec<(String, Vec<u8>)> =
        expected().keys().filter(|name| small(name)).map(|name| (name.clone(), specimen(name))).collect();
    for order in orders() {
        seeds.push(("libnvrtc.so".into(), Layout::new(&order, 100, true, true).bytes));
        seeds.push(("libdemo.so".into(), Layout::new(&order, 100, false, true).bytes));
    }
    for seed in 1..=MUTANTS {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (name, bytes) = mutant(&seeds, &mut numbers);
        let chunk = [200, 4096, usize::MAX][numbers.below(3)];
        let result = std::panic::catch_unwind(|| scan(&name, &bytes, chunk));
        let scan = result.unwrap_or_else(|_| panic!("mutant {seed} of {name}, chunks of {chunk}"));
        assert!(scan.damage.len() <= 256 && scan.rows.len() <= bytes.len() / 80, "mutant {seed} of {name}");
        // One in a hundred at another chunk size, which must not matter.
        if seed % 100 == 0 {
            assert_eq!(
                scan_in(&name, &bytes, 61).0,
                scan,
                "mutant {seed} of {name}, chunks of {chunk} and 61"
            );
        }
    }
    println!("{}", own_peak());
}

#[test]
fn takes_little_memory_for_many_fatbinaries() {
    const COUNT: u32 = 1_000_000;
    // A million fatbinaries of one small image each, of many sets: 80 MB that go by.
    if std::env::var_os(CHILD).is_none() {
        let peak = peak_of_child("fatbin::takes_little_memory_for_many_fatbinaries");
        assert!(peak < 64 << 10, "{peak} KiB");
        return;
    }
    let mut scanner = Scanner::new("data.bin", u64::from(COUNT) * 80);
    let mut chunk = Vec::new();
    for index in 0..COUNT {
        chunk.extend(b"\x50\xed\x55\xba\x01\0\x10\0\x40\0\0\0\0\0\0\0");
        let mut entry = [0; 64];
        entry[0] = 2;
        entry[4] = 64;
        entry[28..30].copy_from_slice(&((index % 9999) as u16).to_le_bytes());
        chunk.extend(entry);
        if chunk.len() >= 1 << 16 {
            scanner.feed(&chunk);
            chunk.clear();
        }
    }
    scanner.feed(&chunk);
    let Finish::Done(scan) = scanner.finish() else { panic!("nothing is to be read again") };
    assert!(
        scan.damage.iter().any(|error| matches!(error.kind, ErrorKind::TooMany { .. })),
        "{:?}",
        scan.damage
    );
    println!("{}", own_peak());
}
