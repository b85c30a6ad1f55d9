//! `jetwheel explain`: every known file of a project, with its verdict for a device.

use std::fmt::Write as _;
use std::sync::Arc;

use pep440_rs::VersionSpecifiers;
use pep508_rs::{Requirement, VersionOrUrl};

use super::console::one_line;
use super::remote::{Problem, Remote, segment};
use super::{Answer, Context, Format, Usage, devices, snapshot};
use crate::policy::{ExplainedFile, Explanation, code_name};
use crate::server::api::projects::{File, Told};
use crate::server::in_force::InForce;
use crate::server::state::nearest;
use crate::server::verdicts::{Terms, Verdicts};
use crate::wheel::ProjectName;

/// Arguments of `jetwheel explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel explain torch --device orin-jp6.2
  jetwheel explain 'torch>=2.5,<2.9' --device orin-jp6.2
  jetwheel explain torchvision --device thor-jp7.0 --format json
  jetwheel explain torch --device orin-jp6.2@stable           what the channel stable lists

Exit code 1: no known file of the project fits the device and the requirement.")]
pub struct Arguments {
    /// A project, or a requirement such as 'torch>=2.5'
    #[arg(value_name = "REQUIREMENT")]
    requirement: String,
    /// Id of the device profile, or ID@SNAPSHOT for what a snapshot or a channel lists
    #[arg(long, value_name = "ID")]
    device: String,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let requirement: Requirement = arguments
        .requirement
        .parse()
        .map_err(|error| Usage(format!("{:?} is no requirement: {error}", arguments.requirement)))?;
    let wanted = match requirement.version_or_url {
        None => None,
        Some(VersionOrUrl::VersionSpecifier(specifiers)) => Some(specifiers),
        Some(VersionOrUrl::Url(_)) => {
            return Err(Usage(
                "explain takes a project with versions, not a URL: inspect reads a file".to_owned(),
            )
            .into());
        }
    };
    let project: ProjectName = requirement.name.to_string().parse()?;
    let explanation = match context.remote() {
        Some(remote) => ask(&remote, &project, wanted.as_ref(), &arguments.device, context)?,
        None => look(&project, wanted.as_ref(), &arguments.device, context)?,
    };
    match context.format {
        Format::Json => context.console.print_json(&explanation)?,
        Format::Text => context.console.print(text(&explanation, context.console.width))?,
    }
    let any = explanation.files.iter().any(|file| file.listed);
    Ok(if any { Answer::Yes } else { Answer::No })
}

/// Asks a mirror elsewhere.
fn ask(
    remote: &Remote,
    project: &ProjectName,
    wanted: Option<&VersionSpecifiers>,
    device: &str,
    context: &mut Context,
) -> anyhow::Result<Explanation> {
    let wanted = wanted.map(ToString::to_string);
    let versions = wanted.iter().map(|wanted| ("versions", wanted.as_str()));
    let query: Vec<(&str, &str)> = std::iter::once(("device", device)).chain(versions).collect();
    let none = |device: &str| Explanation {
        project: project.to_string(),
        device: device.to_owned(),
        files: Vec::new(),
    };
    match remote.get::<Told<File>>(&format!("projects/{}", segment(project.as_str())), &query) {
        Ok(told) => {
            let told: Vec<Explanation> = told.into();
            Ok(told.into_iter().next().unwrap_or_else(|| none(device)))
        }
        Err(Problem { kind: Some(kind), detail, .. }) if kind == "no-such-project" => {
            context.console.say(detail)?;
            Ok(none(snapshot::split(device).0))
        }
        Err(problem) => Err(problem.into()),
    }
}

/// Looks into the store.
fn look(
    project: &ProjectName,
    wanted: Option<&VersionSpecifiers>,
    device: &str,
    context: &mut Context,
) -> anyhow::Result<Explanation> {
    let policy = context.policy()?;
    let (device, selector) = snapshot::split(device);
    let device = devices::find(&policy, device)?;
    let store = context.store()?;
    let scope = snapshot::scope(selector, context)?;
    let (verdicts, id) = (Verdicts::new(Arc::clone(&store)), device.id.clone());
    let in_force = InForce::first(policy.clone());
    let terms = Terms { device, in_force: &in_force, scope: &scope };
    if let Some(explanation) = verdicts.explain(project, terms, wanted)? {
        return Ok(explanation);
    }
    let known = scope.projects().map_or_else(|| store.projects(false), Ok)?;
    let nearest = nearest(project.as_str(), &known).join(", ");
    let hint =
        if nearest.is_empty() { String::new() } else { format!("; the nearest known ones are {nearest}") };
    let who = scope.id().map_or_else(|| "the store".to_owned(), |id| format!("the snapshot {id}"));
    context.console.say(format_args!("{who} knows no file of {project}{hint}"))?;
    Ok(Explanation { project: project.to_string(), device: id, files: Vec::new() })
}

