//! Signs of what a library was compiled against: the C API of NumPy, and the C++ string ABI of PyTorch.
//!
//! `import_array()` of NumPy's headers imports a module by name. Headers of NumPy 1 know `numpy.core._multiarray_umath` alone; those
//! of NumPy 2 try `numpy._core._multiarray_umath` first, so that what they yield runs under both. pybind11 puts the name together at
//! run time, and Cython's modules name the old one in texts of errors as well: only the whole string counts.
//!
//! Functions of PyTorch that take a `std::string` have another mangled name under each ABI of it. Whoever links PyTorch calls
//! one of a few such functions, and its own libraries define them: `…RKSs` is the old ABI, `…RKNSt7__cxx1112basic_string…` that of
//! C++11. `readelf --dyn-syms` shows the same.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::strings::{Overlap, whole};

/// What of a library's ABI shows in its strings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one sign that was seen or was not; none rules another out"
)]
pub struct Signs {
    /// `numpy.core._multiarray_umath`: it imports the C API as NumPy 1 has it.
    pub numpy_core: bool,
    /// `numpy._core._multiarray_umath`: it imports the C API as NumPy 2 has it.
    pub numpy_underscore_core: bool,
    /// A function of PyTorch that takes a string of the old ABI.
    pub old_strings: bool,
    /// A function of PyTorch that takes a string of the C++11 ABI.
    pub cxx11_strings: bool,
}

impl Signs {
    /// Major version of NumPy whose C API it was compiled against, as far as it shows: what was compiled against 2 runs under
    /// 1 as well, what was compiled against 1 runs under 1 alone.
    pub fn numpy(self) -> Option<u32> {
        match (self.numpy_core, self.numpy_underscore_core) {
            (_, true) => Some(2),
            (true, false) => Some(1),
            (false, false) => None,
        }
    }

    /// Whether strings that go to or come from PyTorch are those of the C++11 ABI, as far as it shows.
    pub fn cxx11(self) -> Option<bool> {
        (self.old_strings != self.cxx11_strings).then_some(self.cxx11_strings)
    }
}

/// The end of both names of NumPy's module.
static UMATH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("core._multiarray_umath"));

/// Functions of PyTorch that take a string, up to that: what `TORCH_CHECK` calls, what makes a `c10::Error` or a warning, and what
/// `TORCH_LIBRARY` calls.
static TAKES_STRING: LazyLock<[Finder<'static>; 3]> = LazyLock::new(|| {
    ["torchCheckFailEPKcS2_jRK", "14SourceLocationE", "7LibraryC1ENS0_4KindE"].map(Finder::new)
});

/// Where such names begin.
const NAMESPACES: [&[u8]; 2] = [b"_ZN3c10", b"_ZN5torch"];

/// Gathers signs from the bytes of a file.
#[derive(Debug, Default)]
pub(super) struct Gatherer {
    overlap: Overlap,
    found: Signs,
}

impl Gatherer {
    /// Takes in the next bytes.
    pub(super) fn feed(&mut self, chunk: &[u8]) {
        let found = &mut self.found;
        self.overlap.feed(chunk, &mut |text, _, starts| gather(found, text, starts));
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> Signs {
        let found = &mut self.found;
        self.overlap.finish(&mut |text, _, starts| gather(found, text, starts));
        self.found
    }
}

fn gather(found: &mut Signs, text: &[u8], starts: Range<usize>) {
    Overlap::each(&UMATH, text, starts.clone(), |at| {
        let is = |before: &str| {
            let start = at.checked_sub(before.len());
            start.and_then(|start| whole(text, start)).is_some_and(|name| {
                name.strip_prefix(before).is_some_and(|rest| rest.as_bytes() == UMATH.needle())
            })
        };
        found.numpy_core |= is("numpy.");
        found.numpy_underscore_core |= is("numpy._");
    });
    for finder in TAKES_STRING.iter() {
        Overlap::each(finder, text, starts.clone(), |at| {
            let before = text.get(..at).unwrap_or_default();
            let name = memchr::memrchr(0, before).and_then(|nul| before.get(nul.saturating_add(1)..));
            if !name.is_some_and(|name| NAMESPACES.iter().any(|namespace| name.starts_with(namespace))) {
                return;
            }
            let rest = text.get(at.saturating_add(finder.needle().len())..).unwrap_or_default();
            found.old_strings |= rest.starts_with(b"Ss");
            found.cxx11_strings |= rest.starts_with(b"NSt7__cxx1112basic_string");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Gatherer, Signs};

    /// The signs of a file, the same for chunks of any size.
    fn signs(parts: &[&str]) -> Signs {
        let mut file = vec![b'x'; 2000];
        for part in parts {
            file.push(0);
            file.extend(part.bytes());
            file.push(0);
        }
        file.resize(6000, b'y');
        let of = |chunk: usize| {
            let mut gatherer = Gatherer::default();
            file.chunks(chunk).for_each(|chunk| gatherer.feed(chunk));
            gatherer.finish()
        };
        let found = of(10_000);
        for chunk in [1, 7, 500, 2001, 2050, 4096] {
            assert_eq!(of(chunk), found, "{chunk}");
        }
        found
    }

    #[test]
    fn tells_the_c_api_of_numpy_by_the_module_that_is_imported() {
        // As `strings` shows them in pywavelets 1.4.1, pywavelets 1.8.0, contourpy 1.0.7 (pybind11) and h5py's Cython texts.
        assert_eq!(signs(&["numpy.core._multiarray_umath"]).numpy(), Some(1));
        let both = ["numpy._core._multiarray_umath", "numpy.core._multiarray_umath"];
        assert_eq!(signs(&both).numpy(), Some(2));
        assert_eq!(signs(&["numpy.core.multiarray"]).numpy(), None);
        assert_eq!(signs(&["numpy.core._multiarray_umath failed to import"]).numpy(), None);
        assert_eq!(signs(&["xnumpy.core._multiarray_umath"]).numpy(), None);
    }

    #[test]
    fn tells_the_string_abi_by_the_functions_of_torch_that_take_one() {
        // As `readelf --dyn-syms` shows them in torchvision 0.20.1 and 0.26.0.
        let old = ["_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "_ZN3c105ErrorC2ENS_14SourceLocationESs"];
        let new = [
            "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            "_ZN5torch7LibraryC1ENS0_4KindENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt8optionalIN3c1011DispatchKeyEEPKcj",
        ];
        for name in old {
            assert_eq!(signs(&[name]).cxx11(), Some(false), "{name}");
        }
        for name in new {
            assert_eq!(signs(&[name]).cxx11(), Some(true), "{name}");
        }
        assert_eq!(signs(&[old[0], new[0]]).cxx11(), None, "a library with both proves nothing");
        assert_eq!(signs(&["_ZN4mine14SourceLocationESs"]).cxx11(), None);
        assert_eq!(signs(&["_ZN3c106detail14torchCheckFailEPKcS2_jS2_"]).cxx11(), None);
    }
}
