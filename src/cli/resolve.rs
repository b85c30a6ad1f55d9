//! `jetwheel resolve`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;

use super::{Answer, Context, Format, Usage, devices, snapshot};
use crate::policy::DeviceProfile;
use crate::resolve::{
    Failure, Line, Lock, LockError, Request, Resolution, Target, json, pylock, read_requirements,
    requirements_txt,
};
use crate::server::in_force::InForce;
use crate::server::verdicts::{Terms, Verdicts};
use crate::wheel::Size;
use crate::wording::counted;

/// How deep requirements files may name each other.
const DEEPEST_FILES: usize = 16;

/// Width of the column of versions where all are short.
const SHORTEST_VERSION: usize = 12;

/// Arguments of `jetwheel resolve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel resolve torch torchvision --device orin-jp6.2
  jetwheel resolve 'torch>=2.4' -c constraints.txt --device thor-jp7.0 --output pylock > pylock.toml
  jetwheel resolve -r requirements.txt --device orin-jp6.2 --output requirements
  jetwheel resolve torch --device orin-jp6.2@stable        from what the channel stable lists; URLs lead there too
  jetwheel resolve -r pylock.toml --device orin-jp6.2      check a lock against what is there now")]
pub struct Arguments {
    /// What to install, such as 'torch>=2.4'
    #[arg(value_name = "REQUIREMENT", required_unless_present = "requirements")]
    wanted: Vec<String>,
    /// Device profile to resolve for, or ID@SNAPSHOT for what a snapshot or a channel lists
    #[arg(long, value_name = "ID")]
    device: String,
    /// Requirements file, or a pylock.toml made for this device
    #[arg(short, long = "requirement", value_name = "FILE")]
    requirements: Vec<PathBuf>,
    /// Constraints file: limits versions without asking for a project
    #[arg(short, long = "constraint", value_name = "FILE")]
    constraints: Vec<PathBuf>,
    /// Take pre-releases as readily as final releases
    #[arg(long)]
    pre: bool,
    /// Form of the set
    #[arg(long, value_enum, value_name = "FORM")]
    output: Option<Output>,
    /// Where the devices reach this mirror, for the URLs of the set
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

/// Forms of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A lock of PEP 751
    Pylock,
    /// A requirements file with hashes
    Requirements,
    /// JSON
    Json,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let policy = context.policy()?;
    let (id, selector) = snapshot::split(&arguments.device);
    let device = devices::find(&policy, id)?;
    let output = arguments.output.or((context.format == Format::Json).then_some(Output::Json));
    let wish = Wish {
        wanted: &arguments.wanted,
        requirements: &arguments.requirements,
        constraints: &arguments.constraints,
        prereleases: arguments.pre,
    };
    let request = match wish.read(device, context) {
        Ok(request) => request,
        Err(error) if is_other_device(&error) => {
            let text = format!("{error:#}");
            let error = serde_json::json!({"text": text, "causes": []});
            return refuse(context, &text, &error, device, output).map(|()| Answer::No);
        }
        Err(error) => return Err(error),
    };
    let listen = context.config.listen.as_deref().unwrap_or("127.0.0.1:8080");
    let base_url = match &arguments.base_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("http://{listen}"),
    };
    let device_url = match selector {
        Some(selector) => format!("{base_url}/{}@{selector}", device.id),
        None => format!("{base_url}/{}", device.id),
    };
    let store = context.store()?;
    let scope = snapshot::scope(selector, context)?;
    let in_force = InForce::first(policy.clone());
    let terms = Terms { device, in_force: &in_force, scope: &scope };
    let answer = Verdicts::new(store).resolve(&request, terms, &device_url);
    match answer {
        Ok(resolution) => print(context, &resolution, device, output, &device_url).map(|()| Answer::Yes),
        Err(Failure::Unsatisfiable(explanation)) => {
            let error = serde_json::to_value(&*explanation)?;
            refuse(context, &explanation.text, &error, device, output).map(|()| Answer::No)
        }
        Err(Failure::Request(error)) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            Err(Usage(format!("{error}{}", source.unwrap_or_default())).into())
        }
        Err(Failure::Limit(limit)) => {
            let text = limit.to_string();
            let error = serde_json::json!({"text": text, "causes": []});
            refuse(context, &text, &error, device, output).map(|()| Answer::No)
        }
        Err(Failure::Index(error)) => Err(error.into()),
    }
}

/// What a command line asks for.
pub(super) struct Wish<'a> {
    pub(super) wanted: &'a [String],
    pub(super) requirements: &'a [PathBuf],
    pub(super) constraints: &'a [PathBuf],
    pub(super) prereleases: bool,
}

