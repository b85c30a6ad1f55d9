//! `jetwheel inspect`: what files contain, and on which devices that runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::console::one_line;
use super::{Answer, Context, Format, Usage};
use crate::policy::{DeviceProfile, Judgement, Policy, Verdict, judge};
use crate::wheel::{self, Facts, InspectOptions, Member, MemberKind};

/// From this size on a file is announced where no bar can be shown, in bytes: some seconds of work.
const ANNOUNCED: u64 = 256 << 20;

/// Names of images that are shown of one library; of more, the number is shown.
const SHOWN_IMAGES: usize = 16;

/// Arguments of `jetwheel inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel inspect torch-2.11.0-cp312-cp312-manylinux_2_28_aarch64.whl
  jetwheel inspect wheels/ --device orin-jp6.2 --device thor-jp7.0
  jetwheel inspect /usr/local/cuda/lib64/libcublasLt.so.12 --device orin-jp6.2
  jetwheel inspect kernel.cubin --format json

Exit code: 0 if every device takes every file; 1 if a device refuses one, or one is damaged; 3 if one cannot be read.")]
pub struct Arguments {
    /// Wheels, ELF files, .cubin, .fatbin, .ptx or .a files, and folders with such; links inside are not followed
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Device profile to judge the files for; may be repeated
    #[arg(long = "device", value_name = "ID")]
    devices: Vec<String>,
}

/// A file of the answer: its facts, and a verdict for each device.
#[derive(Debug, Serialize)]
struct FileAnswer {
    #[serde(flatten)]
    facts: Facts,
    verdicts: Vec<DeviceVerdict>,
}

#[derive(Debug, Serialize)]
struct DeviceVerdict {
    device: String,
    #[serde(flatten)]
    judgement: Judgement,
}

/// A file that cannot be read.
#[derive(Debug, Serialize)]
struct Unread {
    file: String,
    error: String,
}

#[derive(Debug, Serialize)]
struct AllAnswers {
    files: Vec<FileAnswer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Unread>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let policy = context.policy()?;
    let devices = arguments.devices.iter().map(|id| device(&policy, id)).collect::<Result<Vec<_>, _>>()?;
    let mut paths = Vec::new();
    let mut answers = AllAnswers { files: Vec::new(), errors: Vec::new() };
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
                    || verdicts.iter().any(|verdict| verdict.judgement.verdict == Verdict::Refuse);
                let answer = FileAnswer { facts, verdicts };
                match context.format {
                    Format::Text => {
                        let text = describe(&answer, context.console.width);
                        context.console.print(text)?;
                    }
                    Format::Json => answers.files.push(answer),
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

/// The profile of that id, or a usage error that names those most like it.
fn device<'a>(policy: &'a Policy, id: &str) -> Result<&'a DeviceProfile, Usage> {
    policy.device(id).ok_or_else(|| {
        let nearest = policy.nearest(id);
        let hint = if nearest.is_empty() {
            "jetwheel devices lists all".to_owned()
        } else {
            format!("nearest: {}", nearest.join(", "))
        };
        Usage(format!("no device {id:?}; {hint}"))
    })
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
    let size = fs_err::metadata(path)?.len();
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
            context.console.say(format_args!("inspecting {name} ({})", in_units(size)))?;
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

/// Decimal units, as download pages have them.
fn in_units(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", tenths(1_000)),
        1_000_000..1_000_000_000 => format!("{} MB", tenths(1_000_000)),
        _ => format!("{} GB", tenths(1_000_000_000)),
    }
}

