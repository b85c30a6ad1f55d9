//! Requirements files, as pip reads them, less what has no meaning here.

use std::io;
use std::path::{Path, PathBuf};

use pep440_rs::{Operator, VersionSpecifiers};
use pep508_rs::{MarkerEnvironment, MarkerEnvironmentBuilder, VerbatimUrl, VersionOrUrl};

use crate::policy::DeviceProfile;
use crate::wheel::ProjectName;

/// Deepest nesting of `-r`.
const DEEPEST: usize = 10;

/// Most lines of all files together.
const MOST_LINES: usize = 100_000;

/// Longest requirement, in bytes.
const LONGEST: usize = 16 * 1024;

/// What is wanted of a project.
#[derive(Debug, Clone)]
pub struct Requirement {
    /// The project.
    pub project: ProjectName,
    /// Which versions.
    pub specifiers: VersionSpecifiers,
    parsed: pep508_rs::Requirement<VerbatimUrl>,
    text: String,
}

/// Why a requirement or a requirements file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequirementError {
    /// A text is no requirement of PEP 508.
    #[error("{place}{text:?} is no requirement: {why}")]
    Requirement {
        /// File and line, where it stands in a file.
        place: String,
        /// The text.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A line holds an option that has no meaning here.
    #[error("{place}the option {option} is not understood: {why}")]
    Option {
        /// File and line.
        place: String,
        /// The option.
        option: String,
        /// What to do instead.
        why: &'static str,
    },
    /// A file cannot be read.
    #[error("{place}{file}")]
    Io {
        /// File and line that name it.
        place: String,
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The files are nested too deep, or too long.
    #[error("{place}{why}")]
    TooMuch {
        /// File and line.
        place: String,
        /// What is too much.
        why: &'static str,
    },
}

/// The requirements of a file, with what is to be told about it.
#[derive(Debug, Default)]
pub struct RequirementsFile {
    /// Requirements, in file order.
    pub requirements: Vec<Requirement>,
    /// What was passed over.
    pub notes: Vec<String>,
    lines: usize,
}

impl Requirement {
    /// Reads a requirement of PEP 508.
    pub fn parse(text: &str) -> Result<Self, RequirementError> {
        Self::at(String::new(), text)
    }

    fn at(place: String, text: &str) -> Result<Self, RequirementError> {
        let wrong = |place, why: String| RequirementError::Requirement {
            place,
            text: text.chars().take(200).collect(),
            why,
        };
        if text.len() > LONGEST {
            return Err(wrong(place, format!("it is longer than {LONGEST} bytes")));
        }
        let parsed: pep508_rs::Requirement<VerbatimUrl> = match text.trim().parse() {
            Ok(parsed) => parsed,
            // The whole message shows the text again, with a mark below it.
            Err(error) => return Err(wrong(place, first_line(&error.to_string()))),
        };
        let specifiers = match &parsed.version_or_url {
            None => VersionSpecifiers::empty(),
            Some(VersionOrUrl::VersionSpecifier(specifiers)) => specifiers.clone(),
            Some(VersionOrUrl::Url(_)) => {
                return Err(wrong(place, "it names a URL; take the file in with `jetwheel add`".to_owned()));
            }
        };
        let project = match parsed.name.as_ref().parse() {
            Ok(project) => project,
            Err(error) => return Err(wrong(place, format!("{error}"))),
        };
        Ok(Self { project, specifiers, text: text.trim().to_owned(), parsed })
    }

    /// Whether the requirement names one version, which may then be a yanked one (PEP 592).
    pub fn pins(&self) -> bool {
        self.specifiers
            .iter()
            .any(|specifier| matches!(specifier.operator(), Operator::Equal | Operator::ExactEqual))
    }

    /// Whether the requirement asks for pre-releases by naming one.
    pub fn asks_for_pre_releases(&self) -> bool {
        self.specifiers.iter().any(pep440_rs::VersionSpecifier::any_prerelease)
    }

    /// Whether the requirement's marker holds on a device.
    pub fn applies_to(&self, device: &DeviceProfile) -> bool {
        environment(device).is_none_or(|environment| self.parsed.evaluate_markers(&environment, &[]))
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(&self.text)
    }
}

/// What markers are evaluated against: the device, never this machine.
fn environment(device: &DeviceProfile) -> Option<MarkerEnvironment> {
    let python = device.python.to_string();
    let full = format!("{python}.0");
    MarkerEnvironment::try_from(MarkerEnvironmentBuilder {
        implementation_name: "cpython",
        implementation_version: &full,
        os_name: "posix",
        platform_machine: "aarch64",
        platform_python_implementation: "CPython",
        platform_release: device.kernel_release.as_deref().unwrap_or_default(),
        platform_system: "Linux",
        platform_version: "",
        python_full_version: &full,
        python_version: &python,
        sys_platform: "linux",
    })
    .ok()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Reads a requirements file with `read`.
pub fn read_requirements(
    file: &Path,
    read: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<RequirementsFile, RequirementError> {
    let mut result = RequirementsFile::default();
    read_into(file, read, "", 0, &mut result)?;
    Ok(result)
}

fn read_into(
    file: &Path,
    read: &dyn Fn(&Path) -> io::Result<String>,
    named_at: &str,
    depth: usize,
    result: &mut RequirementsFile,
) -> Result<(), RequirementError> {
    if depth > DEEPEST {
        let why = "requirements files are nested more than 10 deep";
        return Err(RequirementError::TooMuch { place: named_at.to_owned(), why });
    }
    let text = read(file).map_err(|source| RequirementError::Io {
        place: named_at.to_owned(),
        file: file.to_owned(),
        source,
    })?;
    let mut hashes = 0_u64;
    for (number, line) in logical_lines(&text) {
        let place = format!("{}:{number}: ", file.display());
        result.lines = result.lines.saturating_add(1);
        if result.lines > MOST_LINES {
            let why = "more than 100,000 lines of requirements";
            return Err(RequirementError::TooMuch { place, why });
        }
        let mut line = line.as_str();
        if let Some(nested) = option_value(line, "-r", "--requirement") {
            let nested = file.parent().unwrap_or(Path::new("")).join(nested);
            read_into(&nested, read, &place, depth.saturating_add(1), result)?;
            continue;
        }
        if line.starts_with('-') {
            let option = line.split([' ', '=']).next().unwrap_or_default().to_owned();
            return Err(RequirementError::Option { place, why: instead_of(&option), option });
        }
        // pip's own cut: options of one requirement follow it after a blank.
        if let Some(at) = line.find(" --") {
            let options = line.get(at..).unwrap_or_default();
            for option in options.split_whitespace().filter(|word| word.starts_with("--")) {
                if !option.starts_with("--hash") {
                    let option = option.split('=').next().unwrap_or_default().to_owned();
                    return Err(RequirementError::Option { place, why: instead_of(&option), option });
                }
                hashes = hashes.saturating_add(1);
            }
            line = line.get(..at).unwrap_or_default();
        }
        result.requirements.push(Requirement::at(place, line)?);
    }
    if hashes > 0 {
        result.notes.push(format!(
            "{}: {hashes} --hash options are ignored: what is kept is pinned by the digest of its first sight",
            file.display()
        ));
    }
    Ok(())
}

fn option_value<'line>(line: &'line str, short: &str, long: &str) -> Option<&'line str> {
    let rest = line.strip_prefix(long).or_else(|| line.strip_prefix(short))?;
    let value = rest.trim_start_matches(['=', ' ', '\t']).trim();
    (!value.is_empty()).then_some(value)
}

fn instead_of(option: &str) -> &'static str {
    match option {
        "-i" | "--index-url" | "--extra-index-url" | "-f" | "--find-links" => {
            "name the index with --upstream on the command line"
        }
        "-c" | "--constraint" => "constraints are read by `jetwheel resolve`",
        "-e" | "--editable" => "take a built wheel in with `jetwheel add`",
        "--pre" => "a requirement asks for pre-releases by naming one, such as >=2.5.0a0",
        _ => "only requirements, --hash and -r are read",
    }
}

