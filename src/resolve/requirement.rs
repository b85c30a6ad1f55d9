//! Requirements: what is asked for, and what a wheel asks for.

use std::fmt;
use std::str::FromStr;

use pep440_rs::VersionSpecifiers;
use pep508_rs::VersionOrUrl;

use super::markers::{Environment, Marker, NotAMarker, Variable};
use crate::wheel::{NotAProjectName, ProjectName};

/// Longest requirement that is taken, in bytes; markers are most of a long one.
const LONGEST: usize = 32_768;

/// A requirement of PEP 508.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// As written.
    pub text: String,
    /// The project.
    pub project: ProjectName,
    /// Extras, normalized.
    pub extras: Vec<String>,
    /// Which versions; all if empty.
    pub specifiers: VersionSpecifiers,
    /// A URL instead of versions.
    pub url: Option<String>,
    /// When it applies.
    pub marker: Option<Marker>,
}

/// Why a text is no requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotARequirement {
    /// Name, extras or versions cannot be read.
    #[error("{text:?} is not a requirement such as torch>=2.4: {why}")]
    Syntax {
        /// The text, cut to a length that can be shown.
        text: String,
        /// What the parser says.
        why: String,
    },
    /// The marker cannot be read.
    #[error(transparent)]
    Marker(#[from] NotAMarker),
    /// The name cannot be taken.
    #[error(transparent)]
    Name(#[from] NotAProjectName),
}

impl FromStr for Requirement {
    type Err = NotARequirement;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let shown = || text.chars().take(120).collect::<String>();
        if text.len() > LONGEST {
            return Err(NotARequirement::Syntax {
                text: shown(),
                why: format!("it is longer than {LONGEST} bytes"),
            });
        }
        let (head, marker) = split_marker(text);
        let parsed = pep508_rs::Requirement::<pep508_rs::VerbatimUrl>::from_str(head).map_err(|error| {
            NotARequirement::Syntax {
                text: shown(),
                why: error.message.to_string().chars().take(200).collect(),
            }
        })?;
        let (specifiers, url) = match parsed.version_or_url {
            None => (VersionSpecifiers::empty(), None),
            Some(VersionOrUrl::VersionSpecifier(specifiers)) => (specifiers, None),
            Some(VersionOrUrl::Url(url)) => (VersionSpecifiers::empty(), Some(url.to_string())),
        };
        let mut extras: Vec<String> = parsed.extras.iter().map(ToString::to_string).collect();
        extras.sort();
        extras.dedup();
        Ok(Self {
            text: text.to_owned(),
            project: parsed.name.to_string().parse()?,
            extras,
            specifiers,
            url,
            marker: marker.map(str::parse).transpose()?,
        })
    }
}

/// Splits at the `;` before the marker. In a URL it has a space before it.
fn split_marker(text: &str) -> (&str, Option<&str>) {
    let name_end = text.find(|letter: char| !(letter.is_alphanumeric() || "-_.".contains(letter)));
    let is_url = name_end
        .and_then(|end| text.get(end..))
        .map(|rest| match rest.trim_start().strip_prefix('[') {
            Some(extras) => extras.split_once(']').map_or("", |(_, behind)| behind),
            None => rest,
        })
        .is_some_and(|rest| rest.trim_start().starts_with('@'));
    let at = if is_url { text.find(" ;").map(|at| at + 1) } else { text.find(';') };
    match at {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

impl Requirement {
    /// Whether it applies in an environment, with an extra asked for or none.
    pub fn applies(&self, environment: &Environment, extra: Option<&str>) -> Result<bool, Variable> {
        self.marker.as_ref().map_or(Ok(true), |marker| marker.holds(environment, extra))
    }

    /// The same without its marker, as it is shown once that has been found to hold.
    pub(super) fn short(&self) -> String {
        let extras =
            if self.extras.is_empty() { String::new() } else { format!("[{}]", self.extras.join(",")) };
        let specifiers: Vec<String> = self.specifiers.iter().map(ToString::to_string).collect();
        format!("{}{extras}{}", self.project, specifiers.join(","))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_wheels_write() {
        let requirement: Requirement =
            "Nvidia_CUDA.runtime[Big_One, a] (>=12.6,<13) ; platform_machine == 'aarch64'".parse().unwrap();
        assert_eq!(requirement.project.as_str(), "nvidia-cuda-runtime");
        assert_eq!(requirement.extras, ["a", "big-one"]);
        assert_eq!(requirement.short(), "nvidia-cuda-runtime[a,big-one]>=12.6,<13");
        assert!(requirement.marker.is_some());
        let url: Requirement = "x[y] @ https://example.org/x;y.whl ; os_name == 'posix'".parse().unwrap();
        assert!(url.url.is_some() && url.marker.is_some());
    }

    #[test]
    fn refuses_other_texts() {
        for text in ["", "a b", "a>=", "a==1;", "==1", "-r x.txt"] {
            assert!(text.parse::<Requirement>().is_err(), "{text}");
        }
    }
}
