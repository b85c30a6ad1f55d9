//! Making a bundle.

use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::Serialize;

use super::parts::{self, PartReader, PartWriter};
use super::{Error, Manifest, SecretKey};
use crate::digest::HashingReader;
use crate::store::Store;

/// Size in bytes of the pieces in which a bundle is written.
const PIECE: usize = 1 << 20;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// The files of the bundle: one, or its parts.
    pub files: Vec<PathBuf>,
    /// The signature beside it, where it is signed.
    pub signature: Option<PathBuf>,
    /// Size of the bundle in bytes, over all parts.
    pub size: u64,
}

/// Writes a bundle. Every wheel is hashed on its way: a damaged one ends the export, and leaves nothing behind.
pub fn export(
    store: &Store,
    manifest: &Manifest,
    bundle: &Path,
    key: Option<&SecretKey>,
    split: Option<u64>,
    progress: &mut dyn FnMut(&str),
) -> Result<Exported, Error> {
    let wrong = |error: io::Error| Error::io(bundle)(error);
    let mut archive = tar::Builder::new(BufWriter::with_capacity(PIECE, PartWriter::new(bundle, split)));
    archive.mode(tar::HeaderMode::Deterministic);
    let mut text = serde_json::to_vec(manifest).map_err(|error| wrong(error.into()))?;
    text.push(b'\n');
    let comment = format!("jetwheel bundle of site {}, snapshot {}", manifest.site, manifest.snapshot);
    append(&mut archive, "manifest.json", text.len() as u64, text.as_slice()).map_err(wrong)?;
    if let Some(key) = key {
        let signature = key.sign(text.as_slice(), &comment).map_err(wrong)?;
        append(&mut archive, "manifest.json.minisig", signature.len() as u64, signature.as_bytes())
            .map_err(wrong)?;
    }
    drop(text);
    for wheel in &manifest.wheels {
        progress(&wheel.file);
        let file = store.open_blob(&wheel.sha256)?;
        // A file that grew or shrank would spoil the archive; its digest tells all the same.
        let mut reader = HashingReader::new(file.take(wheel.size));
        append(&mut archive, &wheel.path(), wheel.size, &mut reader).map_err(wrong)?;
        let (found, count) = reader.finish();
        if found != wheel.sha256 || count != wheel.size {
            let found =
                format!("its bytes in the store have the sha256 {found}: jetwheel verify --repair mends it");
            return Err(Error::Damaged { file: wheel.file.clone(), found });
        }
    }
    let out = archive.into_inner().and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error));
    let out = out.map_err(wrong)?;
    let size = out.total();
    let path = parts::signature(bundle);
    if path.is_file() {
        // That of an older bundle of this name.
        fs::remove_file(&path).map_err(Error::io(&path))?;
    }
    let files = out.finish().map_err(wrong)?;
    let mut signature = None;
    if let Some(key) = key {
        let text = key.sign(PartReader::open(bundle)?, &comment).map_err(wrong)?;
        let file = fs::File::create(&path);
        let written =
            file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(Error::io(&path))?;
        signature = Some(path);
    }
    Ok(Exported { files, signature, size })
}

fn append<W: Write>(archive: &mut tar::Builder<W>, name: &str, size: u64, data: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(size);
    archive.append_data(&mut header, name, data)
}
