//! Core metadata, as METADATA holds it, and the Tag lines of WHEEL: header fields in the form of RFC 822.
//!
//! ```text
//! Metadata-Version: 2.1
//! Name: torch
//! Version: 2.11.0
//! Requires-Python: >=3.10
//! Requires-Dist: filelock
//! Provides-Extra: optree
//!
//! The description, which is not read.
//! ```

use std::borrow::Cow;

/// The largest METADATA and WHEEL files that are read, in bytes. The description is part of METADATA; real ones reach
/// some 200 KB.
pub const METADATA_CAP: u64 = 4 << 20;

/// The fields that are read.
const READ: [&str; 5] = ["Name", "Version", "Requires-Python", "Requires-Dist", "Provides-Extra"];

/// The most characters of a value that an error repeats.
const LONGEST_ECHO: usize = 100;

/// The most tags that are read of a WHEEL file; the most of a surveyed wheel are 22. Compressed tag sets stand for products:
/// 255 bytes for up to 74,000 tags.
const MOST_TAGS: usize = 10_000;

/// The fields of core metadata that decide who may install a wheel, each as written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// `Name`.
    pub name: String,
    /// `Version`.
    pub version: String,
    /// `Requires-Python`.
    pub requires_python: Option<String>,
    /// `Requires-Dist`, in file order.
    pub requires_dist: Vec<String>,
    /// `Provides-Extra`, in file order.
    pub provides_extra: Vec<String>,
}

/// Why core metadata cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataError {
    /// A field that must be there is not.
    #[error("no {0} field, expected one")]
    Missing(&'static str),
    /// A field that must be there once is there again, with another value.
    #[error("line {line}: {field} is {found:?}, but was {first:?} above")]
    Contradiction {
        /// Line, from 1.
        line: usize,
        /// The field's name.
        field: &'static str,
        /// The second value.
        found: String,
        /// The first value.
        first: String,
    },
    /// A field that is read has characters that no such field has.
    #[error("line {line}: {field} has a control character: {found:?}")]
    ControlCharacter {
        /// Line, from 1.
        line: usize,
        /// The field's name.
        field: &'static str,
        /// The value, cut after some characters.
        found: String,
    },
    /// It is larger than what is read.
    #[error("{0} bytes, expected at most {METADATA_CAP}")]
    TooLarge(u64),
}

impl Metadata {
    /// Reads a METADATA file, or a `.metadata` file of an index.
    ///
    /// Bytes that are not UTF-8 are taken as Latin-1, as older tools wrote them. Versions and requirements are not
    /// parsed: that is for whoever needs them.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetadataError> {
        let size = bytes.len() as u64;
        if size > METADATA_CAP {
            return Err(MetadataError::TooLarge(size));
        }
        let text = decode(bytes);
        let mut metadata = Self::default();
        let (mut name, mut version) = (None, None);
        for Field { line, name: field, value } in fields(&text) {
            let once = |slot: &mut Option<String>, field| match slot {
                Some(first) if *first != value => Err(MetadataError::Contradiction {
                    line,
                    field,
                    found: value.chars().take(LONGEST_ECHO).collect(),
                    first: first.chars().take(LONGEST_ECHO).collect(),
                }),
                Some(_) => Ok(()),
                None => {
                    *slot = Some(value.clone());
                    Ok(())
                }
            };
            let field = field.to_ascii_lowercase();
            if let Some(field) = READ.into_iter().find(|known| known.eq_ignore_ascii_case(&field))
                && value.contains(|letter: char| letter.is_control() && letter != '\t')
            {
                let found = value.chars().take(LONGEST_ECHO).collect();
                return Err(MetadataError::ControlCharacter { line, field, found });
            }
            match field.as_str() {
                "name" => once(&mut name, "Name")?,
                "version" => once(&mut version, "Version")?,
                "requires-python" => once(&mut metadata.requires_python, "Requires-Python")?,
                "requires-dist" => metadata.requires_dist.push(value),
                "provides-extra" => metadata.provides_extra.push(value),
                _ => {}
            }
        }
        metadata.name = name.ok_or(MetadataError::Missing("Name"))?;
        metadata.version = version.ok_or(MetadataError::Missing("Version"))?;
        Ok(metadata)
    }
}

/// The Tag lines of a WHEEL file, in lower case, compressed tag sets expanded; at most `MOST_TAGS` of them.
pub fn wheel_tags(bytes: &[u8]) -> Vec<String> {
    /// No tag is longer, for none fits into a file name then.
    const LONGEST: usize = 255;

    let text = decode(bytes.get(..bytes.len().min(1 << 20)).unwrap_or_default());
    let mut tags = Vec::new();
    for field in fields(&text).filter(|field| field.name.eq_ignore_ascii_case("tag")) {
        let value = field.value.to_ascii_lowercase();
        let [python, abi, platform] = value.split('-').collect::<Vec<_>>()[..] else { continue };
        if value.len() > LONGEST {
            continue;
        }
        for python in python.split('.') {
            for abi in abi.split('.') {
                let room = MOST_TAGS.saturating_sub(tags.len());
                let platforms = platform.split('.').take(room);
                tags.extend(platforms.map(|platform| format!("{python}-{abi}-{platform}")));
            }
        }
    }
    tags
}

fn decode(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(_) => Cow::Owned(bytes.iter().map(|&byte| char::from(byte)).collect()),
    }
}

/// One header field, its folded lines joined.
struct Field<'a> {
    /// Line on which it begins, from 1.
    line: usize,
    name: &'a str,
    value: String,
}