/// Lines joined where a backslash ends one, without comments and empty ones; each with the number of its first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let (number, mut joined) = open.take().unwrap_or((index.saturating_add(1), String::new()));
        // A comment ends a continuation too, as in pip.
        let is_comment = line.trim_start().starts_with('#');
        if let Some(line) = line.strip_suffix('\\').filter(|_| !is_comment) {
            joined.push_str(line);
            open = Some((number, joined));
            continue;
        }
        joined.push_str(line);
        lines.push((number, joined));
    }
    lines.extend(open);
    for (_, line) in &mut lines {
        let end = if line.starts_with('#') {
            0
        } else {
            line.find(" #").or_else(|| line.find("\t#")).unwrap_or(line.len())
        };
        *line = line.get(..end).unwrap_or_default().trim().to_owned();
    }
    lines.retain(|(_, line)| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<(Vec<String>, Vec<String>), String> {
        let by_name = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let file = read_requirements(Path::new(files[0].0), &by_name).map_err(|error| error.to_string())?;
        Ok((file.requirements.iter().map(ToString::to_string).collect(), file.notes))
    }

    /// Expected values from `pip._internal.req.req_file` of pip 26.3 on the same text.
    #[test]
    fn reads_comments_continuations_hashes_and_nested_files() {
        let text = "# a comment\ntorch==2.8.0 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\n\n  numpy>=1,<2  # why\n-r sub/more.txt\n\
                    pillow[jpeg] ; python_version < '3.11'\n";
        let (requirements, notes) =
            read(&[("reqs.txt", text), ("sub/more.txt", "scipy\n-r=last.txt\n"), ("sub/last.txt", "cupy")])
                .unwrap();
        assert_eq!(
            requirements,
            ["torch==2.8.0", "numpy>=1,<2", "scipy", "cupy", "pillow[jpeg] ; python_version < '3.11'"]
        );
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn says_where_a_line_cannot_be_used() {
        let refuse = |text: &str| read(&[("r.txt", text)]).unwrap_err();
        insta::assert_snapshot!(refuse("\n--index-url https://a.test/simple"),
            @"r.txt:2: the option --index-url is not understood: name the index with --upstream on the command line");
        insta::assert_snapshot!(refuse("demo --config-settings=x"),
            @"r.txt:1: the option --config-settings is not understood: only requirements, --hash and -r are read");
        insta::assert_snapshot!(refuse("demo @ https://a.test/demo.whl"),
            @r#"r.txt:1: "demo @ https://a.test/demo.whl" is no requirement: it names a URL; take the file in with `jetwheel add`"#);
        insta::assert_snapshot!(refuse("-r r.txt"), @"r.txt:1: requirements files are nested more than 10 deep");
        insta::assert_snapshot!(refuse("-r gone.txt"), @"r.txt:1: gone.txt");
        assert!(refuse("./demo.whl").starts_with("r.txt:1: "));
    }
}
