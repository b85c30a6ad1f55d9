//! Patterns of names: `cupy-cuda*`.

use serde::{Deserialize, Serialize};

/// A name in which every `*` stands for any letters, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern from its text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands for that name.
    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }
}

/// Whether a pattern stands for a name; linear in the name for each `*`.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, mut rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    while let Some((middle, after)) = rest.split_once('*') {
        let Some(at) = name.find(middle) else { return false };
        name = &name[at + middle.len()..];
        rest = after;
    }
    name.len() >= rest.len() && name.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stands_for_any_letters() {
        for (pattern, name, expected) in [
            ("torch", "torch", true),
            ("torch", "torchvision", false),
            ("torch*", "torch", true),
            ("cupy-cuda*", "cupy-cuda12x", true),
            ("*-cu12", "nvidia-cublas-cu12", true),
            ("10.*", "10.3", true),
            ("10.*", "110.3", false),
            ("lib*.so.*", "libcudnn.so.9", true),
            ("a*a", "a", false),
            ("a*b*c", "a-c-b-c", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