/// A file as text: a headline, then what it holds, what is wrong with it, and the verdicts.
fn describe(answer: &FileAnswer, width: usize) -> String {
    let facts = &answer.facts;
    let mut text = format!("{}\n", facts.file);
    let mut line = Paragraph { text: &mut text, width };
    let mut summary = vec![format!("gpu: {}", facts.gpu), in_units(facts.size)];
    if let (Some(project), Some(version)) = (&facts.project, &facts.version) {
        summary.insert(0, format!("{project} {version}"));
    }
    let newest = |version: fn(&Member) -> &Option<String>| {
        facts.members.iter().filter_map(|member| version(member).as_deref()).max_by_key(|text| numbers(text))
    };
    if let Some(glibc) = newest(|member| &member.glibc) {
        summary.push(format!("needs glibc {glibc}"));
    }
    if let Some(glibcxx) = newest(|member| &member.glibcxx) {
        summary.push(format!("GLIBCXX {glibcxx}"));
    }
    if let Some(python) = &facts.requires_python {
        summary.push(format!("python {python}"));
    }
    line.put("", &summary.join(", "));
    line.put("", &format!("sha256 {}", facts.sha256));
    for (title, members) in images_by_title(facts) {
        line.put(&title, &members);
    }
    for compiler in &facts.compilers {
        let release = compiler.cuda.as_ref().map_or_else(String::new, |cuda| format!(" of CUDA {cuda}"));
        let targets: Vec<String> =
            compiler.targets.iter().map(|target| format!("compute_{}", target.0)).collect();
        line.put(&compiler.path, &format!("compiler{release}: {}", targets.join(" ")));
    }
    for damage in &facts.damage {
        let place = damage.member.as_ref().map_or_else(String::new, |member| format!("{member}: "));
        line.put("damage", &format!("{place}{}", damage.text));
    }
    let longest = answer.verdicts.iter().map(|verdict| verdict.device.len()).max().unwrap_or(0);
    for verdict in &answer.verdicts {
        let title = format!("{:longest$}  {:9}", verdict.device, verdict.judgement.verdict);
        line.put(&title, &reasons(&verdict.judgement));
    }
    text.push('\n');
    text
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// A line for each member with images; loose cubins, of which there can be thousands, are one line.
fn images_by_title(facts: &Facts) -> Vec<(String, String)> {
    let (mut loose, mut loose_images) = (0_u64, BTreeMap::<&str, u64>::new());
    let mut lines = Vec::new();
    for member in facts.members.iter().filter(|member| !member.images.is_empty()) {
        let single = matches!(member.kind, MemberKind::Cubin | MemberKind::Ptx | MemberKind::Fatbin);
        if single && facts.members.len() > 1 {
            loose += 1;
            for (image, count) in &member.images {
                *loose_images.entry(image).or_default() += count;
            }
            continue;
        }
        let registered = match member.registered_fatbins {
            0 => String::new(),
            count => format!("{count} registered: "),
        };
        let images = member.images.iter().map(|(image, count)| (image.as_str(), *count));
        lines.push((member.path.clone(), registered + &images_text(images)));
    }
    if loose > 0 {
        lines.push((format!("{loose} loose files"), images_text(loose_images.into_iter())));
    }
    lines
}

/// Images with how often: machine code before PTX, each by compute capability.
fn images_text<'a>(images: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut images: Vec<(&str, u64)> = images.collect();
    images.sort_by_key(|(image, _)| {
        let (kind, target) = image.split_once('_').unwrap_or((image, ""));
        let digits = target.trim_end_matches(char::is_alphabetic);
        (kind != "sm", kind, digits.parse().unwrap_or(u32::MAX), target)
    });
    let shown = images.iter().take(SHOWN_IMAGES).map(|(image, count)| format!("{image}×{count}"));
    let mut text = shown.collect::<Vec<_>>().join(" ");
    if images.len() > SHOWN_IMAGES {
        let _infallible = write!(text, " and {} others", images.len() - SHOWN_IMAGES);
    }
    text
}

fn reasons(judgement: &Judgement) -> String {
    let mut texts: Vec<String> = judgement
        .reasons
        .iter()
        .map(|reason| match reason.remedy.as_str() {
            "" => reason.text.clone(),
            remedy => format!("{} Instead: {remedy}", reason.text),
        })
        .collect();
    texts.extend(judgement.notes.iter().map(|note| note.text.clone()));
    texts.join(" ")
}

/// Lines of a title and a text, wrapped at the width of the console.
struct Paragraph<'a> {
    text: &'a mut String,
    width: usize,
}

impl Paragraph<'_> {
    /// Indent of titles.
    const TITLE: &'static str = "  ";
    /// Indent of texts below a title.
    const BODY: &'static str = "      ";

    fn put(&mut self, title: &str, text: &str) {
        let mut line = Self::TITLE.to_owned();
        let mut begun = false;
        if !title.is_empty() {
            line.push_str(title);
            begun = true;
        }
        for word in text.split_whitespace() {
            let gap = match (begun, line.ends_with(title) && !title.is_empty()) {
                (false, _) => 0,
                (true, true) => 2,
                (true, false) => 1,
            };
            if begun && line.chars().count() + gap + word.chars().count() > self.width {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
                Self::BODY.clone_into(&mut line);
                line.push_str(word);
            } else {
                line.extend(std::iter::repeat_n(' ', gap));
                line.push_str(word);
            }
            begun = true;
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_width() {
        let mut text = String::new();
        let mut line = Paragraph { text: &mut text, width: 30 };
        line.put("lib/libtorch_cuda.so", "444 registered: sm_80×444 sm_90×444");
        line.put("", "plain words that do not fit on one line");
        insta::assert_snapshot!(text, @r"
          lib/libtorch_cuda.so  444
              registered: sm_80×444
              sm_90×444
          plain words that do not fit
              on one line
        ");
        assert!(text.lines().all(|line| line.chars().count() <= 30));
    }

    #[test]
    fn sizes_are_in_decimal_units() {
        assert_eq!(
            [7, 1_500, 542_851_226, 3_000_000_000].map(in_units),
            ["7 bytes", "1.5 kB", "542.8 MB", "3.0 GB"]
        );
    }
}
