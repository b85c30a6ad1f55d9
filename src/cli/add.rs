//! `jetwheel add`.

use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use serde::Serialize;

use super::console::one_line;
use super::{Answer, Console, Context, Format, snapshot};
use crate::digest::{HashingReader, Sha256};
use crate::store::{Offered, Put, SnapshotId, Store};
use crate::wheel::{Facts, GpuClass, ProjectName, Size, WheelFilename};

/// How deep folders are searched; deeper ones are a loop of mounts, not a collection of wheels.
const DEEPEST: usize = 64;

/// How much is copied at once, in bytes.
const COPIED: usize = 256 << 10;

/// Arguments of `jetwheel add`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Wheels are copied, never linked. Folders are searched for wheels with all their subfolders; symbolic links in them are \
not followed. A damaged wheel is not taken in; the others are.
Exit code: 0 if all were taken in; 1 if one was refused; 3 if one is not there or could not be read as a wheel.

Examples:
  jetwheel add torch-2.8.0-cp310-cp310-linux_aarch64.whl
  jetwheel add ./wheels /mnt/usb
  jetwheel add ./wheels --format json")]
pub struct Arguments {
    /// Wheels, or folders with wheels
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// What became of the wheels.
#[derive(Debug, Default, Serialize)]
struct Summary {
    added: Vec<Taken>,
    known: Vec<Taken>,
    refused: Vec<Refused>,
    /// The snapshot that was made of it; none where nothing changed.
    snapshot: Option<SnapshotId>,
}

#[derive(Debug, Serialize)]
struct Taken {
    file: String,
    sha256: Sha256,
    size: u64,
    project: Option<ProjectName>,
    version: Option<String>,
    gpu: GpuClass,
}

#[derive(Debug, Serialize)]
struct Refused {
    file: String,
    reason: String,
    /// Whether it could not be read at all, so that nobody knows whether it is a good wheel.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unreadable: bool,
}

/// Why a file is not taken in.
enum Because {
    /// It is no wheel, or a damaged one.
    Refused(String),
    /// It could not be read as a wheel at all.
    Unreadable(String),
}

impl Taken {
    fn new(facts: &Facts) -> Self {
        Self {
            file: facts.file.clone(),
            sha256: facts.sha256,
            size: facts.size,
            project: facts.project.clone(),
            version: facts.version.clone(),
            gpu: facts.gpu,
        }
    }
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let mut wheels = Vec::new();
    for path in &arguments.paths {
        let path = context.path(path);
        // Only here are links followed: whoever names one means what it points to.
        let kind = Path::metadata(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
        if kind.is_dir() {
            search(&path, 0, &mut wheels, &mut context.console)?;
        } else {
            wheels.push(path);
        }
    }
    let store = context.store()?;
    let mut summary = Summary::default();
    let mut failure = None;
    for (number, path) in wheels.iter().enumerate() {
        let place = format_args!("[{}/{}]", number + 1, wheels.len());
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let taken = match take(&store, path) {
            Ok(taken) => taken,
            // It concerns all that would follow; what was taken in before it is told of all the same.
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        match taken {
            Ok((Put::New, taken)) => {
                context.console.say(format_args!("{place} added {file}"))?;
                summary.added.push(taken);
            }
            Ok((Put::Known, taken)) => {
                context.console.say(format_args!("{place} known {file}"))?;
                summary.known.push(taken);
            }
            Err(because) => {
                let (reason, unreadable) = match because {
                    Because::Refused(reason) => (reason, false),
                    Because::Unreadable(reason) => (reason, true),
                };
                context.console.say(one_line(&format!("{place} refused {file}: {reason}")))?;
                summary.refused.push(Refused { file, reason, unreadable });
            }
        }
    }
    summary.snapshot = snapshot::after_change(context, "add")?;
    if context.format == Format::Json {
        context.console.print_json(&summary)?;
    } else {
        print(&mut context.console, &summary)?;
    }
    context.console.flush()?;
    if let Some(error) = failure {
        return Err(error);
    }
    match summary.refused.iter().filter(|refused| refused.unreadable).count() {
        0 if summary.refused.is_empty() => Ok(Answer::Yes),
        0 => Ok(Answer::No),
        count => anyhow::bail!("{count} of {} could not be read as wheels", wheels.len()),
    }
}

/// Collects the wheels of a folder, in order of their paths.
fn search(
    folder: &Path,
    depth: usize,
    wheels: &mut Vec<PathBuf>,
    console: &mut Console,
) -> anyhow::Result<()> {
    if depth > DEEPEST {
        console.say(format_args!(
            "passed over, for it lies more than {DEEPEST} folders deep: {}",
            one_line(&folder.display().to_string())
        ))?;
        return Ok(());
    }
    let mut entries = match fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(error) if depth > 0 => {
            console.say(format_args!("passed over: {}", one_line(&error.to_string())))?;
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        let wheel = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("whl"));
        if kind.is_dir() {
            search(&path, depth + 1, wheels, console)?;
        } else if kind.is_file() && wheel {
            wheels.push(path);
        } else if wheel {
            let what = if kind.is_symlink() { "a symbolic link" } else { "not a regular file" };
            let path = path.display().to_string();
            console.say(format_args!("passed over, for it is {what}: {}", one_line(&path)))?;
        }
    }
    Ok(())
}

/// Takes in one wheel, or says why not. An error is one of the store, which concerns all wheels.
fn take(store: &Store, path: &Path) -> anyhow::Result<Result<(Put, Taken), Because>> {
    let refused = |reason: String| Ok(Err(Because::Refused(reason)));
    let unreadable = |reason: String| Ok(Err(Because::Unreadable(reason)));

    let Some(file) = path.file_name().and_then(|name| name.to_str()) else {
        return refused("its name is not valid UTF-8".to_owned());
    };
    if let Err(error) = file.parse::<WheelFilename>() {
        return refused(error.kind.to_string());
    }
    // Without NONBLOCK, a pipe that took the place of a file would never open.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = fs::OpenOptions::new().read(true).custom_flags(nonblock).open(path);
    let opened = opened.and_then(|source| Ok((source.metadata()?, source)));
    let (found, source) = match opened {
        Ok(opened) => opened,
        Err(error) => return unreadable(error.to_string()),
    };
    if !found.is_file() {
        return refused("not a regular file".to_owned());
    }
    let mut spooled = store.spool_for(found.len())?;
    // No more than was there at the start, so that a file that grows ends.
    let mut source = HashingReader::new(source.take(found.len()));
    match copy(&mut source, &mut spooled) {
        Ok(()) => {}
        Err(Failed::Reading(error)) => return unreadable(format!("it cannot be read: {error}")),
        Err(Failed::Writing(error)) => {
            return Err(error).with_context(|| format!("{}: cannot be copied", path.display()));
        }
    }
    let (sha256, _) = source.finish();
    spooled.rewind()?;
    match store.offer(spooled, file, sha256, false)? {
        Offered::Taken(put, facts) => Ok(Ok((put, Taken::new(&facts)))),
        Offered::Refused(why) => refused(why),
        Offered::Unreadable(why) => unreadable(why),
        Offered::Exists(other) => refused(format!("another wheel has that name, sha256 {other}")),
    }
}

/// Which end of a copy failed.
enum Failed {
    /// The file at hand: the others can still be taken in.
    Reading(io::Error),
    /// The store's disk.
    Writing(io::Error),
}

fn copy(source: &mut impl io::Read, spooled: &mut tempfile::NamedTempFile) -> Result<(), Failed> {
    let mut buffer = vec![0; COPIED];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return spooled.flush().map_err(Failed::Writing),
            Ok(count) => {
                spooled.write_all(buffer.get(..count).unwrap_or_default()).map_err(Failed::Writing)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failed::Reading(error)),
        }
    }
}

fn print(console: &mut Console, summary: &Summary) -> anyhow::Result<()> {
    if !(summary.added.is_empty() && summary.known.is_empty()) {
        console.print(format_args!("{:<7} {:>8}  {:<8}  FILE\n", "RESULT", "SIZE", "GPU"))?;
    }
    let taken = summary.added.iter().map(|taken| ("added", taken));
    for (result, taken) in taken.chain(summary.known.iter().map(|taken| ("known", taken))) {
        console.print(format_args!(
            "{result:<7} {:>8}  {:<8}  {}\n",
            Size(taken.size),
            taken.gpu,
            taken.file
        ))?;
    }
    for refused in &summary.refused {
        let (file, reason) = (one_line(&refused.file), one_line(&refused.reason));
        console.print(format_args!("refused {file}\n        {reason}\n"))?;
    }
    console.print(format_args!(
        "{} added, {} known, {} refused\n",
        summary.added.len(),
        summary.known.len(),
        summary.refused.len()
    ))?;
    Ok(())
}
