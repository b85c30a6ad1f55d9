//! Names of projects, normalized.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest name that is taken, in bytes. The longest on the public index have some 100.
const LONGEST: usize = 256;

/// The name of a project, normalized as PEP 503 says: lower case, runs of `-`, `_` and `.` as one `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectName(String);

/// Why a text is no name of a project.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a project's name is letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; found {0:?}"
)]
pub struct NotAProjectName(String);

impl ProjectName {
    /// The normalized name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProjectName {
    type Err = NotAProjectName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || NotAProjectName(text.chars().take(80).collect());
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        if bytes.len() > LONGEST || !ends(bytes.first()) || !ends(bytes.last()) {
            return Err(bad());
        }
        let mut name = String::with_capacity(text.len());
        for letter in text.chars() {
            match letter {
                '-' | '_' | '.' if name.ends_with('-') => {}
                '-' | '_' | '.' => name.push('-'),
                letter if letter.is_ascii_alphanumeric() => name.push(letter.to_ascii_lowercase()),
                _ => return Err(bad()),
            }
        }
        Ok(Self(name))
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

impl Serialize for ProjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ProjectName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values from `packaging.utils.canonicalize_name`.
    #[test]
    fn normalizes() {
        for (text, name) in [("Demo_Pkg.X", "demo-pkg-x"), ("demo--pkg..x", "demo-pkg-x"), ("a", "a")] {
            assert_eq!(text.parse::<ProjectName>().unwrap().as_str(), name);
        }
        for text in ["", "-a", "a-", "a b", "a/b", "é", "a\0"] {
            assert!(text.parse::<ProjectName>().is_err(), "{text}");
        }
    }
}
