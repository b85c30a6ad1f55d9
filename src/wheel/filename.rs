//! The file name of a wheel (PEP 427, PEP 491, and the binary distribution format).

use std::fmt;
use std::str::FromStr;

use super::ProjectName;

/// The longest file name that is taken, in bytes: what Linux file systems take (`NAME_MAX`).
const LONGEST: usize = 255;

/// The most tags that one name may stand for. Real wheels have some ten; a hostile name of [`LONGEST`] bytes could
/// stand for tens of thousands.
const MOST_TAGS: usize = 1000;

/// The parts of a wheel's file name.
///
/// ```
/// use jetwheel::wheel::WheelFilename;
///
/// let name = "torch-2.5.0a0+nv24.08-1-cp310-cp310-linux_aarch64.whl".parse::<WheelFilename>().unwrap();
/// assert_eq!(name.project.as_str(), "torch");
/// assert_eq!(name.version_text(), "2.5.0a0+nv24.08");
/// assert_eq!(name.build, Some((1, String::new())));
/// assert_eq!(name.tags().collect::<Vec<_>>(), ["cp310-cp310-linux_aarch64"]);
/// assert_eq!(name.to_string(), "torch-2.5.0a0+nv24.08-1-cp310-cp310-linux_aarch64.whl");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelFilename {
    /// The name as written.
    pub text: String,
    /// The project, normalized.
    pub project: ProjectName,
    /// The version. Its own text form is normalized: see [`WheelFilename::version_text`].
    pub version: pep440_rs::Version,
    /// The build tag: its number and the rest.
    pub build: Option<(u64, String)>,
    /// Python tags, in lower case.
    pub python: Vec<String>,
    /// ABI tags, in lower case.
    pub abi: Vec<String>,
    /// Platform tags, in lower case.
    pub platform: Vec<String>,
}

/// Which machines a wheel is for, by its platform tags alone; those that come later are nearer to a Jetson.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Machine {
    /// Such as macOS or Windows.
    OtherSystem,
    /// Linux on another processor.
    Linux,
    /// 64-bit Arm with Linux, or any machine.
    LinuxAarch64,
}

impl Machine {
    /// The nearest of those that a wheel is for.
    pub fn of(name: &WheelFilename) -> Self {
        let of = |platform: &String| {
            let linux = platform.contains("linux");
            if platform == "any" || linux && platform.ends_with("_aarch64") {
                Self::LinuxAarch64
            } else if linux {
                Self::Linux
            } else {
                Self::OtherSystem
            }
        };
        name.platform.iter().map(of).max().unwrap_or(Self::OtherSystem)
    }
}

/// Why a text is no file name of a wheel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {kind}")]
pub struct NotAWheelFilename {
    /// The text, cut where it is far too long.
    pub file: String,
    /// What is wrong with it.
    pub kind: FilenameErrorKind,
}

/// What is wrong with a wheel's file name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilenameErrorKind {
    /// It is longer than file systems take.
    #[error("the name has {0} bytes, expected at most {LONGEST}")]
    TooLong(usize),
    /// It does not end in `.whl`.
    #[error("the name does not end in .whl")]
    Extension,
    /// Too few or too many dashes.
    #[error("the name has {0} parts between dashes, expected 5 (or 6 with a build tag)")]
    Parts(usize),
    /// The first part is no escaped project name.
    #[error("the project part is {0:?}, expected letters, digits, '.' and single '_'")]
    Project(String),
    /// The second part is no version.
    #[error("the version part is {0:?}, expected a version of PEP 440")]
    Version(String),
    /// The build tag does not begin with a number.
    #[error("the build tag is {0:?}, expected a number and perhaps letters")]
    Build(String),
    /// A tag is empty, or has letters that no tag has.
    #[error("the {part} tag is {found:?}, expected letters, digits and '_'")]
    Tag {
        /// `python`, `ABI` or `platform`.
        part: &'static str,
        /// What stands there.
        found: String,
    },
    /// The compressed tag set stands for too many tags.
    #[error("the name stands for {0} tags, expected at most {MOST_TAGS}")]
    TooManyTags(usize),
}

impl WheelFilename {
    /// The version as the name writes it, which for `2.5.0a0+nv24.08` differs from the normalized form.
    pub fn version_text(&self) -> &str {
        self.text.split('-').nth(1).unwrap_or_default()
    }

    /// The first two parts as the name writes them: `torch-2.11.0`, of which the `.dist-info` folder is named.
    pub fn stem(&self) -> &str {
        self.text.match_indices('-').nth(1).and_then(|(at, _)| self.text.get(..at)).unwrap_or_default()
    }

    /// The tags that the compressed tag set stands for, in the order of the name.
    pub fn tags(&self) -> impl Iterator<Item = String> {
        self.interpreters().flat_map(|(python, abi)| {
            self.platform.iter().map(move |platform| format!("{python}-{abi}-{platform}"))
        })
    }

    /// The pairs of python tag and ABI tag, in the order of the name.
    pub fn interpreters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.python.iter().flat_map(|python| self.abi.iter().map(move |abi| (python.as_str(), abi.as_str())))
    }
}

impl FromStr for WheelFilename {
    type Err = NotAWheelFilename;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|kind| NotAWheelFilename { file: text.chars().take(LONGEST).collect(), kind })
    }
}

