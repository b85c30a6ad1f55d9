//! Whether the shared libraries that a wheel links can be there at all.

use super::cuda_runtime::may_be_cuda;
use super::pattern::matches;
use super::tables::{Checked, TABLES};
use super::{Case, Code, Reason};
use crate::wheel::Facts;

/// Refuses a wheel that links a library which nothing brings: not itself, not the system, and none of its requirements
/// could. What the requirements really bring is the resolver's part.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let facts = case.facts;
    // A system whose CUDA libraries are not known, such as a server's, proves nothing.
    if !case.system_is_known || may_bring(facts) {
        return;
    }
    let mut missing: Vec<(&str, &str, &Checked)> = Vec::new();
    for member in &facts.members {
        for soname in &member.needed {
            if !may_be_cuda(soname) {
                continue;
            }
            let Some(row) = checked(soname) else { continue };
            if !case.device.sonames.contains(soname.as_str())
                && !brings(facts, soname)
                && !missing.iter().any(|(known, ..)| known == soname)
            {
                missing.push((soname, &member.path, row));
            }
        }
    }
    let Some(&(_, member, _)) = missing.first() else { return };
    missing.sort_unstable_by_key(|&(soname, ..)| soname);
    let names: Vec<String> = missing.iter().map(|(soname, ..)| (*soname).to_owned()).collect();
    let mut remedies: Vec<&str> = missing.iter().map(|(.., row)| row.remedy.as_str()).collect();
    remedies.dedup();
    reasons.push(Reason {
        code: Code::SonameMissing,
        member: Some(member.to_owned()),
        text: format!(
            "links {}, which neither the wheel, nor its requirements, nor {} brings",
            names.join(", "),
            case.device.id
        ),
        wanted: names,
        found: Vec::new(),
        remedy: format!(
            "{}; where the devices have it, say so by sonames_add in devices.toml",
            remedies.join("; ").replace("{cuda}", &case.driver_cuda.0.to_string())
        ),
    });
}

/// The row of the table of checked libraries.
fn checked(soname: &str) -> Option<&'static Checked> {
    TABLES.cuda.checked.iter().find(|row| matches(&row.soname, soname))
}

/// Whether the wheel has that library, by soname or by file name.
fn brings(facts: &Facts, soname: &str) -> bool {
    facts.members.iter().any(|member| {
        member.soname.as_deref() == Some(soname) || member.path.rsplit('/').next() == Some(soname)
    })
}

/// Whether one of its requirements, by name, may bring CUDA libraries.
fn may_bring(facts: &Facts) -> bool {
    facts.requires_dist.iter().any(|requirement| {
        let end = requirement.find(|letter: char| !letter.is_ascii_alphanumeric() && !"-_.".contains(letter));
        let name =
            requirement[..end.unwrap_or(requirement.len())].to_ascii_lowercase().replace(['_', '.'], "-");
        TABLES.cuda.providers.projects.iter().any(|pattern| matches(pattern, &name))
    })
}
