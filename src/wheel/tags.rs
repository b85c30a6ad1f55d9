//! Which tags an installer on a device accepts, in order of preference (PEP 425, PEP 600).

use super::WheelFilename;

/// First minor version of Python 3 whose ABI tag has no `m` behind it.
const NO_MALLOC_FLAG: u16 = 8;

/// First minor version of Python 3 with a stable ABI (PEP 384).
const STABLE_ABI: u16 = 2;

/// Old names of manylinux platforms, by glibc version (PEP 600): those that exist for any architecture of interest.
const LEGACY: [(&str, &str); 3] = [
    ("manylinux_2_17_", "manylinux2014_"),
    ("manylinux_2_12_", "manylinux2010_"),
    ("manylinux_2_5_", "manylinux1_"),
];

/// The tags that an installer accepts, as `packaging.tags` orders them for CPython.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupportedTags {
    /// Pairs of python tag and ABI tag that go with a platform, best first.
    native: Vec<(String, String)>,
    /// Python tags that go with `none-any`, best first.
    pure: Vec<String>,
    /// Platform tags, best first.
    platforms: Vec<String>,
}

/// Why no tag of a wheel is accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TagMismatch {
    /// Built for another Python or ABI.
    Python {
        /// Pairs of python tag and ABI tag of the wheel: `cp312-cp312`.
        found: Vec<String>,
        /// The best of the accepted pairs.
        wanted: Vec<String>,
    },
    /// Built for another platform.
    Platform {
        /// Platform tags of the wheel.
        found: Vec<String>,
        /// Accepted platform tags, best first.
        wanted: Vec<String>,
    },
}

impl SupportedTags {
    /// The tags of CPython of that version, on a device that takes those platform tags, best first.
    ///
    /// Where the list has `manylinux_2_17_ARCH` without its old name `manylinux2014_ARCH`, that one is put behind it.
    pub fn new(python: (u16, u16), platform_tags: &[String]) -> Self {
        let (major, minor) = python;
        let own = format!("cp{major}{minor}");
        let abi = if major == 3 && minor < NO_MALLOC_FLAG { format!("{own}m") } else { own.clone() };
        let none = || "none".to_owned();
        let mut native = vec![(own.clone(), abi)];
        if major >= 3 && (major, minor) >= (3, STABLE_ABI) {
            native.push((own.clone(), "abi3".to_owned()));
        }
        native.push((own.clone(), none()));
        native
            .extend((STABLE_ABI..minor).rev().map(|older| (format!("cp{major}{older}"), "abi3".to_owned())));
        let mut generic = vec![format!("py{major}{minor}"), format!("py{major}")];
        generic.extend((0..minor).rev().map(|older| format!("py{major}{older}")));
        native.extend(generic.iter().map(|python| (python.clone(), none())));

        let mut platforms = Vec::with_capacity(platform_tags.len());
        for tag in platform_tags {
            platforms.push(tag.clone());
            let old = LEGACY.iter().find_map(|(new, old)| Some(format!("{old}{}", tag.strip_prefix(new)?)));
            platforms.extend(old.filter(|old| !platform_tags.contains(old)));
        }
        let mut pure = vec![own];
        pure.extend(generic);
        Self { native, pure, platforms }
    }

    /// The place of the wheel's best tag in the order of preference: 0 is the best. None if no tag is accepted.
    pub fn priority(&self, wheel: &WheelFilename) -> Option<u32> {
        let best = wheel
            .interpreters()
            .flat_map(|(python, abi)| {
                wheel.platform.iter().filter_map(move |platform| self.place(python, abi, platform))
            })
            .min()?;
        u32::try_from(best).ok()
    }

    fn place(&self, python: &str, abi: &str, platform: &str) -> Option<usize> {
        let count = self.platforms.len();
        if platform == "any" {
            let index = self.pure.iter().position(|pure| pure == python && abi == "none")?;
            return self.native.len().checked_mul(count)?.checked_add(index);
        }
        let pair = self.native_place(python, abi)?;
        let index = self.platforms.iter().position(|known| known == platform)?;
        pair.checked_mul(count)?.checked_add(index)
    }

    fn native_place(&self, python: &str, abi: &str) -> Option<usize> {
        self.native.iter().position(|pair| pair.0 == python && pair.1 == abi)
    }

