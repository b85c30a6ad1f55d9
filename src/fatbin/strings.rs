//! Strings of compilers, and of code that opens libraries by name.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::Target;

/// Bytes around a match that are looked at, on both sides.
const AROUND: usize = 128;
/// Below that many bytes, chunks are gathered before they are searched.
const GATHERED: usize = 8 * AROUND;
/// Targets kept; compilers know about thirty.
const MAX_TARGETS: usize = 1024;
/// Library names kept from one file.
const MAX_LIBRARIES: usize = 64;

/// What the strings of a compiler say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompilerStrings {
    /// Targets that it knows: strings such as `compute_90a`.
    pub targets: BTreeSet<Target>,
    /// CUDA release, such as `12.8`, from `Cuda compilation tools, release 12.8, V12.8.93`.
    pub cuda: Option<String>,
}

/// Searches chunks for short texts, also for those that straddle two of them.
///
/// Each place is searched once, with [`AROUND`] bytes on both sides at hand, as far as the file has them.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    /// The last bytes fed, of which those from `done` on are not searched.
    tail: Vec<u8>,
    done: usize,
    /// Offset of `tail` in all that was fed.
    at: u64,
}

impl Overlap {
    /// Takes in the next bytes. `search` gets a text, its offset in all that was fed, and where matches may start.
    pub(super) fn feed(&mut self, mut chunk: &[u8], search: &mut impl FnMut(&[u8], u64, Range<usize>)) {
        if self.tail.len().saturating_add(chunk.len()) < GATHERED {
            self.tail.extend_from_slice(chunk);
            return;
        }
        // The seam: the tail, and enough of the chunk that the search can go on in it.
        let seam = chunk.get(..AROUND.saturating_mul(2)).unwrap_or(chunk);
        let chunk_at = self.at.saturating_add(self.tail.len() as u64);
        let in_chunk = seam.len().saturating_sub(AROUND);
        let reached = self.tail.len().saturating_add(in_chunk);
        self.tail.extend_from_slice(seam);
        if reached > self.done {
            search(&self.tail, self.at, self.done..reached);
            self.done = reached;
        }
        if seam.len() == chunk.len() {
            self.keep_end();
            return;
        }
        let end = chunk.len().saturating_sub(AROUND);
        if end > in_chunk {
            search(chunk, chunk_at, in_chunk..end);
        }
        let kept = chunk.len().saturating_sub(AROUND.saturating_mul(2));
        self.at = chunk_at.saturating_add(kept as u64);
        chunk = chunk.get(kept..).unwrap_or_default();
        self.tail.clear();
        self.tail.extend_from_slice(chunk);
        self.done = AROUND;
    }

    /// Searches what is left at the end.
    pub(super) fn finish(&mut self, search: &mut impl FnMut(&[u8], u64, Range<usize>)) {
        search(&self.tail, self.at, self.done..self.tail.len());
        self.done = self.tail.len();
    }

    fn keep_end(&mut self) {
        let kept = self.done.saturating_sub(AROUND);
        self.tail.drain(..kept);
        self.done = self.done.saturating_sub(kept);
        self.at = self.at.saturating_add(kept as u64);
    }

    /// Calls `found` with each match that starts in a range of the text.
    pub(super) fn each(finder: &Finder<'_>, text: &[u8], starts: Range<usize>, mut found: impl FnMut(usize)) {
        let end = starts.end.saturating_add(finder.needle().len()).saturating_sub(1).min(text.len());
        for at in finder.find_iter(text.get(starts.start..end).unwrap_or_default()) {
            found(starts.start.saturating_add(at));
        }
    }
}

static COMPUTE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("compute_"));
static RELEASE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("Cuda compilation tools, release "));
static SHARED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(".so."));

/// Whether a file of that name compiles GPU code on the device.
pub(super) fn is_compiler(name: &str) -> bool {
    ["ptxas", "libnvrtc", "libnvJitLink"].iter().any(|start| name.starts_with(start))
}

/// Gathers the strings of a compiler.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    overlap: Overlap,
    found: CompilerStrings,
}

impl Compiler {
    /// Takes in the next bytes.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        let found = &mut self.found;
        self.overlap.feed(chunk, &mut |text, _, starts| gather(found, text, starts));
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> CompilerStrings {
        let found = &mut self.found;
        self.overlap.finish(&mut |text, _, starts| gather(found, text, starts));
        self.found
    }
}