fn parse(text: &str) -> Result<WheelFilename, FilenameErrorKind> {
    use FilenameErrorKind as Kind;

    if text.len() > LONGEST {
        return Err(Kind::TooLong(text.len()));
    }
    let stem = text.strip_suffix(".whl").ok_or(Kind::Extension)?;
    let parts: Vec<&str> = stem.split('-').collect();
    let (project, version, build, python, abi, platform) = match parts[..] {
        [project, version, python, abi, platform] => (project, version, None, python, abi, platform),
        [project, version, build, python, abi, platform] => {
            (project, version, Some(build), python, abi, platform)
        }
        _ => return Err(Kind::Parts(parts.len())),
    };

    let no_project = || Kind::Project(project.to_owned());
    if project.contains("__") {
        return Err(no_project());
    }
    let normalized = project.parse().map_err(|_| no_project())?;
    let no_version = || Kind::Version(version.to_owned());
    if !version.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(no_version());
    }
    let parsed = version.parse().map_err(|_| no_version())?;
    let build =
        build.map(|build| parse_build(build).ok_or_else(|| Kind::Build(build.to_owned()))).transpose()?;
    let python = tag_set(python, "python")?;
    if let Some(found) = python.iter().find(|tag| tag.starts_with(|first: char| first.is_ascii_digit())) {
        return Err(Kind::Tag { part: "python", found: found.clone() });
    }
    let (abi, platform) = (tag_set(abi, "ABI")?, tag_set(platform, "platform")?);
    let tags = python.len().saturating_mul(abi.len()).saturating_mul(platform.len());
    if tags > MOST_TAGS {
        return Err(Kind::TooManyTags(tags));
    }
    Ok(WheelFilename {
        text: text.to_owned(),
        project: normalized,
        version: parsed,
        build,
        python,
        abi,
        platform,
    })
}

/// Reads the leading number and the rest of a build tag.
fn parse_build(text: &str) -> Option<(u64, String)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end)?;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
    rest.chars().all(plain).then_some(())?;
    Some((number.parse().ok()?, rest.to_owned()))
}

/// Splits a compressed tag set at its dots.
fn tag_set(text: &str, part: &'static str) -> Result<Vec<String>, FilenameErrorKind> {
    text.split('.')
        .map(|tag| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if tag.is_empty() || !tag.bytes().all(plain) {
                return Err(FilenameErrorKind::Tag { part, found: tag.to_owned() });
            }
            Ok(tag.to_ascii_lowercase())
        })
        .collect()
}

impl fmt::Display for WheelFilename {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> String {
        text.parse::<WheelFilename>().unwrap_err().to_string()
    }

    #[test]
    fn errors_show_the_whole_name() {
        insta::assert_snapshot!(refusal("a-1.0-py3-none-any.zip"), @"a-1.0-py3-none-any.zip: the name does not end in .whl");
        insta::assert_snapshot!(refusal("a-1.0-py3-none.whl"), @"a-1.0-py3-none.whl: the name has 4 parts between dashes, expected 5 (or 6 with a build tag)");
        insta::assert_snapshot!(refusal("a__b-1.0-py3-none-any.whl"), @r#"a__b-1.0-py3-none-any.whl: the project part is "a__b", expected letters, digits, '.' and single '_'"#);
        insta::assert_snapshot!(refusal("a-x-py3-none-any.whl"), @r#"a-x-py3-none-any.whl: the version part is "x", expected a version of PEP 440"#);
        insta::assert_snapshot!(refusal("a-1.0-x1-py3-none-any.whl"), @r#"a-1.0-x1-py3-none-any.whl: the build tag is "x1", expected a number and perhaps letters"#);
        insta::assert_snapshot!(refusal("a-1.0-py3..py2-none-any.whl"), @r#"a-1.0-py3..py2-none-any.whl: the python tag is "", expected letters, digits and '_'"#);
        insta::assert_snapshot!(refusal("a-1.0-py3-none-../x.whl"), @r#"a-1.0-py3-none-../x.whl: the platform tag is "", expected letters, digits and '_'"#);
    }

    #[test]
    fn bounds_how_many_tags_a_name_stands_for() {
        let set = ["a"; 30].join(".");
        let name = format!("a-1-{set}-{set}-{set}.whl");
        assert_eq!(name.parse::<WheelFilename>().unwrap_err().kind, FilenameErrorKind::TooManyTags(27_000));
    }

    #[test]
    fn keeps_the_text_of_the_version() {
        let name: WheelFilename = "torch-2.5.0a0+nv24.08-cp310-cp310-linux_aarch64.whl".parse().unwrap();
        assert_eq!(name.version_text(), "2.5.0a0+nv24.08");
        assert_eq!(name.stem(), "torch-2.5.0a0+nv24.08");
        assert_eq!(name.version.to_string(), "2.5.0a0+nv24.8");
    }

    proptest! {
        #[test]
        fn never_panics_and_prints_what_it_read(text in "\\PC{0,60}") {
            if let Ok(name) = text.parse::<WheelFilename>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn reads_what_is_well_formed(text in "[a-z]{1,8}(_[a-z]{1,4})?-[0-9]{1,3}\\.[0-9]{1,3}(\\+cu[0-9]{3})?(-[0-9][a-z]?)?-cp3[0-9]-(abi3|none)-(any|linux_aarch64)\\.whl") {
            prop_assert_eq!(text.parse::<WheelFilename>().unwrap().to_string(), text);
        }
    }
}
