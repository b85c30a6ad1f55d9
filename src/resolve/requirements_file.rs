//! Requirements files, as pip reads them; the part of their format that says what is wanted.

/// One thing that a requirements file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A requirement.
    Requirement(String),
    /// `-r FILE`: another requirements file.
    Requirements(String),
    /// `-c FILE`: a constraints file.
    Constraints(String),
    /// `--pre`.
    PreReleases,
    /// An option that has no meaning here: where to look is what a mirror answers itself.
    Ignored(String),
}

/// A line that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?} {why}")]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// It, cut to a length that can be shown.
    pub text: String,
    /// What is wrong.
    pub why: &'static str,
}

/// Options that a requirements file may hold for pip's sake.
const IGNORED: [&str; 12] = [
    "-i",
    "--index-url",
    "--extra-index-url",
    "--no-index",
    "-f",
    "--find-links",
    "--trusted-host",
    "--no-binary",
    "--only-binary",
    "--prefer-binary",
    "--require-hashes",
    "--use-feature",
];

/// Reads a requirements file: comments and continued lines resolved, hashes left out.
pub fn read_requirements(text: &str) -> Result<Vec<Line>, BadLine> {
    let mut lines = Vec::new();
    let mut joined = String::new();
    let mut started = 0;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        if joined.is_empty() {
            started = number + 1;
        }
        if let Some(line) = line.strip_suffix('\\') {
            joined.push_str(line);
        } else {
            joined.push_str(line);
            lines.extend(read_line(&joined, started)?);
            joined.clear();
        }
    }
    lines.extend(read_line(&joined, started)?);
    Ok(lines)
}

fn read_line(line: &str, number: usize) -> Result<Option<Line>, BadLine> {
    let comment = if line.trim_start().starts_with('#') {
        Some(0)
    } else {
        line.find(" #").or_else(|| line.find("\t#"))
    };
    let line = line[..comment.unwrap_or(line.len())].trim();
    let bad = |why| BadLine { line: number, text: line.chars().take(120).collect(), why };
    if line.is_empty() {
        return Ok(None);
    }
    if !line.starts_with('-') {
        // `--hash=...`, `--config-settings ...` and the like follow a requirement.
        let end = line.find(" --").unwrap_or(line.len());
        return Ok(Some(Line::Requirement(line[..end].trim().to_owned())));
    }
    let (option, value) =
        line.split_once([' ', '=']).map_or((line, ""), |(option, value)| (option, value.trim()));
    Ok(Some(match option {
        "-r" | "--requirement" => Line::Requirements(value.to_owned()),
        "-c" | "--constraint" => Line::Constraints(value.to_owned()),
        "--pre" => Line::PreReleases,
        "-e" | "--editable" => return Err(bad("is a source tree; only wheels are installed on a device")),
        option if IGNORED.contains(&option) => Line::Ignored(line.to_owned()),
        option if option.starts_with("-r") && !option.starts_with("--") => {
            Line::Requirements(option[2..].to_owned())
        }
        option if option.starts_with("-c") && !option.starts_with("--") => {
            Line::Constraints(option[2..].to_owned())
        }
        _ => return Err(bad("is no option that is known here")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases from pip's documentation, "Requirements File Format".
    #[test]
    fn reads_what_pip_reads() {
        let text = "# a comment\n\ntorch==2.4.0 # why\nnumpy >=1.26,\\\n  <2 \\\n --hash=sha256:abc\n-r other.txt\n-cbase.txt\n\
                    --index-url https://example.org/simple\n--pre\n";
        assert_eq!(
            read_requirements(text).unwrap(),
            [
                Line::Requirement("torch==2.4.0".into()),
                Line::Requirement("numpy >=1.26,  <2".into()),
                Line::Requirements("other.txt".into()),
                Line::Constraints("base.txt".into()),
                Line::Ignored("--index-url https://example.org/simple".into()),
                Line::PreReleases,
            ]
        );
        assert_eq!(read_requirements("a\n-e .\n").unwrap_err().line, 2);
    }
}
