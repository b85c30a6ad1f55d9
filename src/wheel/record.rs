//! RECORD: path, digest and size of every member (the binary distribution format, "The .dist-info directory").
//!
//! ```text
//! torch/__init__.py,sha256=7q0rGMbLJsuwFn6sHjGmGeLmXWDZKQyfVVTHyPGkFIw,101234
//! "odd, name.py",sha256=RNMXwzs4nBcPXwbZqrHlGgLnbQkLnSBKV8ouP2QCXaA,12
//! torch-2.11.0.dist-info/RECORD,,
//! ```

use base64::Engine as _;

/// The largest RECORD that is read, in bytes: more than twice what the most members that are taken need.
pub(super) const RECORD_CAP: u64 = 24 << 20;

/// The longest line of a RECORD, in bytes: twice what the longest name of a zip member takes, all of it quotes.
pub(super) const LONGEST_LINE: usize = 256 << 10;

/// What RECORD says of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Line, from 1.
    pub(super) number: usize,
    /// Path, with forward slashes.
    pub(super) path: String,
    /// The digest as written, `sha256=...`; empty where none is stated.
    pub(super) digest: &'a str,
    /// Size in bytes as written; empty where none is stated.
    pub(super) size: &'a str,
}

/// A digest that RECORD states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Digest {
    /// SHA-256.
    Sha256([u8; 32]),
    /// SHA-384.
    Sha384(Box<[u8; 48]>),
    /// SHA-512.
    Sha512(Box<[u8; 64]>),
}

impl Digest {
    /// Reads `sha256=` (or 384, 512) and URL-safe base64 without padding.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (algorithm, value) = text.split_once('=')?;
        let value = value.trim_end_matches('=');
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(value).ok()?;
        match algorithm.to_ascii_lowercase().as_str() {
            "sha256" => Some(Self::Sha256(bytes.try_into().ok()?)),
            "sha384" => Some(Self::Sha384(Box::new(bytes.try_into().ok()?))),
            "sha512" => Some(Self::Sha512(Box::new(bytes.try_into().ok()?))),
            _ => None,
        }
    }

    /// The form in which RECORD has it.
    pub(super) fn text(&self) -> String {
        let (algorithm, bytes): (_, &[u8]) = match self {
            Self::Sha256(bytes) => ("sha256", bytes),
            Self::Sha384(bytes) => ("sha384", bytes.as_slice()),
            Self::Sha512(bytes) => ("sha512", bytes.as_slice()),
        };
        format!("{algorithm}={}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// Yields the lines of a RECORD; those without a path are passed over.
///
/// It is CSV, of which quoted paths occur; line breaks within quotes do not, and are not read.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.split('\n').enumerate().filter_map(|(index, line)| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (path, rest) = path(line)?;
        let (digest, size) = rest.split_once(',').unwrap_or((rest, ""));
        Some(Line {
            number: index.saturating_add(1),
            path,
            digest: digest.trim().trim_matches('"'),
            size: size.trim().trim_matches('"'),
        })
    })
}

/// The path of a line, unquoted, and what follows its comma.
fn path(line: &str) -> Option<(String, &str)> {
    let Some(quoted) = line.strip_prefix('"') else {
        let (path, rest) = line.split_once(',').unwrap_or((line, ""));
        return (!path.is_empty()).then(|| (path.to_owned(), rest));
    };
    let mut path = String::new();
    let mut rest = quoted;
    loop {
        let (before, after) = rest.split_once('"')?;
        path.push_str(before);
        // Two quotes stand for one.
        let Some(more) = after.strip_prefix('"') else {
            return (!path.is_empty()).then(|| (path, after.strip_prefix(',').unwrap_or(after)));
        };
        path.push('"');
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The lines are what Python's `csv.writer` makes of the paths.
    #[test]
    fn reads_quoted_paths() {
        let text = "a.py,sha256=xyz,12\r\n\"odd, \"\"name\"\".py\",,\nd/RECORD,,\n\n";
        let lines: Vec<_> =
            lines(text).map(|line| (line.number, line.path, line.digest, line.size)).collect();
        assert_eq!(
            lines,
            [
                (1, "a.py".to_owned(), "sha256=xyz", "12"),
                (2, "odd, \"name\".py".to_owned(), "", ""),
                (3, "d/RECORD".to_owned(), "", ""),
            ]
        );
    }

    /// Expected value from `printf abc | openssl dgst -sha256 -binary | basenc --base64url`.
    #[test]
    fn digests_print_as_they_are_read() {
        let text = "sha256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0";
        assert_eq!(Digest::parse(text).unwrap().text(), text);
        assert_eq!(Digest::parse(&format!("{text}=")).unwrap().text(), text);
        for text in ["", "sha256", "sha256=", "sha256=ungW", "md5=kAFQmDzST7DWlj99KOF_cg", "sha256=!"] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a\",\r\n=]{0,40}") {
            for line in lines(&text) {
                let _ = Digest::parse(line.digest);
            }
        }
    }
}
