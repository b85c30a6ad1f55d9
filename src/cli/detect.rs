//! `jetwheel detect`: which profile this machine has.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use super::{Answer, Context, Format, Usage};
use crate::policy::{Detection, SystemFiles, detect, detect_jetson_release};

/// The longest of the small files that is read, in bytes; they have some hundred.
const SMALL_CAP: u64 = 64 << 10;

/// The longest list of packages that is read, in bytes; a full JetPack has some 5 MB.
const PACKAGES_CAP: u64 = 64 << 20;

/// Links that are followed on the way to one file, as Linux does.
const MOST_LINKS: usize = 40;

/// Entries of a folder that are looked at for the CUDA runtime.
const MOST_ENTRIES: usize = 10_000;

/// Arguments of `jetwheel detect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel detect
  jetwheel detect --root /mnt/sdcard
  jetson_release -v | jetwheel detect --jetson-release -
  jetwheel detect --jetson-release pasted.txt --format json

Exit code: 0 if the profile is known; 1 if this is no Jetson, or its profile cannot be told.")]
pub struct Arguments {
    /// Folder with the system to look at: a mounted image, or a container's root
    #[arg(long, value_name = "DIR", default_value = "/", conflicts_with = "jetson_release")]
    root: PathBuf,
    /// Output of `jetson_release -v`, in a file or (-) on standard input
    #[arg(long, value_name = "FILE")]
    jetson_release: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let policy = context.policy()?;
    let detection = if let Some(file) = &arguments.jetson_release {
        detect_jetson_release(&pasted(file, context)?, &policy)
    } else {
        let root = context.path(&arguments.root);
        if !root.is_dir() {
            return Err(Usage(format!("{}: no such folder; --root names a folder", root.display())).into());
        }
        detect(&read_system(&root), &policy)
    };
    match context.format {
        Format::Json => context.console.print_json(&detection)?,
        Format::Text => print(&detection, context)?,
    }
    Ok(if detection.device.is_some() { Answer::Yes } else { Answer::No })
}

fn print(detection: &Detection, context: &mut Context) -> io::Result<()> {
    let answer = detection.device.as_deref().unwrap_or(
        "no Jetson profile: neither the device tree nor the release files name a known chip and release\n\
         Arm servers have profiles too, chosen by hand: see jetwheel devices",
    );
    context.console.print(format_args!("{answer}\n"))?;
    for evidence in &detection.evidence {
        context.console.print(format_args!("  {}: {}\n", evidence.source, evidence.found))?;
    }
    for note in &detection.notes {
        context.console.print(format_args!("  note: {}\n", note.text))?;
    }
    Ok(())
}

fn pasted(file: &Path, context: &Context) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        io::stdin().lock().take(SMALL_CAP).read_to_end(&mut bytes)?;
    } else {
        let file = fs_err::File::open(context.path(file)).map_err(|error| Usage(error.to_string()))?;
        file.take(SMALL_CAP).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the files that tell of a machine. Those that are not there, or cannot be read, say nothing.
fn read_system(root: &Path) -> SystemFiles {
    let small = |paths: &[&str]| paths.iter().find_map(|path| read(root, path, SMALL_CAP));
    SystemFiles {
        compatible: small(&["proc/device-tree/compatible", "sys/firmware/devicetree/base/compatible"]),
        model: small(&["proc/device-tree/model", "sys/firmware/devicetree/base/model"]),
        nv_tegra_release: small(&["etc/nv_tegra_release"]),
        dpkg_status: read(root, "var/lib/dpkg/status", PACKAGES_CAP),
        cuda_version: small(&["usr/local/cuda/version.json", "usr/local/cuda/version.txt"]),
        cudart: cudart(root),
        kernel_release: small(&["proc/sys/kernel/osrelease"]),
    }
}

/// The full name of the CUDA runtime: the longest, since the others are links to it.
fn cudart(root: &Path) -> Option<String> {
    let folder = resolve(root, "usr/local/cuda/lib64")?;
    let names = fs_err::read_dir(folder).ok()?.take(MOST_ENTRIES);
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("libcudart.so.")).max_by_key(String::len)
}

fn read(root: &Path, path: &str, cap: u64) -> Option<Vec<u8>> {
    let path = resolve(root, path)?;
    // A pipe or device could block for ever.
    fs_err::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    fs_err::File::open(path).ok()?.take(cap).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Where a path leads inside a root folder: links are followed as if the root were `/`, so that none leads out of it.
fn resolve(root: &Path, path: &str) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    let mut ahead: Vec<OsString> = parts(Path::new(path));
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        if part == ".." {
            inside.pop();
            continue;
        }
        let candidate = inside.join(&part);
        let full = root.join(&candidate);
        match fs_err::symlink_metadata(&full) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                if links > MOST_LINKS {
                    return None;
                }
                let target = fs_err::read_link(&full).ok()?;
                if target.is_absolute() {
                    inside = PathBuf::new();
                }
                ahead.extend(parts(&target));
            }
            Ok(_) => inside = candidate,
            Err(_) => return None,
        }
    }
    Some(root.join(inside))
}

/// The parts of a path, the last one first; without root, prefix and `.`.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    parts.collect::<Vec<_>>().into_iter().rev().collect()
}
