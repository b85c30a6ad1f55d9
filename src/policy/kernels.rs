//! The reasons that follow from a wheel's GPU code.

use super::gpu_code::{self, Failing, Runs};
use super::{Case, Code, Note, NoteCode, Reason, Stack, remedy};
use crate::fatbin::GpuCode;

/// Members that a reason of partial kernels names at most, so that it stays readable.
const MOST_NAMED: usize = 8;

/// Refuses GPU code of which nothing runs on the device.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let Some(outcome) = case.kernels.filter(|outcome| outcome.runs == Runs::No && !outcome.no_variant) else {
        return;
    };
    let failing = failing(case);
    if outcome.with_any_ptx == Runs::No {
        reasons.push(no_kernel_image(case, &failing));
    } else {
        reasons.push(ptx_too_new(case, &failing));
    }
}

/// Tells of modules that have nothing for the device.
pub(super) fn judge_partial(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    if case.kernels.is_none_or(|outcome| outcome.runs != Runs::InPart) {
        return;
    }
    let failing = failing(case);
    let paths = failing.iter().map(|failing| failing.member.path.clone());
    let mut found: Vec<String> = paths.take(MOST_NAMED).collect();
    let named = found.join(", ");
    let more = failing.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if !more.is_empty() {
        found.push(more.trim_start().to_owned());
    }
    reasons.push(Reason {
        code: Code::PartialKernels,
        member: failing.first().map(|failing| failing.member.path.clone()),
        found,
        wanted: wanted(case),
        text: format!(
            "some kernels have no image for {} ({}): they fail in {named}{more}",
            case.device.id,
            sm(case)
        ),
        remedy: format!(
            "{}; or list the project under partial in rules.toml, if those modules are not used",
            remedy::for_kernels(case)
        ),
    });
}

fn failing<'a>(case: &Case<'a>) -> Vec<Failing<'a>> {
    gpu_code::failing(case.facts, &case.gpu, &case.policy.rules.thresholds, case.driver_cuda.0)
}

/// What to know of code that runs.
pub(super) fn note(case: &Case<'_>, notes: &mut Vec<Note>) {
    let Some(outcome) = case.kernels else { return };
    let device = case.device;
    if outcome.runs == Runs::ByJit {
        notes.push(Note {
            code: NoteCode::JitOnly,
            text: "most of its kernels are compiled from PTX at first use, which takes minutes once; keep the cache \
                   (CUDA_CACHE_PATH, and CUDA_CACHE_MAXSIZE large enough)"
                .to_owned(),
        });
    }
    if outcome.same_major {
        let (major, minor) = case.driver_cuda;
        let why = if case.gpu.unified {
            format!("CUDA {major}.{minor} takes it on integrated chips")
        } else {
            "the rule tegra_same_major allows it, NVIDIA does not promise it".to_owned()
        };
        notes.push(Note {
            code: NoteCode::SameMajorOnly,
            text: format!(
                "it runs by code for older chips of the same major version, not for {}: {why}",
                sm(case)
            ),
        });
    }
    if device.stack == Stack::TegraNvgpu && is_for_servers(case) {
        notes.push(Note {
            code: NoteCode::SbsaOnL4t,
            text: format!(
                "built for Arm servers; on {} its kernels fit, but its CUDA libraries may want a driver that is not \
                 there",
                device.id
            ),
        });
    }
}

/// Whether a wheel with kernels was built with the Arm server packages: a library looks for them, or the wheel has a
/// general Linux tag, which builds for Jetson do not have.
fn is_for_servers(case: &Case<'_>) -> bool {
    let facts = case.facts;
    let for_tegra = facts.project.as_ref().is_some_and(|project| project.as_str().contains("-tegra"));
    let looks =
        || facts.members.iter().flat_map(|member| &member.runpath).any(|path| path.contains("sbsa-linux"));
    let tagged = || facts.tags.iter().any(|tag| tag.contains("-manylinux") || tag.ends_with("_sbsa"));
    !for_tegra && (tagged() || looks())
}

fn no_kernel_image(case: &Case<'_>, failing: &[Failing<'_>]) -> Reason {
    let found = images(failing);
    let by_switch = failing.iter().flat_map(|failing| &failing.member.fatbins).flat_map(|row| &row.images);
    let by_switch = by_switch.filter(|code| case.gpu.refused_by_switch(code)).min();
    let policy = by_switch.map(|code| {
        format!(
            ". Whether {code} counts here is policy: tegra_same_major = \"deny\", since NVIDIA does not promise desktop \
             code on Tegra and a device test failed"
        )
    });
    Reason {
        code: Code::NoKernelImage,
        member: failing.first().map(|failing| failing.member.path.clone()),
        text: format!(
            "no kernel image for {} ({}): built for {}{}",
            case.device.id,
            sm(case),
            if found.is_empty() { "nothing known".to_owned() } else { found.join(", ") },
            policy.unwrap_or_default()
        ),
        found,
        wanted: wanted(case),
        remedy: remedy::for_kernels(case),
    }
}

fn ptx_too_new(case: &Case<'_>, failing: &[Failing<'_>]) -> Reason {
    let codes = failing.iter().flat_map(|failing| &failing.member.fatbins).flat_map(|row| &row.images);
    let newest = codes.filter(|code| case.gpu.fit(code) == super::image::Fit::PtxTooNew);
    let isa = newest.filter_map(|code| match code {
        GpuCode::Ptx(_, isa) => Some(*isa),
        _ => None,
    });
    let isa = isa.min().map(|isa| isa.to_string()).unwrap_or_default();
    let knows = case.gpu.ptx_isa.map(|isa| isa.to_string()).unwrap_or_default();
    Reason {
        code: Code::PtxTooNew,
        member: failing.first().map(|failing| failing.member.path.clone()),
        found: images(failing),
        wanted: wanted(case),
        text: format!(
            "its PTX is of ISA version {isa}; the driver of {} compiles up to {knows}, and minor-version compatibility \
             does not extend to PTX",
            case.device.id
        ),
        remedy: remedy::for_ptx(case, &isa),
    }
}

/// The images of all failing members, without repetition, in order.
fn images(failing: &[Failing<'_>]) -> Vec<String> {
    let mut codes: Vec<GpuCode> =
        failing.iter().flat_map(|failing| gpu_code::images_of(failing.member)).collect();
    codes.sort_unstable();
    codes.dedup();
    codes.iter().map(GpuCode::to_string).collect()
}

fn sm(case: &Case<'_>) -> String {
    format!("sm_{}", case.device.compute_capability.sm())
}

/// `sm_87`, and the newest PTX that the driver compiles for it.
fn wanted(case: &Case<'_>) -> Vec<String> {
    let sm = case.device.compute_capability.sm();
    let ptx = case.gpu.ptx_isa.map(|isa| format!("compute_{sm} ptx{isa} or older"));
    std::iter::once(format!("sm_{sm}")).chain(ptx).collect()
}