/// The lines of a text, which end in LF, CRLF or a lone CR: so Python's own parser has it, and so pip.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// Yields the header fields up to the first empty line, or the first line that is none (where Python's own parser sees
/// the body begin, too).
fn fields(text: &str) -> impl Iterator<Item = Field<'_>> {
    let mut lines = lines(text).enumerate().take_while(|(_, line)| !line.is_empty()).peekable();
    std::iter::from_fn(move || {
        // Python's parser passes over lines without a name, with what continues them, and reads on.
        let nameless = |line: &str| line.starts_with([':', ' ', '\t']) || line.starts_with("From ");
        while lines.next_if(|(_, line)| nameless(line)).is_some() {}
        let (index, line) = lines.next()?;
        let (name, value) = line.split_once(':')?;
        if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut value = value.trim().to_owned();
        while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with([' ', '\t'])) {
            value.push(' ');
            value.push_str(more.trim());
        }
        let value = value.trim_end().to_owned();
        Some(Field { line: index.saturating_add(1), name, value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_fields_and_not_the_description() {
        let metadata = Metadata::parse(
            b"Metadata-Version: 2.1\r\nNAME: Demo.Pkg\r\nVersion: 1.0+cu126 \r\nRequires-Python: >=3.8,\r\n  <4\r\n\
              Requires-Dist: torch (==2.8.0) ; extra == 'gpu'\r\nProvides-Extra: gpu\r\n\r\nRequires-Dist: none\r\n",
        )
        .unwrap();
        assert_eq!(
            metadata,
            Metadata {
                name: "Demo.Pkg".into(),
                version: "1.0+cu126".into(),
                requires_python: Some(">=3.8, <4".into()),
                requires_dist: vec!["torch (==2.8.0) ; extra == 'gpu'".into()],
                provides_extra: vec!["gpu".into()],
            }
        );
    }

    #[test]
    fn takes_latin_1_where_it_is_no_utf_8() {
        let metadata = Metadata::parse(b"Name: a\nVersion: 1\nAuthor: J\xf6rg\nRequires-Dist: b\n").unwrap();
        assert_eq!(metadata.requires_dist, ["b"]);
        let marked = Metadata::parse("\u{feff}Name: a\nVersion: 1\n".as_bytes()).unwrap();
        assert_eq!(marked.name, "a");
    }

    #[test]
    fn refuses_what_contradicts_itself() {
        let message = |text: &[u8]| Metadata::parse(text).unwrap_err().to_string();
        insta::assert_snapshot!(message(b"Name: a\n"), @"no Version field, expected one");
        insta::assert_snapshot!(message(b"Version: 1\nName: a\nName: b\n"), @r#"line 3: Name is "b", but was "a" above"#);
        insta::assert_snapshot!(message(&vec![b' '; 5 << 20]), @"5242880 bytes, expected at most 4194304");
        assert!(Metadata::parse(b"Name: a\nVersion: 1\nName: a\n").is_ok());
    }

    #[test]
    fn a_line_that_is_no_field_begins_the_body() {
        let metadata = Metadata::parse(b"Name: a\nVersion: 1\nnonsense\nRequires-Dist: b\n").unwrap();
        assert_eq!(metadata.requires_dist, [""; 0]);
    }

    /// As `email.message_from_string` of Python 3.12 has it: a lone CR ends a line.
    #[test]
    fn a_carriage_return_ends_a_line() {
        let metadata =
            Metadata::parse(b"Name: a\nVersion: 1\nSummary: x\rRequires-Dist: b\r\rRequires-Dist: c\n");
        assert_eq!(metadata.unwrap().requires_dist, ["b"]);
        let metadata = Metadata::parse(b"Name: a\rVersion: 1\r\nRequires-Dist: b\n\r\nRequires-Dist: c\n");
        assert_eq!(metadata.unwrap().requires_dist, ["b"]);
    }

    /// As `email.message_from_string` of Python 3.12 has it.
    #[test]
    fn lines_without_a_name_are_passed_over() {
        for line in [": x", "From x", "From z: v", "From x\n cont"] {
            let text = format!("Name: a\nVersion: 1\n{line}\nRequires-Dist: b\n");
            assert_eq!(Metadata::parse(text.as_bytes()).unwrap().requires_dist, ["b"], "{line}");
        }
    }

    #[test]
    fn control_characters_are_refused_where_they_would_be_passed_on() {
        let message = |text: &[u8]| Metadata::parse(text).unwrap_err().to_string();
        insta::assert_snapshot!(message(b"Name: a\nVersion: 1\nRequires-Python: >=3\x1b[31m\n"), @r#"line 3: Requires-Python has a control character: ">=3\u{1b}[31m""#);
        assert!(Metadata::parse(b"Name: a\nVersion: 1\nRequires-Dist: b\x00\n").is_err());
        assert!(Metadata::parse("Name: a\nVersion: 1\nprovides-extra: \u{9b}\n".as_bytes()).is_err());
        assert!(Metadata::parse(b"Name: a\nVersion: 1\nSummary: \x1b[31m\nRequires-Dist: b\t; x\n").is_ok());
    }

    #[test]
    fn tags_that_stand_for_very_many_are_not_all_made() {
        let set = ["a"; 42].join(".");
        let line = format!("Tag: {set}-{set}-{set}\n");
        assert_eq!(wheel_tags(line.repeat(4000).as_bytes()).len(), MOST_TAGS);
    }

    #[test]
    fn expands_the_tags_of_wheel() {
        let tags = wheel_tags(
            b"Wheel-Version: 1.0\nTag: py2.py3-none-any\nTag: cp310-cp310-linux_aarch64\nTag: x\n",
        );
        assert_eq!(tags, ["py2-none-any", "py3-none-any", "cp310-cp310-linux_aarch64"]);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Metadata::parse(&bytes);
            let _ = wheel_tags(&bytes);
        }
    }
}
