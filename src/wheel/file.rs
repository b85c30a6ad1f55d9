//! Inspecting files: the one place of this layer that opens any.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

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

fn open(path: &Path) -> Result<(String, fs_err::File), Error> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    match fs_err::File::open(path) {
        Ok(file) => Ok((name, file)),
        Err(source) => Err(Error::Io { file: name, source }),
    }
}