fn gather(found: &mut CompilerStrings, text: &[u8], starts: Range<usize>) {
    Overlap::each(&COMPUTE, text, starts.clone(), |at| {
        if let Some(target) = whole(text, at).and_then(|text| text.strip_prefix("compute_")?.parse().ok())
            && found.targets.len() < MAX_TARGETS
        {
            found.targets.insert(target);
        }
    });
    Overlap::each(&RELEASE, text, starts, |at| {
        let release = text.get(at.saturating_add(RELEASE.needle().len())..).unwrap_or_default();
        let len = release.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').take(16).count();
        let release = release.get(..len).and_then(|release| std::str::from_utf8(release).ok());
        if let Some(release) = release.filter(|release| release.contains('.')) {
            found.cuda.get_or_insert_with(|| release.to_owned());
        }
    });
}

/// The NUL-delimited text that starts at a place, if one does, of at most [`AROUND`] bytes.
pub(super) fn whole(text: &[u8], at: usize) -> Option<&str> {
    if text.get(at.checked_sub(1)?) != Some(&0) {
        return None;
    }
    let rest = text.get(at..)?;
    let rest = rest.get(..AROUND).unwrap_or(rest);
    std::str::from_utf8(rest.get(..memchr::memchr(0, rest)?)?).ok()
}

/// Gathers names of CUDA libraries, such as `libcudnn.so.9`.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    overlap: Overlap,
    found: BTreeSet<String>,
}

/// Libraries that CUDA wheels bring, and the driver's. Others are not told.
const LIBRARIES: [&str; 5] = ["libcu", "libnv", "libnccl", "libnppi", "libcaffe2_nvrtc"];

impl Libraries {
    /// Takes in the next bytes.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        let found = &mut self.found;
        self.overlap.feed(chunk, &mut |text, _, starts| libraries(found, text, starts));
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> Vec<String> {
        let found = &mut self.found;
        self.overlap.finish(&mut |text, _, starts| libraries(found, text, starts));
        self.found.into_iter().collect()
    }
}

fn libraries(found: &mut BTreeSet<String>, text: &[u8], starts: Range<usize>) {
    Overlap::each(&SHARED, text, starts, |at| {
        let before = text.get(at.saturating_sub(AROUND.saturating_sub(1))..at).unwrap_or_default();
        let Some(nul) = memchr::memrchr(0, before) else { return };
        let start = at.saturating_sub(before.len()).saturating_add(nul).saturating_add(1);
        let Some(name) = whole(text, start) else { return };
        let version = name.split_once(".so.").map_or("", |(_, version)| version);
        let is_version =
            !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let is_cuda = LIBRARIES.iter().any(|library| name.starts_with(library)) && !name.contains('/');
        if is_version && is_cuda && found.len() < MAX_LIBRARIES {
            found.insert(name.to_owned());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Compiler, Libraries};

    #[test]
    fn gathers_the_strings_of_a_compiler_at_any_chunk_size() {
        let mut file = vec![b'x'; 3000];
        file.extend(b"\0compute_90a\0compute_110f\0xcompute_20\0compute_30x\0compute_\0");
        file.resize(6000, 0);
        file.extend(b"Cuda compilation tools, release 12.8, V12.8.93\0compute_87\0");
        for chunk in [1, 13, 200, 3000, 3005, 4096, 10_000] {
            let mut compiler = Compiler::default();
            file.chunks(chunk).for_each(|chunk| compiler.feed(chunk));
            let found = compiler.finish();
            let targets: Vec<String> = found.targets.iter().map(ToString::to_string).collect();
            assert_eq!(targets, ["87", "90a", "110f"], "{chunk}");
            assert_eq!(found.cuda.as_deref(), Some("12.8"), "{chunk}");
        }
    }

    #[test]
    fn gathers_names_of_cuda_libraries_alone() {
        let mut file = vec![0; 2000];
        file.extend(b"\0libcudnn.so.9\0libm.so.6\0libnvrtc.so.12.%d\0/usr/lib/libcuda.so.1\0xlibcuda.so.1\0libcuda.so.1\0");
        file.resize(5000, 1);
        for chunk in [1, 64, 2003, 10_000] {
            let mut libraries = Libraries::default();
            file.chunks(chunk).for_each(|chunk| libraries.feed(chunk));
            assert_eq!(libraries.finish(), ["libcuda.so.1", "libcudnn.so.9"], "{chunk}");
        }
    }
}
