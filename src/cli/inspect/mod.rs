//! `jetwheel inspect`: what files contain, and on which devices that runs.

mod answer;
mod text;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};

use self::answer::{AllAnswers, DeviceVerdict, FileAnswer, Unread};
use self::text::describe;
use super::console::one_line;
use super::{Answer, Context, Format, devices};
use crate::policy::{Policy, Verdict, judge};
use crate::wheel::{self, Facts, InspectOptions, Size};

/// From this size on a file is announced where no bar can be shown, in bytes: some seconds of work.
const ANNOUNCED: u64 = 256 << 20;

/// Arguments of `jetwheel inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel inspect torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64.whl
  jetwheel inspect wheels/ --device orin-jp6.2 --device thor-jp7.0
  jetwheel inspect /usr/local/cuda/lib64/libcublasLt.so.12 --device orin-jp6.2
  jetwheel inspect kernel.cubin --format json

Exit code: 0 if every device takes every file; 1 if one is refused, partial (and not listed by policy) or damaged; \
3 if one cannot be read.")]
pub struct Arguments {
    /// Wheels, ELF files, .cubin, .fatbin, .ptx or .a files, and folders with such; links inside are not followed
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Device profile to judge the files for; may be repeated
    #[arg(long = "device", value_name = "ID")]
    devices: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let policy = context.policy()?;
    let devices =
        arguments.devices.iter().map(|id| devices::find(&policy, id)).collect::<Result<Vec<_>, _>>()?;
    let mut paths = Vec::new();
    let mut answers = AllAnswers::default();
    for path in &arguments.paths {
        collect(&context.path(path), &mut paths, &mut answers.errors);
    }
    if paths.is_empty() && answers.errors.is_empty() {
        context.console.say("no wheels and no files with GPU code there")?;
    }
    let mut no = false;
    for path in &paths {
        match inspect(path, context) {
            Ok(facts) => {
                let verdicts: Vec<_> = devices
                    .iter()
                    .map(|device| DeviceVerdict {
                        device: device.id.clone(),
                        judgement: judge(&facts, device, &policy),
                    })
                    .collect();
                no |= !facts.damage.is_empty()
                    || verdicts.iter().any(|verdict| !is_listed(&policy, &facts, verdict.judgement.verdict));
                match context.format {
                    Format::Text => {
                        let text = describe(&facts, &verdicts, context.console.width);
                        context.console.print(text)?;
                    }
                    Format::Json => answers.files.push(FileAnswer::new(facts, verdicts)),
                }
            }
            Err(error) => {
                let file = path.display().to_string();
                answers.errors.push(Unread { file, error: format!("{error:#}") });
            }
        }
    }
    if context.format == Format::Json {
        context.console.print_json(&answers)?;
    }
    context.console.flush()?;
    for unread in &answers.errors {
        context.console.say(format_args!("error: {}", one_line(&unread.error)))?;
    }
    match answers.errors.len() {
        0 if no => Ok(Answer::No),
        0 => Ok(Answer::Yes),
        count => anyhow::bail!("{count} could not be read"),
    }
}

/// Whether a device's index would list a file, if it is a wheel; else whether it runs.
fn is_listed(policy: &Policy, facts: &Facts, verdict: Verdict) -> bool {
    match &facts.project {
        Some(project) => policy.lists(project, verdict),
        None => verdict <= Verdict::AdmitJit,
    }
}

/// Adds a file, or the files below a folder that are worth a look, in order of their names. What below a folder cannot be
/// read is an error of its own.
fn collect(path: &Path, paths: &mut Vec<PathBuf>, errors: &mut Vec<Unread>) {
    if !path.is_dir() {
        // A missing file is told of when it is opened.
        paths.push(path.to_owned());
        return;
    }
    let mut folders = vec![path.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs_err::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut unread = |path: &Path, error: &io::Error| {
            errors.push(Unread { file: path.display().to_string(), error: error.to_string() });
        };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                unread(&folder, &error);
                continue;
            }
        };
        for entry in entries {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path),
                Ok(kind) if kind.is_file() => match is_worth_a_look(&path) {
                    Ok(true) => found.push(path),
                    Ok(false) => {}
                    Err(error) => unread(&path, &error),
                },
                Ok(_) => {}
                Err(error) => unread(&path, &error),
            }
        }
    }
    found.sort();
    paths.append(&mut found);
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known))
}

/// Whether a file in a folder is a wheel, or begins like an ELF file, a fatbinary or an archive.
fn is_worth_a_look(path: &Path) -> io::Result<bool> {
    const BEGINNINGS: [&[u8]; 3] = [b"\x7fELF", b"\x50\xed\x55\xba", b"!<arch>\n"];

    if has_extension(path, &["whl", "cubin", "fatbin", "ptx"]) {
        return Ok(true);
    }
    let mut front = Vec::new();
    fs_err::File::open(path)?.take(8).read_to_end(&mut front)?;
    Ok(BEGINNINGS.iter().any(|beginning| front.starts_with(beginning)))
}

fn inspect(path: &Path, context: &mut Context) -> anyhow::Result<Facts> {
    let size = path.metadata().with_context(|| format!("{}: cannot be read", path.display()))?.len();
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let bar = if context.console.interactive {
        let style = "{msg:40!} {bar:20} {bytes:>10} of {total_bytes:10} {eta:>4}";
        let bar = ProgressBar::no_length()
            .with_message(one_line(&name).into_owned())
            .with_style(ProgressStyle::with_template(style)?);
        bar.enable_steady_tick(Duration::from_millis(200));
        Some(bar)
    } else {
        if size >= ANNOUNCED {
            context.console.say(format_args!("inspecting {name} ({})", Size(size)))?;
        }
        None
    };
    let tell = |done, total| {
        if let Some(bar) = &bar {
            bar.set_length(total);
            bar.set_position(done);
        }
    };
    let options = InspectOptions { progress: Some(&tell), ..InspectOptions::default() };
    let inspection = if has_extension(path, &["whl"]) {
        wheel::inspect_wheel(path, &options)
    } else {
        wheel::inspect_file(path, &options)
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(inspection?.facts)
}
