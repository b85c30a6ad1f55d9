//! `jetwheel verify`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Answer, Console, Context, Format};
use crate::policy::{DeviceProfile, Policy, judge};
use crate::store::{Fetch, Finding, Report, Store};
use crate::wheel::Size;
use crate::wording::counted;

/// After how many bytes a line of progress is due where there is no terminal.
const LINE_AFTER: u64 = 10 << 30;

/// Arguments of `jetwheel verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Hashes every wheel, and compares it with its sidecar file, its METADATA and its row in the catalogue.
Exit code 1 means that something is wrong, and was not mended.

Examples:
  jetwheel verify
  jetwheel verify --repair
  jetwheel verify --format json")]
pub struct Arguments {
    /// Move damaged wheels to the folder `quarantine`, fetch them again from where they came, and make anew what can be made
    #[arg(long)]
    repair: bool,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    if !arguments.repair {
        return run_with(arguments, context, None);
    }
    let refetch = super::sync::refetch(context)?;
    run_with(arguments, context, Some(&refetch))
}

/// As `run`; with `--repair` damaged wheels are fetched again by that function.
pub(super) fn run_with(
    arguments: &Arguments,
    context: &mut Context,
    fetch: Option<&Fetch<'_>>,
) -> anyhow::Result<Answer> {
    let store = context.store()?;
    let bar = context.console.interactive.then(|| {
        let style = indicatif::ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
        indicatif::ProgressBar::new(0).with_style(style.expect("the template is a constant that parses"))
    });
    let told = AtomicU64::new(0);
    let mut report = store.verify(&|done, total| {
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(done);
        } else if done / LINE_AFTER > told.fetch_max(done / LINE_AFTER, Ordering::Relaxed) {
            tracing::info!(done_bytes = done, total_bytes = total, "hashing");
        }
    })?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let devices = devices(&store, &context.policy()?, &report);
    if arguments.repair {
        store.repair(&mut report, fetch)?;
        let mended = report.findings.iter().filter(|finding| finding.mended);
        let mended: Vec<_> = mended.map(|finding| finding.sha256).collect();
        if !mended.is_empty() {
            context.audit("verify --repair", serde_json::json!({ "mended": mended }))?;
        }
    }
    if context.format == Format::Json {
        let mut json = serde_json::to_value(&report)?;
        let findings = json["findings"].as_array_mut();
        for (finding, devices) in findings.into_iter().flatten().zip(&devices) {
            finding["devices"] = serde_json::to_value(devices)?;
        }
        context.console.print_json(&json)?;
    } else {
        print(&mut context.console, &report, &devices, arguments.repair)?;
    }
    let snapshots_right = report.damaged_snapshots.is_empty();
    Ok(if snapshots_right && report.findings.iter().all(|finding| finding.mended) {
        Answer::Yes
    } else {
        Answer::No
    })
}

/// For each finding, the devices whose index lists the wheel, as far as judging it alone tells.
fn devices(store: &Store, policy: &Policy, report: &Report) -> Vec<Vec<String>> {
    let of_finding = |finding: &Finding| {
        // A file whose sidecar cannot be read either is on no index.
        let row =
            finding.file.as_ref().and_then(|file| store.row_named(&finding.sha256, file).ok().flatten());
        let (Some(row), Some(project)) = (row, &finding.project) else { return Vec::new() };
        let lists =
            |device: &&DeviceProfile| policy.lists(project, judge(&row.facts, device, policy).verdict);
        policy.devices().filter(lists).map(|device| device.id.clone()).collect()
    };
    report.findings.iter().map(of_finding).collect()
}

fn print(
    console: &mut Console,
    report: &Report,
    devices: &[Vec<String>],
    repair: bool,
) -> anyhow::Result<()> {
    for (finding, devices) in report.findings.iter().zip(devices) {
        let kind = serde_json::to_value(finding.kind)?;
        let file = finding.file.as_deref().unwrap_or("a file whose name is not known");
        console.print(format_args!("{}: {file}\n", kind.as_str().unwrap_or_default()))?;
        if let Some(project) = &finding.project {
            console.print(format_args!("    project {project}, sha256 {}\n", finding.sha256))?;
        } else {
            console.print(format_args!("    sha256 {}\n", finding.sha256))?;
        }
        console.print(format_args!("    {}\n    {}\n", finding.path.display(), finding.text))?;
        if !devices.is_empty() {
            let text = format!("on the index of {}", devices.join(", "));
            for line in super::devices::wrapped(&text, 90) {
                console.print(format_args!("    {line}\n"))?;
            }
        }
        if let Some(remedy) = &finding.remedy {
            let state = if finding.mended { "mended" } else { "not mended" };
            console.print(format_args!("    {state}: {remedy}\n"))?;
        }
    }
    for found in &report.damaged_snapshots {
        console.print(format_args!(
            "damaged snapshot: {}\n    {}\n    {}\n    jetwheel snapshot remove {0} lets it go\n",
            found.snapshot,
            found.path.display(),
            found.text
        ))?;
    }
    for orphan in &report.orphans {
        console
            .say(format_args!("{orphan}.whl has no sidecar file, as a crash leaves it; that does no harm"))?;
    }
    let mended = report.findings.iter().filter(|finding| finding.mended).count();
    let found = report.findings.len().saturating_add(report.damaged_snapshots.len());
    console.print(format_args!(
        "{} hashed ({}), {} known: {}\n",
        counted(report.blobs, "wheel"),
        Size(report.bytes),
        counted(report.sidecars, "file"),
        match found {
            0 => "all right".to_owned(),
            _ if repair => format!("{} wrong, {mended} mended", counted(found, "thing")),
            _ => format!("{} wrong; --repair mends what can be mended", counted(found, "thing")),
        }
    ))?;
    Ok(())
}
