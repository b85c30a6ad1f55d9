//! Unpacking a bundle beside the store: nothing of it is seen before all of it is found right.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::manifest::LONGEST;
use super::parts::PartReader;
use super::{Error, Manifest, Packed};
use crate::digest::{Hasher, Sha256};

/// Size in bytes of the pieces in which a bundle is read.
const PIECE: usize = 256 << 10;

/// Size in bytes of a block of a tar file.
const BLOCK: u64 = 512;

/// The longest signature in a bundle, in bytes.
const LONGEST_SIGNATURE: u64 = 16 << 10;

/// The longest name of a member, in bytes: that of a wheel in its folder.
const LONGEST_PATH: u64 = 400;

/// What stands before the wheels.
pub(super) struct Start {
    pub(super) manifest: Manifest,
    /// The manifest, byte for byte.
    pub(super) text: Vec<u8>,
    pub(super) signature: Option<String>,
}

/// Where wheels are unpacked; none to look at them alone.
pub(super) struct Stage<'s> {
    pub(super) folder: Option<&'s Path>,
    /// Whether a wheel is in the store already.
    pub(super) held: &'s dyn Fn(&Packed) -> bool,
    pub(super) progress: &'s mut dyn FnMut(&str),
    /// Called with each wheel of the manifest, by its place in it, as soon as its bytes are found right.
    pub(super) found: &'s mut dyn FnMut(usize) -> Result<(), Error>,
}

/// Reads the manifest and its signature.
pub(super) fn start(bundle: &Path) -> Result<Start, Error> {
    let reader = PartReader::open(bundle)?;
    let next = reader.next_part();
    let mut archive = tar::Archive::new(BufReader::with_capacity(PIECE, reader));
    let cut = |item: &str| Error::Cut { item: item.to_owned(), part: next.clone() };
    let mut members = Members::of(&mut archive).map_err(Error::io(bundle))?;
    let first = members.next().ok_or_else(|| cut("its first member"))?;
    let (name, mut first) =
        first.map_err(|error| not_whole(&error, "its first member", next.as_deref(), bundle))?;
    if name != "manifest.json" {
        let found = "a bundle begins with manifest.json".to_owned();
        return Err(Error::Manifest { found });
    }
    let text = small(&mut first, LONGEST)
        .map_err(|error| not_whole(&error, "manifest.json", next.as_deref(), bundle))?;
    let manifest = Manifest::parse(&text)?;
    let mut signature = None;
    if let Some(Ok((name, mut second))) = members.next()
        && name == "manifest.json.minisig"
    {
        let item = "manifest.json.minisig";
        let bytes = small(&mut second, LONGEST_SIGNATURE)
            .map_err(|error| not_whole(&error, item, next.as_deref(), bundle))?;
        signature = Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(Start { manifest, text, signature })
}

/// Reads the whole archive: each wheel of the manifest has to be there, once, with the digest that it states.
///
/// Names in the archive lead nowhere: they are compared with those that the manifest allows, and files are written by digest.
pub(super) fn wheels(bundle: &Path, manifest: &Manifest, stage: &mut Stage<'_>) -> Result<(), Error> {
    let reader = PartReader::open(bundle)?;
    let (next, size) = (reader.next_part(), reader.size());
    let mut archive = tar::Archive::new(BufReader::with_capacity(PIECE, reader));
    let mut end = 0_u64;
    let mut missing: BTreeMap<String, (usize, &Packed)> =
        manifest.wheels.iter().enumerate().map(|place| (place.1.path(), place)).collect();
    let mut item = "manifest.json".to_owned();
    let mut piece = vec![0; PIECE];
    for (number, member) in Members::of(&mut archive).map_err(Error::io(bundle))?.enumerate() {
        let (name, mut entry) = member.map_err(|error| not_whole(&error, &item, next.as_deref(), bundle))?;
        end = entry.raw_file_position().saturating_add(entry.size()).next_multiple_of(BLOCK);
        if (number == 0 && name == "manifest.json") || (number == 1 && name == "manifest.json.minisig") {
            continue;
        }
        let stranger = |found| Error::Stranger { name: name.chars().take(80).collect(), found };
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(stranger("is no regular file"));
        }
        let Some((place, wheel)) = missing.remove(&name) else {
            return Err(stranger("the manifest does not speak of it, or it is there twice"));
        };
        item.clone_from(&wheel.file);
        if entry.header().size().ok() != Some(wheel.size) {
            return Err(stranger("has not the size that the manifest states"));
        }
        (stage.progress)(&wheel.file);
        unpack(&mut entry, wheel, stage, &mut piece).map_err(|error| match error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof => {
                Error::Cut { item: wheel.file.clone(), part: next.clone() }
            }
            other => other,
        })?;
        (stage.found)(place)?;
    }
    match missing.into_values().next() {
        // An archive that ends between two members just has fewer of them.
        Some((_, wheel)) => Err(Error::Cut { item: format!("front of {}", wheel.file), part: next }),
        // Two empty blocks end an archive.
        None if size < end.saturating_add(2 * BLOCK) => {
            Err(Error::Cut { item: "its last bytes".to_owned(), part: next })
        }
        None => Ok(()),
    }
}

