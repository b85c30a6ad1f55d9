//! One pass over the bytes of one member: CRC-32, the digest that RECORD states, and the scan, all at once.

use std::ops::ControlFlow;
use std::sync::mpsc;

use flate2::Crc;
use sha2::Digest as _;

use super::archive::{Entry, Source};
use super::inflate::{CHUNK, InflateError, Inflater, Whole};
use super::record::Digest;
use super::{Damage, DamageCode};
use crate::fatbin::{Finish, Format, Reread, Scan, Scanner};
use crate::wording::with_causes;

/// Buffers on their way between two threads that share the work on one large member.
const BUFFERS: usize = 6;

/// What RECORD says of a member.
#[derive(Debug, Clone, Default)]
pub(super) struct Stated {
    /// Whether it has a line.
    pub(super) listed: bool,
    /// The digest, where it states one.
    pub(super) digest: Option<Digest>,
    /// The size in bytes, where it states one.
    pub(super) size: Option<u64>,
}

/// What reading a member yields.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What it holds; none where that is nothing of interest, or its bytes could not be had.
    pub(super) scan: Option<Box<Scan>>,
    /// What is wrong with it.
    pub(super) damage: Vec<Damage>,
}

/// Memory for reading members one after another.
pub(super) struct Buffers {
    inflater: Inflater,
    output: Vec<u8>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self { inflater: Inflater::new(), output: vec![0; CHUNK] }
    }
}

/// Reads a member. Where `shared`, a second thread digests and scans what the first one inflates.
pub(super) fn read(
    source: &dyn Source,
    entry: &Entry,
    stated: &Stated,
    buffers: &mut Buffers,
    shared: bool,
    progress: &(dyn Fn(u64) + Sync),
) -> Outcome {
    let pass = Pass::new(entry, stated);
    let (read, pass) = if shared {
        read_shared(source, entry, pass, buffers, progress)
    } else {
        read_alone(source, entry, pass, buffers, progress)
    };
    let damaged = |text| Damage { code: DamageCode::Damaged, member: Some(entry.path.clone()), text };
    let whole = match read {
        Ok(whole) => whole,
        Err(error) => return Outcome { scan: None, damage: vec![damaged(with_causes(&error))] },
    };
    let (finish, mut damage) = pass.finish(&whole, entry, stated);
    let scan = match finish {
        Finish::Done(scan) => Ok(scan),
        Finish::Reread(reread) => read_again(source, entry, reread, buffers),
    };
    match scan {
        Ok(scan) => {
            damage.extend(scan.damage.iter().map(|error| damaged(error.to_string())));
            let nothing = scan.format == Format::Other
                && scan.rows.is_empty()
                && scan.bare_cubins.is_empty()
                && scan.compiler.is_none()
                && scan.dlopened.is_empty();
            // Most members are Python files: they would fill the memory with nothing.
            Outcome { scan: (!nothing).then(|| Box::new(scan)), damage }
        }
        Err(error) => {
            damage.push(damaged(with_causes(&error)));
            Outcome { scan: None, damage }
        }
    }
}

/// The whole bytes of a small member, unless it is larger than `cap`; its CRC-32 is checked.
pub(super) fn read_small(
    source: &dyn Source,
    entry: &Entry,
    cap: u64,
    buffers: &mut Buffers,
) -> Result<Vec<u8>, Damage> {
    let damaged = |text| Damage { code: DamageCode::Damaged, member: Some(entry.path.clone()), text };
    if entry.size > cap {
        return Err(damaged(format!("{} bytes, expected at most {cap}", entry.size)));
    }
    let mut bytes = Vec::new();
    let mut crc = Crc::new();
    let read = buffers.inflater.read_whole(source, entry, &mut buffers.output, &mut |buffer, filled| {
        let chunk = buffer.get(..filled).unwrap_or_default();
        crc.update(chunk);
        bytes.extend_from_slice(chunk);
        ControlFlow::Continue(())
    });
    let Whole { .. } = read.map_err(|error| damaged(with_causes(&error)))?;
    if crc.sum() != entry.crc32 {
        return Err(damaged(wrong_crc(crc.sum(), entry.crc32)));
    }
    Ok(bytes)
}

fn read_alone(
    source: &dyn Source,
    entry: &Entry,
    mut pass: Pass,
    buffers: &mut Buffers,
    progress: &(dyn Fn(u64) + Sync),
) -> (Result<Whole, InflateError>, Pass) {
    let read = buffers.inflater.read_whole(source, entry, &mut buffers.output, &mut |buffer, filled| {
        pass.feed(buffer.get(..filled).unwrap_or_default());
        progress(filled as u64);
        ControlFlow::Continue(())
    });
    (read, pass)
}