/// Width of the longest verdict.
const VERDICT: usize = 9;

/// Head of the last column.
const FIRST_REASON: &str = "first reason";

/// The table of all files, then the reasons and notes of each in full.
fn text(explanation: &Explanation, width: usize) -> String {
    let files = &explanation.files;
    let version = files.iter().map(|file| file.version.chars().count()).max().unwrap_or(0).clamp(7, 24);
    let first_code =
        |file: &ExplainedFile| file.reasons.first().map(|reason| code_name(&reason.code)).unwrap_or_default();
    let code = files.iter().map(|file| first_code(file).len()).max().unwrap_or(0).max(FIRST_REASON.len());
    let room =
        width.saturating_sub(version.saturating_add(VERDICT).saturating_add(code).saturating_add(6)).max(16);
    let name = files.iter().map(|file| file.file.chars().count()).max().unwrap_or(0).clamp(4, room);
    let mut out = String::new();
    if files.is_empty() {
        return out;
    }
    let mut row = |columns: [&str; 4]| {
        let [first, second, third, fourth] = columns;
        let line = format!(
            "{:version$}  {:name$}  {third:VERDICT$}  {fourth}",
            cut(first, version),
            cut(second, name)
        );
        out.push_str(line.trim_end());
        out.push('\n');
    };
    row(["version", "file", "verdict", FIRST_REASON]);
    for file in files {
        row([&file.version, &file.file, &file.verdict.to_string(), &first_code(file)]);
    }
    for file in files {
        out.push_str(&details(file, width));
    }
    out
}

/// The reasons and notes of one file, wrapped; a remedy that several reasons share is given once.
fn details(file: &ExplainedFile, width: usize) -> String {
    let mut out = String::new();
    if file.reasons.is_empty()
        && file.notes.is_empty()
        && file.reports.is_empty()
        && file.gone_since.is_none()
    {
        return out;
    }
    let _infallible = writeln!(out, "\n{}", one_line(&file.file));
    let mut put = |indent: usize, text: &str| {
        // Lines that go on are indented further; a very narrow console still gets some words.
        let room = width.saturating_sub(indent.saturating_add(HANGING)).max(20);
        for (index, line) in devices::wrapped(&one_line(text), room).iter().enumerate() {
            let indent = if index == 0 { indent } else { indent.saturating_add(HANGING) };
            let _infallible = writeln!(out, "{:indent$}{line}", "");
        }
    };
    let mut said = "";
    for (index, reason) in file.reasons.iter().enumerate() {
        let member = reason.member.as_ref().map(|member| format!("{member}: ")).unwrap_or_default();
        put(2, &format!("{}: {member}{}", code_name(&reason.code), reason.text));
        let next = file.reasons.get(index.saturating_add(1)).map(|reason| reason.remedy.as_str());
        if !reason.remedy.is_empty() && reason.remedy != said && next != Some(&reason.remedy) {
            put(4, &reason.remedy);
            said = &reason.remedy;
        }
    }
    for note in &file.notes {
        put(2, &format!("note {}: {}", code_name(&note.code), note.text));
    }
    if let Some(since) = &file.gone_since {
        put(2, &format!("gone upstream since {since}: kept here"));
    }
    for report in &file.reports {
        let on = report.gpu.as_deref().unwrap_or("its CPU alone");
        let how = if report.passed { "passed" } else { "FAILED" };
        put(2, &format!("report of {}: {how} on {on}", report.time));
        if !report.passed {
            put(4, "jetwheel advisories --suggested prints a file that warns of it or hides it");
        }
    }
    out
}

/// By how many columns the second and later lines of a wrapped text are indented further.
const HANGING: usize = 4;

/// A text cut to a width, with a mark where something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}
