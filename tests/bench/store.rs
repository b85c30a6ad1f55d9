//! Times and memory of a store with many wheels of some 10 KB of facts each.
//!
//! `store fill DIR WHEELS` takes them in, `store open DIR` opens the store and lists it.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use jetwheel::digest::Sha256;
use jetwheel::store::{Provenance, Store};
use jetwheel::wheel::{Facts, GpuClass, Member, MemberKind};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout().lock();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["fill", dir, wheels] => fill(&mut out, Path::new(dir), wheels.parse()?),
        ["open", dir] => open(&mut out, Path::new(dir)),
        _ => anyhow::bail!("usage: store fill DIR WHEELS | store open DIR"),
    }
}

fn fill(out: &mut impl std::io::Write, dir: &Path, wheels: usize) -> anyhow::Result<()> {
    let store = Store::open(dir)?;
    let mut took_us = Vec::new();
    for number in 0..wheels {
        let facts = facts(number);
        let mut spooled = store.spool()?;
        spooled.write_all(number.to_string().as_bytes())?;
        let provenance = Provenance {
            upstream: "jp6-cu126".to_owned(),
            url: Some(format!("https://pypi.example/jp6/cu126/+f/{number}/{}", facts.file)),
            first_seen: "2026-11-30T00:00:00Z".to_owned(),
            ..Provenance::default()
        };
        let start = Instant::now();
        store.put(spooled, &facts, b"Metadata-Version: 2.1\n", &provenance)?;
        took_us.push(start.elapsed().as_micros());
    }
    took_us.sort_unstable();
    let at = |share: usize| took_us.get(took_us.len() * share / 100).copied().unwrap_or(0);
    writeln!(out, "put: median {} us, 99 of 100 within {} us", at(50), at(99))?;
    Ok(())
}

fn open(out: &mut impl std::io::Write, dir: &Path) -> anyhow::Result<()> {
    let mut timed =
        |what: &str, start: Instant| writeln!(out, "{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let store = Store::open(dir)?;
    timed("open", start)?;
    writeln!(out, "after that: {}", memory()?)?;
    let mut timed =
        |what: &str, start: Instant| writeln!(out, "{what}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let projects = store.projects(true)?;
    timed("projects", start)?;
    let project = projects.first().context("the store is empty")?;
    let start = Instant::now();
    let listed = store.listing(project)?;
    timed("listing of one project", start)?;
    let start = Instant::now();
    let rows = store.rows(project)?;
    timed("rows of one project", start)?;
    writeln!(
        out,
        "{} projects, {} files listed, {} rows; {}; {:?}",
        projects.len(),
        listed.len(),
        rows.len(),
        memory()?,
        store.recovery()
    )?;
    Ok(())
}

fn memory() -> anyhow::Result<String> {
    let status = fs_err::read_to_string("/proc/self/status")?;
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    Ok(lines.collect::<Vec<_>>().join(", "))
}

/// Facts of some 10 KB; 1,000 wheels a project.
fn facts(number: usize) -> Facts {
    let project = format!("project-{}", number / 1000);
    let version = format!("1.{}", number % 1000);
    let member = |at: usize| Member {
        path: format!("project/lib/libproject_kernels_{at}.so"),
        size: 1_000_000,
        kind: MemberKind::Elf,
        machine: Some("aarch64".to_owned()),
        soname: Some(format!("libproject_kernels_{at}.so")),
        needed: ["libcudart.so.12", "libcublas.so.12", "libstdc++.so.6", "libc.so.6"]
            .map(str::to_owned)
            .to_vec(),
        runpath: vec!["$ORIGIN".to_owned()],
        glibc: Some("2.28".to_owned()),
        glibcxx: Some("3.4.22".to_owned()),
        cxxabi: None,
        numpy_abi: None,
        cxx11_abi: None,
        registered_fatbins: 12,
        fatbins: Vec::new(),
        bare_cubins: std::collections::BTreeMap::new(),
        images: [("sm_80".to_owned(), 12), ("sm_87".to_owned(), 12)].into(),
    };
    Facts {
        project: project.parse().ok(),
        version: Some(version.clone()),
        tags: vec!["cp310-cp310-linux_aarch64".to_owned()],
        requires_python: Some(">=3.10".to_owned()),
        requires_dist: vec!["numpy<2".to_owned(); 5],
        gpu: GpuClass::Kernels,
        members: (0..26).map(member).collect(),
        images: [("sm_80".to_owned(), 312), ("sm_87".to_owned(), 312)].into(),
        ..Facts::blank(
            format!("project_{}-{version}-cp310-cp310-linux_aarch64.whl", number / 1000),
            Sha256::of(number.to_string().as_bytes()),
            number.to_string().len() as u64,
        )
    }
}
