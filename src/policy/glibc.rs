//! Whether the device's glibc and libstdc++ have the symbol versions that the ELF files need.

use super::{Case, Code, Reason, Version};
use crate::wheel::Member;

/// Refuses ELF files that need a newer glibc. Tags are no evidence: some promise less than the files need.
pub(super) fn judge_glibc(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    judge(case, reasons, Code::GlibcTooNew, "glibc", &case.device.glibc, |member| member.glibc.as_deref());
}

/// Refuses ELF files that need a newer libstdc++.
pub(super) fn judge_glibcxx(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    judge(case, reasons, Code::GlibcxxTooNew, "GLIBCXX", &case.device.glibcxx, |member| {
        member.glibcxx.as_deref()
    });
}

fn judge(
    case: &Case<'_>,
    reasons: &mut Vec<Reason>,
    code: Code,
    name: &str,
    has: &Version,
    needs: impl Fn(&Member) -> Option<&str>,
) {
    let Some((member, version)) = newest(case.facts.members.iter(), &needs) else { return };
    if version.parts() <= has.0.as_slice() {
        return;
    }
    let needed = Version(version.parts().to_vec());
    let device = &case.device.id;
    reasons.push(Reason {
        code,
        member: Some(member.path.clone()),
        found: vec![format!("{name} {needed}")],
        wanted: vec![format!("{name} {has} or older")],
        text: format!("needs {name} {needed}; {device} has {has}"),
        remedy: super::remedy::for_system(case, name, &needed),
    });
}

/// Most numbers in a symbol version: `3.4.30` has three.
const LONGEST: usize = 4;

/// A symbol version without memory of its own: this runs for every member of every wheel of a page.
#[derive(Debug, Clone, Copy)]
struct SymbolVersion {
    parts: [u32; LONGEST],
    length: usize,
}

impl SymbolVersion {
    /// Reads a dotted version; none for other texts, such as `PRIVATE`.
    fn parse(text: &str) -> Option<Self> {
        let mut version = Self { parts: [0; LONGEST], length: 0 };
        for part in text.split('.') {
            *version.parts.get_mut(version.length)? = part.parse().ok()?;
            version.length += 1;
        }
        Some(version)
    }

    fn parts(&self) -> &[u32] {
        &self.parts[..self.length]
    }
}

/// The member that needs the newest version, and that version.
fn newest<'f>(
    members: impl Iterator<Item = &'f Member>,
    needs: impl Fn(&Member) -> Option<&str>,
) -> Option<(&'f Member, SymbolVersion)> {
    let mut newest: Option<(&Member, SymbolVersion)> = None;
    for member in members {
        let Some(version) = needs(member).and_then(SymbolVersion::parse) else { continue };
        if newest.is_none_or(|(_, known)| version.parts() > known.parts()) {
            newest = Some((member, version));
        }
    }
    newest
}