    /// Why no tag of the wheel is accepted: at most one mismatch of each kind, that of the python tag first. Empty if
    /// one is accepted.
    pub fn mismatches(&self, wheel: &WheelFilename) -> Vec<TagMismatch> {
        if self.priority(wheel).is_some() {
            return Vec::new();
        }
        let mut mismatches = Vec::new();
        if !wheel.interpreters().any(|(python, abi)| self.native_place(python, abi).is_some()) {
            mismatches.push(TagMismatch::Python {
                found: wheel.interpreters().map(|(python, abi)| format!("{python}-{abi}")).collect(),
                wanted: self.wanted_interpreters(),
            });
        }
        let pure = wheel.interpreters().any(|(_, abi)| abi == "none");
        let fits = |platform: &String| self.platforms.contains(platform) || (platform == "any" && pure);
        if !wheel.platform.iter().any(fits) {
            mismatches.push(TagMismatch::Platform {
                found: wheel.platform.clone(),
                wanted: self.platforms.clone(),
            });
        }
        mismatches
    }

    /// The accepted pairs that need no older Python: `cp310-cp310`, `cp310-abi3`, `cp310-none`, `py310-none`, `py3-none`.
    fn wanted_interpreters(&self) -> Vec<String> {
        let own = self.pure.first();
        let generic = self.pure.get(1..3).unwrap_or_default();
        self.native
            .iter()
            .filter(|(python, _)| Some(python) == own || generic.contains(python))
            .map(|(python, abi)| format!("{python}-{abi}"))
            .collect()
    }

    /// All accepted tags, best first.
    pub fn iter(&self) -> impl Iterator<Item = String> {
        let native = self.native.iter().flat_map(|(python, abi)| {
            self.platforms.iter().map(move |platform| format!("{python}-{abi}-{platform}"))
        });
        native.chain(self.pure.iter().map(|python| format!("{python}-none-any")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orin() -> SupportedTags {
        SupportedTags::new(
            (3, 10),
            &["manylinux_2_35_aarch64", "manylinux_2_17_aarch64", "linux_aarch64"].map(str::to_owned),
        )
    }

    fn name(text: &str) -> WheelFilename {
        text.parse().unwrap()
    }

    #[test]
    fn prefers_native_over_stable_over_pure() {
        let order = [
            "a-1-cp310-cp310-manylinux_2_35_aarch64.whl",
            "a-1-cp310-cp310-manylinux2014_aarch64.whl",
            "a-1-cp310-cp310-linux_aarch64.whl",
            "a-1-cp310-abi3-linux_aarch64.whl",
            "a-1-cp37-abi3-linux_aarch64.whl",
            "a-1-py3-none-linux_aarch64.whl",
            "a-1-cp310-none-any.whl",
            "a-1-py3-none-any.whl",
            "a-1-py30-none-any.whl",
        ];
        let places: Vec<_> = order.iter().map(|text| orin().priority(&name(text)).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(places[0], 0);
    }

    #[test]
    fn says_which_part_misses() {
        let kinds = |text| {
            orin()
                .mismatches(&name(text))
                .iter()
                .map(|mismatch| match mismatch {
                    TagMismatch::Python { .. } => "python",
                    TagMismatch::Platform { .. } => "platform",
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(kinds("a-1-cp310-cp310-linux_aarch64.whl"), [""; 0]);
        assert_eq!(kinds("a-1-cp312-cp312-linux_aarch64.whl"), ["python"]);
        assert_eq!(kinds("a-1-cp312-abi3-linux_aarch64.whl"), ["python"]);
        assert_eq!(kinds("a-1-cp310-cp310-linux_x86_64.whl"), ["platform"]);
        assert_eq!(kinds("a-1-cp312-cp312-manylinux_2_39_aarch64.whl"), ["python", "platform"]);
        assert_eq!(kinds("a-1-py2-none-any.whl"), ["python"]);
        assert_eq!(kinds("a-1-cp310-cp310-any.whl"), ["platform"]);
        assert_eq!(
            orin().mismatches(&name("a-1-cp312-cp312-linux_aarch64.whl")),
            [TagMismatch::Python {
                found: vec!["cp312-cp312".into()],
                wanted: ["cp310-cp310", "cp310-abi3", "cp310-none", "py310-none", "py3-none"]
                    .map(str::to_owned)
                    .into(),
            }]
        );
    }
}
