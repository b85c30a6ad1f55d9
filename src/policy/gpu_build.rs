//! Whether a project that must hold GPU code does.

use super::{Case, Code, Reason, rules};

/// Refuses a CPU build of a project that policy wants with GPU code.
///
/// CUDA sources and headers inside do not make it a GPU build: CPU builds of torch carry some.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    let Some(project) = &case.facts.project else { return };
    if case.kernels.is_some() || !rules::lists(&case.policy.rules.require_gpu, project) {
        return;
    }
    let sm = case.device.compute_capability.sm();
    reasons.push(Reason {
        code: Code::NoGpuCode,
        member: None,
        found: vec![format!("no kernels (gpu: {})", case.facts.gpu)],
        wanted: vec![format!("kernels for sm_{sm}")],
        text: format!("a CPU build of {project}: it holds no GPU code"),
        remedy: format!("take a CUDA build of {project}: {}", super::remedy::where_builds_are(case)),
    });
}