impl Wish<'_> {
    /// Reads its texts and files as a request for a device; says what is ignored of them.
    pub(super) fn read(&self, device: &DeviceProfile, context: &mut Context) -> anyhow::Result<Request> {
        let mut request = Request { prereleases: self.prereleases, ..Request::default() };
        for text in self.wanted {
            request.requirements.push(text.parse().map_err(|error| Usage(format!("{error}")))?);
        }
        for (files, constrain) in [(self.requirements, false), (self.constraints, true)] {
            for file in files {
                let file = context.path(file);
                for note in read_file(&file, constrain, &device.id, &mut request, 0)? {
                    context.console.say(note)?;
                }
            }
        }
        Ok(request)
    }
}

fn is_other_device(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LockError::OtherDevice { .. }))
}

fn print(
    context: &mut Context,
    resolution: &Resolution,
    device: &DeviceProfile,
    output: Option<Output>,
    device_url: &str,
) -> anyhow::Result<()> {
    let target = Target::of(device);
    let index_url = format!("{device_url}/simple/");
    match output {
        Some(Output::Json) => context.console.print_json(&json(resolution, &device.id))?,
        Some(Output::Pylock) => context.console.print(pylock(resolution, &target, &index_url))?,
        Some(Output::Requirements) => {
            context.console.print(requirements_txt(resolution, &target, &index_url))?;
        }
        None => {
            let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or_default();
            let packages = &resolution.packages;
            let name = width(&mut packages.iter().map(|package| package.candidate.project.as_str().len()));
            let version =
                width(&mut packages.iter().map(|package| package.candidate.version_text.chars().count()))
                    .max(SHORTEST_VERSION);
            for package in packages {
                let candidate = &package.candidate;
                context.console.print(format_args!(
                    "{:name$}  {:version$}  {}\n",
                    candidate.project,
                    candidate.version_text,
                    Size(candidate.size.unwrap_or_default()),
                ))?;
            }
            let total = packages.iter().filter_map(|package| package.candidate.size).sum();
            context.console.print(format_args!(
                "{} for {}, {}\n",
                counted(packages.len(), "wheel"),
                device.id,
                Size(total)
            ))?;
        }
    }
    if output != Some(Output::Json) {
        for note in &resolution.notes {
            context.console.say(format_args!("note: {note}"))?;
        }
    }
    Ok(())
}

fn refuse(
    context: &mut Context,
    text: &str,
    error: &serde_json::Value,
    device: &DeviceProfile,
    output: Option<Output>,
) -> anyhow::Result<()> {
    match output {
        Some(Output::Json) => {
            context.console.print_json(&serde_json::json!({"device": device.id, "error": error}))?;
        }
        // What is asked for as a file must not hold an explanation instead.
        Some(Output::Pylock | Output::Requirements) => context.console.say(text)?,
        None => context.console.print(format_args!("{text}\n"))?,
    }
    Ok(())
}

/// Reads a requirements file, a constraints file or a lock into a request; yields what is ignored of it.
fn read_file(
    file: &Path,
    constrain: bool,
    device: &str,
    into: &mut Request,
    depth: usize,
) -> anyhow::Result<Vec<String>> {
    if depth > DEEPEST_FILES {
        return Err(
            Usage(format!("{}: requirements files name each other too deeply", file.display())).into()
        );
    }
    let text = fs_err::read_to_string(file).map_err(|error| Usage(error.to_string()))?;
    let mut notes = Vec::new();
    if file.extension().is_some_and(|extension| extension == "toml") {
        let lock = match Lock::read(&text, device) {
            Ok(lock) => lock,
            Err(error @ LockError::OtherDevice { .. }) => {
                return Err(error).with_context(|| file.display().to_string());
            }
            Err(error) => {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                return Err(
                    Usage(format!("{}: {error}{}", file.display(), source.unwrap_or_default())).into()
                );
            }
        };
        for pin in lock.pins {
            into.requirements
                .push(pin.parse().map_err(|error| Usage(format!("{}: {error}", file.display())))?);
        }
        return Ok(notes);
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let lines = read_requirements(&text).map_err(|error| Usage(format!("{}: {error}", file.display())))?;
    for line in lines {
        match line {
            Line::Requirement(text) => {
                let requirement =
                    text.parse().map_err(|error| Usage(format!("{}: {error}", file.display())))?;
                if constrain { &mut into.constraints } else { &mut into.requirements }.push(requirement);
            }
            Line::Requirements(other) => {
                notes.extend(read_file(&folder.join(other), constrain, device, into, depth + 1)?);
            }
            Line::Constraints(other) => {
                notes.extend(read_file(&folder.join(other), true, device, into, depth + 1)?);
            }
            Line::PreReleases => into.prereleases = true,
            Line::Ignored(option) => notes.push(format!("{}: {option} is ignored", file.display())),
        }
    }
    Ok(notes)
}
