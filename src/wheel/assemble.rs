//! The facts of a file, put together from what was found in its members.

use std::collections::{BTreeMap, BTreeSet};

use super::{Compiler, CompilerTarget, Facts, FatbinRow, Member, MemberKind};
use crate::fatbin::{Format, GpuCode, Scan};

/// Adds what a scan of a member, or of the file itself, found.
pub(super) fn add_scan(facts: &mut Facts, path: &str, size: u64, scan: Scan) {
    facts.needed_dlopen.extend(scan.dlopened);
    if let Some(compiler) = scan.compiler.filter(|compiler| !compiler.targets.is_empty()) {
        facts.compilers.push(Compiler {
            path: path.to_owned(),
            cuda: compiler.cuda,
            targets: compiler.targets.into_iter().map(CompilerTarget).collect(),
        });
    }
    let fatbins: Vec<FatbinRow> = scan
        .rows
        .into_iter()
        .map(|row| FatbinRow { section: row.section, images: row.images, count: row.count })
        .collect();
    let mut member = Member {
        path: path.to_owned(),
        size,
        kind: MemberKind::Other,
        machine: None,
        soname: None,
        needed: Vec::new(),
        runpath: Vec::new(),
        glibc: None,
        glibcxx: None,
        cxxabi: None,
        numpy_abi: scan.signs.numpy(),
        cxx11_abi: scan.signs.cxx11(),
        registered_fatbins: 0,
        fatbins,
        bare_cubins: scan.bare_cubins.into_iter().map(|(code, count)| (image_name(&code), count)).collect(),
        images: BTreeMap::new(),
    };
    match scan.format {
        Format::Elf(elf) => {
            member.kind = MemberKind::Elf;
            member.machine = Some(machine_name(elf.machine));
            member.soname = elf.soname;
            member.needed = elf.needed;
            member.runpath = elf.runpath;
            member.glibc = elf.glibc;
            member.glibcxx = elf.glibcxx;
            member.cxxabi = elf.cxxabi;
            member.registered_fatbins = elf.registered_fatbins;
        }
        Format::Archive => member.kind = MemberKind::Archive,
        Format::Fatbin => member.kind = MemberKind::Fatbin,
        Format::Cubin(code) => {
            member.kind = MemberKind::Cubin;
            member.fatbins.insert(0, FatbinRow { section: None, images: vec![code], count: 1 });
        }
        Format::Ptx(code) => {
            member.kind = MemberKind::Ptx;
            member.fatbins.insert(0, FatbinRow { section: None, images: vec![code], count: 1 });
        }
        Format::Other if member.fatbins.is_empty() && member.bare_cubins.is_empty() => return,
        Format::Other => {}
    }
    for row in &member.fatbins {
        // PTX of two ISA versions for one target is one name, and one fatbinary.
        let names: BTreeSet<String> = row.images.iter().map(image_name).collect();
        for name in names {
            let count = member.images.entry(name).or_default();
            *count = count.saturating_add(row.count);
        }
    }
    facts.members.push(member);
}

/// The name under which images are counted: PTX without its ISA version.
fn image_name(code: &GpuCode) -> String {
    let text = code.to_string();
    text.split_once(' ').map_or(text.clone(), |(name, _)| name.to_owned())
}

fn machine_name(machine: u16) -> String {
    match machine {
        183 => "aarch64".to_owned(),
        62 => "x86_64".to_owned(),
        other => format!("em-{other}"),
    }
}

/// Sums up over the members, in an order that does not depend on the threads.
pub(super) fn finish_facts(facts: &mut Facts) {
    facts.members.sort_by(|a, b| a.path.cmp(&b.path));
    facts.compilers.sort_by(|a, b| a.path.cmp(&b.path));
    facts.needed_dlopen.sort();
    facts.needed_dlopen.dedup();
    for member in &facts.members {
        for (name, count) in &member.images {
            let total = facts.images.entry(name.clone()).or_default();
            *total = total.saturating_add(*count);
        }
    }
}