fn read_shared(
    source: &dyn Source,
    entry: &Entry,
    mut pass: Pass,
    buffers: &mut Buffers,
    progress: &(dyn Fn(u64) + Sync),
) -> (Result<Whole, InflateError>, Pass) {
    std::thread::scope(|scope| {
        let (full, to_scan) = mpsc::sync_channel::<(Vec<u8>, usize)>(BUFFERS);
        let (empty, to_fill) = mpsc::sync_channel::<Vec<u8>>(BUFFERS);
        for _ in 1..BUFFERS {
            // The channel has room for all buffers, and both its ends are alive.
            let _sent = empty.try_send(vec![0; CHUNK]);
        }
        let scanning = scope.spawn(move || {
            for (buffer, filled) in to_scan {
                pass.feed(buffer.get(..filled).unwrap_or_default());
                progress(filled as u64);
                // The channel has room for all buffers; none is needed any more where the other end is gone.
                let _ = empty.try_send(buffer);
            }
            pass
        });
        let read = buffers.inflater.read_whole(source, entry, &mut buffers.output, &mut |buffer, filled| {
            // Either channel's other end goes before its time only where that thread panicked.
            let Ok(other) = to_fill.recv() else { return ControlFlow::Break(()) };
            let chunk = std::mem::replace(buffer, other);
            match full.send((chunk, filled)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        drop(full);
        match scanning.join() {
            Ok(pass) => (read, pass),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read_again(
    source: &dyn Source,
    entry: &Entry,
    mut reread: Reread,
    buffers: &mut Buffers,
) -> Result<Scan, InflateError> {
    let _as_far_as_it_asked =
        buffers.inflater.read(source, entry, &mut buffers.output, &mut |buffer, filled| {
            reread.feed(buffer.get(..filled).unwrap_or_default())
        })?;
    Ok(reread.finish())
}

fn wrong_crc(found: u32, expected: u32) -> String {
    format!("CRC-32 {found:08x}, expected {expected:08x} as the zip directory states")
}

/// Everything that sees the bytes of a member as they go by.
struct Pass {
    crc: Crc,
    digest: Option<DigestPass>,
    scanner: Scanner,
}

/// A digest in progress.
enum DigestPass {
    Sha256(sha2::Sha256),
    Sha384(sha2::Sha384),
    Sha512(sha2::Sha512),
}

impl DigestPass {
    /// Begins a digest of the same algorithm as one that is stated.
    fn like(stated: &Digest) -> Self {
        match stated {
            Digest::Sha256(_) => Self::Sha256(sha2::Sha256::new()),
            Digest::Sha384(_) => Self::Sha384(sha2::Sha384::new()),
            Digest::Sha512(_) => Self::Sha512(sha2::Sha512::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(digest) => digest.update(bytes),
            Self::Sha384(digest) => digest.update(bytes),
            Self::Sha512(digest) => digest.update(bytes),
        }
    }

    fn finish(self) -> Digest {
        match self {
            Self::Sha256(digest) => Digest::Sha256(digest.finalize().into()),
            Self::Sha384(digest) => Digest::Sha384(Box::new(digest.finalize().into())),
            Self::Sha512(digest) => Digest::Sha512(Box::new(digest.finalize().into())),
        }
    }
}

impl Pass {
    fn new(entry: &Entry, stated: &Stated) -> Self {
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        Self {
            crc: Crc::new(),
            digest: stated.digest.as_ref().map(DigestPass::like),
            scanner: Scanner::new(name, entry.size),
        }
    }

    fn feed(&mut self, chunk: &[u8]) {
        self.crc.update(chunk);
        if let Some(digest) = &mut self.digest {
            digest.update(chunk);
        }
        self.scanner.feed(chunk);
    }

    /// Compares what was computed with what is stated.
    fn finish(self, _whole: &Whole, entry: &Entry, stated: &Stated) -> (Finish, Vec<Damage>) {
        let mut damage = Vec::new();
        let member = || Some(entry.path.clone());
        if self.crc.sum() != entry.crc32 {
            let text = wrong_crc(self.crc.sum(), entry.crc32);
            damage.push(Damage { code: DamageCode::Damaged, member: member(), text });
        }
        if let (Some(found), Some(expected)) = (self.digest.map(DigestPass::finish), &stated.digest)
            && found != *expected
        {
            let text = format!("{}, expected {} as RECORD states", found.text(), expected.text());
            damage.push(Damage { code: DamageCode::HashMismatch, member: member(), text });
        }
        if let Some(size) = stated.size.filter(|&size| size != entry.size) {
            let text = format!("{} bytes, expected {size} as RECORD states", entry.size);
            damage.push(Damage { code: DamageCode::HashMismatch, member: member(), text });
        }
        (self.scanner.finish(), damage)
    }
}
