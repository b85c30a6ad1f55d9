//! Whether the compilers inside a wheel can make kernels for the device.

use super::rules::Compilers;
use super::{Case, Code, Note, NoteCode, Reason};
use crate::fatbin::{ComputeCapability, Suffix};
use crate::wheel::Compiler;

/// From this compute capability on, frameworks ask a compiler for the `a` form of a target: `sm_90a`.
const EXACT_FORM_FROM: ComputeCapability = ComputeCapability { major: 9, minor: 0 };

/// Whether a compiler knows the device.
///
/// Two names of one chip do not stand for each other here: the framework asks for the name that the driver reports.
fn knows(compiler: &Compiler, device: ComputeCapability) -> bool {
    let suffix = if device >= EXACT_FORM_FROM { Suffix::Exact } else { Suffix::Portable };
    compiler.targets.iter().any(|target| target.0.capability == device && target.0.suffix == suffix)
}

/// Compilers decide only where a wheel has no kernels of its own.
fn deciding<'a>(case: &Case<'a>) -> &'a [Compiler] {
    if case.kernels.is_some() { &[] } else { &case.facts.compilers }
}

fn cuda_major(compiler: &Compiler) -> Option<u32> {
    compiler.cuda.as_deref()?.split('.').next()?.parse().ok()
}

/// The compiler that knows the device but is of a newer CUDA than its driver, where no other will do.
pub(super) fn too_new<'a>(case: &Case<'a>) -> Option<&'a Compiler> {
    let mut knowing =
        deciding(case).iter().filter(|compiler| knows(compiler, case.device.compute_capability)).peekable();
    let first = *knowing.peek()?;
    let newer = |compiler: &Compiler| cuda_major(compiler).is_some_and(|major| major > case.driver_cuda.0);
    knowing.all(newer).then_some(first)
}

fn none_knows(case: &Case<'_>) -> bool {
    let compilers = deciding(case);
    !compilers.is_empty() && !compilers.iter().any(|compiler| knows(compiler, case.device.compute_capability))
}

/// Refuses a wheel whose compilers do not know the device.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    if case.policy.rules.compilers == Compilers::Warn || !none_knows(case) {
        return;
    }
    let compilers = deciding(case);
    let newest = compilers.iter().max_by_key(|compiler| compiler.targets.iter().map(|target| target.0).max());
    let Some(compiler) = newest else { return };
    let wanted = wanted(case.device.compute_capability);
    reasons.push(Reason {
        code: Code::CompilerTargetMissing,
        member: Some(compiler.path.clone()),
        found: compiler.targets.iter().map(|target| format!("compute_{}", target.0)).collect(),
        wanted: vec![wanted.clone()],
        text: text(case, compiler, &wanted),
        remedy: format!(
            "take a version whose compiler knows {wanted}, or {OVERRIDE} and set compilers = \"warn\""
        ),
    });
}

/// Warns of it, where policy says so.
pub(super) fn note(case: &Case<'_>, notes: &mut Vec<Note>) {
    if case.policy.rules.compilers != Compilers::Warn || !none_knows(case) {
        return;
    }
    let Some(compiler) = deciding(case).first() else { return };
    let wanted = wanted(case.device.compute_capability);
    let text = format!("{}; {OVERRIDE}", text(case, compiler, &wanted));
    notes.push(Note { code: NoteCode::Advisory, text });
}

/// How a newer compiler is put in its place.
const OVERRIDE: &str = "point TRITON_PTXAS_PATH at the ptxas of an installed CUDA toolkit";

fn wanted(device: ComputeCapability) -> String {
    let suffix = if device >= EXACT_FORM_FROM { "a" } else { "" };
    format!("compute_{}{suffix}", device.sm())
}

fn text(case: &Case<'_>, compiler: &Compiler, wanted: &str) -> String {
    let name = compiler.path.rsplit('/').next().unwrap_or(&compiler.path);
    let release = compiler.cuda.as_deref().map(|cuda| format!(" of CUDA {cuda}")).unwrap_or_default();
    format!("its compiler {name}{release} does not know {wanted}, which {} needs", case.device.id)
}