/// The file that a wheel is unpacked to.
pub(super) fn staged(folder: &Path, sha256: &Sha256) -> PathBuf {
    folder.join(format!("{sha256}.whl"))
}

/// Hashes a wheel, and writes it to the folder where it is neither there nor in the store.
fn unpack(entry: &mut impl Read, wheel: &Packed, stage: &Stage<'_>, piece: &mut [u8]) -> Result<(), Error> {
    let place = stage.folder.filter(|_| !(stage.held)(wheel)).map(|folder| staged(folder, &wheel.sha256));
    let place = place.filter(|path| !is_there(path, wheel, piece));
    let temporary = place.as_ref().map(|path| path.with_extension("part"));
    let mut file = match &temporary {
        Some(path) => Some(fs::File::create(path).map_err(Error::io(path))?),
        None => None,
    };
    let mut hasher = Hasher::default();
    let mut count = 0_u64;
    loop {
        let read = match entry.read(piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Error::io(Path::new(&wheel.file))(error)),
        };
        let bytes = piece.get(..read).unwrap_or_default();
        hasher.update(bytes);
        count = count.saturating_add(read as u64);
        if let Some(file) = &mut file {
            file.write_all(bytes).map_err(Error::io(Path::new(&wheel.file)))?;
        }
    }
    if count != wheel.size {
        let early = io::Error::from(io::ErrorKind::UnexpectedEof);
        return Err(Error::io(Path::new(&wheel.file))(early));
    }
    let found = hasher.finish();
    if found != wheel.sha256 {
        if let Some(path) = &temporary {
            fs::remove_file(path).map_err(Error::io(path))?;
        }
        return Err(Error::Hash { file: wheel.file.clone(), found, stated: wheel.sha256 });
    }
    if let (Some(temporary), Some(place)) = (temporary, place) {
        fs::rename(&temporary, &place).map_err(Error::io(&place))?;
    }
    Ok(())
}

/// Whether an import that was broken off has unpacked the wheel already. It is hashed: a power cut may have taken its bytes.
fn is_there(path: &Path, wheel: &Packed, piece: &mut [u8]) -> bool {
    let Ok(mut file) = fs::File::open(path) else { return false };
    let mut hasher = Hasher::default();
    loop {
        match file.read(piece) {
            Ok(0) => return hasher.finish() == wheel.sha256,
            Ok(count) => hasher.update(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

/// The members of an archive with their names, as `export` writes them: a name of more than 100 bytes is a member of its own before
/// the one that it is of. The tar crate would read it into memory, and extended headers too, however long they are.
struct Members<'a, R: Read>(tar::Entries<'a, R>);

impl<'a, R: Read> Members<'a, R> {
    fn of(archive: &'a mut tar::Archive<R>) -> io::Result<Self> {
        Ok(Self(archive.entries()?.raw(true)))
    }
}

impl<'a, R: Read> Iterator for Members<'a, R> {
    type Item = io::Result<(String, tar::Entry<'a, R>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        let mut entry = match self.0.next()? {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        if entry.header().entry_type() != tar::EntryType::GNULongName {
            return Some(Ok((text(&entry.path_bytes()), entry)));
        }
        let name = match small(&mut entry, LONGEST_PATH) {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        Some(self.0.next()?.map(|entry| (text(&name), entry)))
    }
}

/// Reads a small member whole.
fn small<R: Read>(entry: &mut tar::Entry<'_, R>, limit: u64) -> io::Result<Vec<u8>> {
    let size = entry.header().size()?;
    if size > limit {
        return Err(io::Error::other(format!("has {size} bytes, at most {limit} are read")));
    }
    let mut bytes = Vec::new();
    entry.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// An error of the archive: one that ends too early is told from one that is none.
fn not_whole(error: &io::Error, item: &str, next: Option<&Path>, bundle: &Path) -> Error {
    let text = error.to_string();
    // The tar crate has sentences of its own for archives that end too early.
    if error.kind() == io::ErrorKind::UnexpectedEof
        || text.contains("unexpected EOF")
        || text.contains("failed to read entire block")
    {
        return Error::Cut { item: item.to_owned(), part: next.map(Path::to_owned) };
    }
    let found = format!("{}: {text}", bundle.display());
    Error::Damaged { file: format!("what comes after {item}"), found }
}
