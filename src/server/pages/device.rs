//! The page of a device: what to copy, what it is, what was reported of it.

use maud::{Markup, html};
use serde::Serialize;

use super::lines::Lines;
use super::{Desk, Sheet, layout};
use crate::policy::{Action, Advisory, DeviceProfile, code_name};
use crate::server::refusal::Refusal;
use crate::store::DeviceReport;

/// How many reports are shown, the newest first.
const MOST_REPORTS: usize = 20;

#[derive(Serialize)]
struct DevicePage<'a> {
    device: &'a DeviceProfile,
    lines: Lines,
    advisories: Vec<&'a Advisory>,
    reports: Vec<DeviceReport>,
}

/// `GET /devices/{id}`.
pub(super) fn device(desk: &Desk<'_>, id: &str) -> Result<Sheet, Refusal> {
    let device = desk.in_force.device(id)?;
    let mut reports = desk.state.store.reports()?;
    reports.retain(|report| report.body.device == device.id);
    reports.reverse();
    reports.truncate(MOST_REPORTS);
    let page = DevicePage {
        device,
        lines: Lines::of(device, &desk.asked.base),
        advisories: desk
            .in_force
            .policy
            .advisories()
            .iter()
            .filter(|advisory| advisory.concerns(device))
            .collect(),
        reports,
    };
    desk.sheet(&device.id, &page, || render(desk, &page))
}

fn render(desk: &Desk<'_>, page: &DevicePage<'_>) -> Markup {
    let (root, id) = (desk.root, layout::segment(&page.device.id));
    let Lines { index, pip, pip_conf, uv, uv_project, poetry, dockerfile, setup } = &page.lines;
    html! {
        p { "Its index: " a href={ (root) (id) "/simple/" } { (index) } ". It lists only wheels that run there. "
            a href={ (root) "projects/?device=" (id) } { "Which projects?" } }
        h2 { "To copy" }
        h3 { "Once, for pip and uv" } (layout::copy("Set-up", setup))
        h3 { "pip" } (layout::copy("pip", pip))
        p { "or for good, in " code { "~/.config/pip/pip.conf" } ":" } (layout::copy("pip.conf", pip_conf))
        h3 { "uv" } (layout::copy("uv", uv))
        p { "or in " code { "pyproject.toml" } ":" } (layout::copy("uv, pyproject.toml", uv_project))
        h3 { "poetry" } (layout::copy("poetry", poetry))
        h3 { "Dockerfile" } (layout::copy("Dockerfile", dockerfile))
        p { "A channel or a snapshot stands behind an " code { "@" } ": " code { (page.device.id) "@stable" } "." }
        h2 { "Profile" }
        (facts(page.device))
        h2 { "Known trouble" }
        @if page.advisories.is_empty() { p { "No advisory concerns this device." } } @else {
            ul { @for advisory in &page.advisories { li {
                strong { (advisory.project) " " (advisory.versions) }
                ", " (if advisory.action == Action::Refuse { "refused" } else { "warned of" }) ": " (advisory.text)
            } } }
        }
        h2 { "Reports" }
        @if page.reports.is_empty() {
            p { "No device of this profile has reported. One does so by " code { "check.py" } ":" }
            (layout::copy("check.py", &format!("curl -fsS {}/{}/check.py | python3 -", desk.asked.base, page.device.id)))
        } @else { ul { @for report in &page.reports { li { (reported(report)) } } } }
    }
}

/// A report in one line.
pub(super) fn reported(report: &DeviceReport) -> Markup {
    let body = &report.body;
    html! {
        (layout::time(&report.time)) ": "
        @if body.passed { span.cell.good { span aria-hidden="true" { "✓ " } "passed" } }
        @else { span.cell.bad { span aria-hidden="true" { "✗ " } "failed" } }
        " torch " (body.torch)
        @match &body.gpu { Some(gpu) => { " on " (gpu.name) }, None => " on the CPU alone" }
        @for check in body.checks.iter().filter(|check| check.status == "fail") {
            "; " (check.name) " failed" @if let Some(text) = &check.text { " (" (text) ")" }
        }
    }
}

fn facts(device: &DeviceProfile) -> Markup {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".to_owned());
    let compat = device.cuda_compat.as_ref().map(|cuda| format!("; cuda-compat {cuda}")).unwrap_or_default();
    let rows = [
        ("Chip", device.soc.clone()),
        ("Compute capability", device.compute_capability.to_string()),
        ("GPU", if device.integrated { "integrated" } else { "discrete" }.to_owned()),
        ("JetPack", text(&device.jetpack)),
        ("L4T", device.l4t.join(", ")),
        ("Stack", code_name(&device.stack)),
        ("CUDA of the driver", format!("{}{compat}", device.driver_cuda)),
        ("Newest PTX", device.ptx_isa.to_string()),
        ("Python", device.python.to_string()),
        ("glibc", device.glibc.to_string()),
        ("GLIBCXX", device.glibcxx.to_string()),
        ("System", text(&device.os)),
        ("Kernel", text(&device.kernel_release)),
        ("cuDNN", text(&device.cudnn)),
        ("TensorRT", text(&device.tensorrt)),
        ("ROS", text(&device.ros)),
    ];
    html! {
        @if let Some(release) = &device.nearest { p.note { "It stands in for L4T " (release) ", which no table knows." } }
        dl { @for (name, value) in rows { dt { (name) } dd { (value) } } }
        details { summary { "Platform tags and libraries of the system" }
            p { @for tag in &device.platform_tags { code { (tag) } " " } }
            p { @for soname in &device.sonames { code { (soname) } " " } }
        }
    }
}
