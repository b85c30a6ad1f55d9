//! Inspecting files: the one place of this layer that opens any.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt as _;

use super::inspect::{inspect_file_source, inspect_wheel_source};
use super::{Error, InspectOptions, Inspection, Source};

impl Source for fs_err::File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file().read_at(buffer, at)
    }

    fn size(&self) -> io::Result<u64> {
        self.file().metadata().map(|metadata| metadata.len())
    }
}

/// Inspects a wheel.
///
/// The file is read once, by several threads, and never as a whole into memory. What is wrong with its content is
/// damage in the facts; an error is what cannot be read as a wheel at all.
pub fn inspect_wheel(path: &Path, options: &InspectOptions<'_>) -> Result<Inspection, Error> {
    let (name, file) = open(path)?;
    inspect_wheel_source(&name, &file, options)
}

/// Inspects a wheel that lies under another name than its own: a spooled file, or a blob.
pub fn inspect_wheel_as(name: &str, path: &Path, options: &InspectOptions<'_>) -> Result<Inspection, Error> {
    let (_, file) = open(path)?;
    inspect_wheel_source(name, &file, options)
}

/// Inspects a loose file: an ELF file, cubin, fatbinary, PTX file or archive.
pub fn inspect_file(path: &Path, options: &InspectOptions<'_>) -> Result<Inspection, Error> {
    let (name, file) = open(path)?;
    inspect_file_source(&name, &file, options)
}

/// Opens a regular file. A pipe would not open before someone writes into it, and a device may never end.
fn open(path: &Path) -> Result<(String, fs_err::File), Error> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let opened = fs_err::OpenOptions::new().read(true).custom_flags(nonblock).open(path);
    let file = opened.and_then(|file| {
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    });
    match file {
        Ok(file) => Ok((name, file)),
        Err(source) => Err(Error::Io { file: name, source }),
    }
}
