//! The bytes of one member, front to back: read at their place, inflated, handed on in chunks.

use std::io;
use std::ops::ControlFlow;

use flate2::{Decompress, FlushDecompress, Status};

use super::archive::{Entry, Method, Source};

/// How many stored bytes are read at once.
const INPUT: usize = 128 << 10;

/// How many bytes are handed on at once: with them the pass over a chunk stays within a core's own cache.
pub(super) const CHUNK: usize = 128 << 10;

/// Why the bytes of a member cannot be had; offsets count from the start of the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum InflateError {
    /// The file cannot be read.
    #[error("byte {at:#x}: the file cannot be read")]
    Io {
        /// Offset.
        at: u64,
        /// Why.
        source: io::Error,
    },
    /// The file is shorter than its directory says.
    #[error("byte {at:#x}: the file ends within the member")]
    Ends {
        /// Offset.
        at: u64,
    },
    /// The deflated data makes no sense.
    #[error("byte {at:#x}: the deflated data is damaged")]
    Corrupt {
        /// Offset.
        at: u64,
    },
    /// The deflated data goes on where its size says that it has ended.
    #[error("byte {at:#x}: the deflated data does not end where the directory says")]
    Unfinished {
        /// Offset.
        at: u64,
    },
    /// The deflated data ends earlier than its size says.
    #[error("byte {at:#x}: the deflated data ends here, {left} bytes before the directory says")]
    Trailing {
        /// Offset.
        at: u64,
        /// How many bytes are left over.
        left: u64,
    },
    /// Whoever was handed the bytes did not take all of them.
    #[error("byte {at:#x}: reading was given up here")]
    GivenUp {
        /// Offset.
        at: u64,
    },
    /// The member has another size than the directory states.
    #[error("{found} bytes, expected {expected} as the zip directory states")]
    Size {
        /// Size found; where it was too large, the size at which reading stopped.
        found: u64,
        /// Size stated.
        expected: u64,
    },
}

/// Takes the filled front of a buffer. It may put another buffer of the same length in its place, so that chunks can
/// go to another thread without being copied.
pub(super) type Consume<'a> = dyn FnMut(&mut Vec<u8>, usize) -> ControlFlow<()> + 'a;

/// Proof that every byte of a member was handed on, and that there were as many as the directory states.
///
/// What is computed over a whole member, a CRC-32 or a digest, is compared with what is stated only where this is at
/// hand: of a member that was read in part it would say damage where there is none.
#[derive(Debug)]
#[must_use]
pub(super) struct Whole(());

/// Reads members one after another with the same memory.
pub(super) struct Inflater {
    input: Vec<u8>,
    state: Decompress,
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self { input: vec![0; INPUT], state: Decompress::new(false) }
    }

    /// Hands on all bytes of a member in chunks. A `consume` that stops before the end makes this fail.
    pub(super) fn read_whole(
        &mut self,
        source: &dyn Source,
        entry: &Entry,
        output: &mut Vec<u8>,
        consume: &mut Consume<'_>,
    ) -> Result<Whole, InflateError> {
        match self.read(source, entry, output, consume)? {
            ControlFlow::Continue(whole) => Ok(whole),
            ControlFlow::Break(at) => Err(InflateError::GivenUp { at }),
        }
    }

    /// Hands on the bytes of a member in chunks, until the end or until `consume` has had enough; yields the offset at
    /// which that was.
    pub(super) fn read(
        &mut self,
        source: &dyn Source,
        entry: &Entry,
        output: &mut Vec<u8>,
        consume: &mut Consume<'_>,
    ) -> Result<ControlFlow<u64, Whole>, InflateError> {
        match entry.method {
            Method::Stored => read_stored(source, entry, output, consume),
            Method::Deflated => self.read_deflated(source, entry, output, consume),
        }
    }

    fn read_deflated(
        &mut self,
        source: &dyn Source,
        entry: &Entry,
        output: &mut Vec<u8>,
        consume: &mut Consume<'_>,
    ) -> Result<ControlFlow<u64, Whole>, InflateError> {
        self.state.reset(false);
        let place = |state: &Decompress| entry.at.saturating_add(state.total_in());
        let mut input: &[u8] = &[];
        let mut filled: usize = 0;
        loop {
            let (read, made) = (self.state.total_in(), self.state.total_out());
            if input.is_empty() && read < entry.stored {
                input = fill(source, &mut self.input, entry, read)?;
            }
            let room = output.get_mut(filled..).unwrap_or_default();
            let status = self
                .state
                .decompress(input, room, FlushDecompress::None)
                .map_err(|_| InflateError::Corrupt { at: place(&self.state) })?;
            let taken = count(self.state.total_in().saturating_sub(read));
            let made = count(self.state.total_out().saturating_sub(made));
            input = input.get(taken..).unwrap_or_default();
            filled = filled.saturating_add(made);

            let total = self.state.total_out();
            if total > entry.size {
                return Err(InflateError::Size { found: total, expected: entry.size });
            }
            let ended = status == Status::StreamEnd;
            if (filled == output.len() || ended) && filled > 0 {
                let chunk = std::mem::take(&mut filled);
                if consume(output, chunk).is_break() {
                    return Ok(ControlFlow::Break(place(&self.state)));
                }
            }
            if ended {
                let left = entry.stored.saturating_sub(self.state.total_in());
                return match () {
                    () if left > 0 => Err(InflateError::Trailing { at: place(&self.state), left }),
                    () if total != entry.size => {
                        Err(InflateError::Size { found: total, expected: entry.size })
                    }
                    () => Ok(ControlFlow::Continue(Whole(()))),
                };
            }
            if taken == 0 && made == 0 {
                // Nothing moved although there was room: it waits for input that does not come.
                return Err(InflateError::Unfinished { at: place(&self.state) });
            }
        }
    }
}

fn count(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn read_stored(
    source: &dyn Source,
    entry: &Entry,
    output: &mut Vec<u8>,
    consume: &mut Consume<'_>,
) -> Result<ControlFlow<u64, Whole>, InflateError> {
    if entry.stored != entry.size {
        return Err(InflateError::Size { found: entry.stored, expected: entry.size });
    }
    let mut done: u64 = 0;
    while done < entry.size {
        let filled = fill(source, output, entry, done)?.len();
        done = done.saturating_add(filled as u64);
        if consume(output, filled).is_break() {
            return Ok(ControlFlow::Break(entry.at.saturating_add(done)));
        }
    }
    Ok(ControlFlow::Continue(Whole(())))
}

/// Reads stored bytes of the member, from `done` on: as many as fit, never beyond its end.
fn fill<'a>(
    source: &dyn Source,
    buffer: &'a mut [u8],
    entry: &Entry,
    done: u64,
) -> Result<&'a [u8], InflateError> {
    let left = entry.stored.saturating_sub(done);
    let at = entry.at.saturating_add(done);
    let want = count(left).min(buffer.len());
    let buffer = buffer.get_mut(..want).unwrap_or_default();
    let mut filled: usize = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let place = at.saturating_add(filled as u64);
        match source.read_at(rest, place) {
            Ok(0) => return Err(InflateError::Ends { at: place }),
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(InflateError::Io { at: place, source }),
        }
    }
    Ok(buffer)
}
