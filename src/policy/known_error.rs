//! Error messages that people meet on devices, and what they come from: `policies/errors.toml`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// How much of a pasted text is looked at, in bytes: a long log of a build has some 100 kB, and its errors stand at its end.
const LONGEST: usize = 64 << 10;

/// The longest piece that a `*` of a pattern stands for, in bytes.
const LONGEST_PIECE: usize = 80;

/// The longest line that is shown again, in characters.
const LONGEST_LINE: usize = 240;

/// A known error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownError {
    /// Its name.
    pub id: String,
    /// What the message has, in small letters. A `*` stands for one word of letters, digits, dots, dashes and underscores.
    #[serde(rename = "match", skip_serializing)]
    patterns: Vec<String>,
    /// What the word behind `*` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<Word>,
    /// What it is, in a few words.
    pub title: String,
    /// What it comes from.
    pub cause: String,
    /// What to do.
    pub remedy: String,
    /// What says so.
    pub sources: Vec<String>,
}

/// What a word of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// A shared library: `libcudnn.so.8`.
    Soname,
    /// A version of glibc: `2.38`.
    Glibc,
    /// A version of libstdc++'s symbols: `3.4.32`.
    Glibcxx,
    /// A project: `torch`.
    Project,
}

/// A known error in a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recognized {
    /// Which.
    #[serde(flatten)]
    pub error: &'static KnownError,
    /// The word that `*` stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// The line that shows it, cut.
    pub line: String,
}

#[derive(Deserialize)]
struct File {
    error: Vec<KnownError>,
}

static KNOWN: LazyLock<Vec<KnownError>> =
    LazyLock::new(|| super::tables::builtin::<File>(include_str!("../../policies/errors.toml")).error);

/// The known errors in a text, each once, in the order of the table: the most telling first.
pub fn recognize(text: &str) -> Vec<Recognized> {
    let text = end_of(text);
    let small = text.to_ascii_lowercase();
    let find = |error: &'static KnownError| {
        let (at, found) = error.patterns.iter().find_map(|pattern| find(&small, pattern))?;
        let line =
            small.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end.saturating_add(1));
        let line = text.get(line..)?.lines().next().unwrap_or_default();
        let line = line.trim().chars().take(LONGEST_LINE).collect();
        // As it was written, not in small letters.
        let found = found.and_then(|(from, to)| text.get(from..to)).map(str::to_owned);
        Some(Recognized { error, found, line })
    };
    KNOWN.iter().filter_map(find).collect()
}

/// The end of a text, of bounded length.
fn end_of(text: &str) -> &str {
    let mut from = text.len().saturating_sub(LONGEST);
    while !text.is_char_boundary(from) {
        from = from.saturating_add(1);
    }
    text.get(from..).unwrap_or_default()
}

/// Where a pattern stands, and where the word is that its `*` stands for.
fn find(text: &str, pattern: &str) -> Option<(usize, Option<(usize, usize)>)> {
    let Some((before, behind)) = pattern.split_once('*') else {
        return text.find(pattern).map(|at| (at, None));
    };
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-".contains(byte);
    if before.is_empty() {
        return text.match_indices(behind).find_map(|(at, _)| {
            let word =
                text.as_bytes().get(..at)?.iter().rev().take(LONGEST_PIECE).take_while(|byte| is_word(byte));
            let length = word.count();
            (length > 0).then(|| (at, Some((at.saturating_sub(length), at))))
        });
    }
    text.match_indices(before).find_map(|(at, _)| {
        let from = at.saturating_add(before.len());
        let word = text.as_bytes().get(from..)?.iter().take(LONGEST_PIECE).take_while(|byte| is_word(byte));
        let to = from.saturating_add(word.count());
        (to > from && text.get(to..)?.starts_with(behind)).then_some((at, Some((from, to))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Messages as they were posted: jax#40487 and NVIDIA's forums.
    #[test]
    fn knows_the_messages_of_the_field() {
        for (text, id, found) in [
            (
                "RuntimeError: CUDA error: no kernel image is available for execution on the device",
                "no-kernel-image",
                None,
            ),
            (
                "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory",
                "soname-missing",
                Some("libcudnn.so.8"),
            ),
            (
                "/lib/aarch64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /x/_C.so)",
                "glibc-too-new",
                Some("2.38"),
            ),
            ("x: version `GLIBCXX_3.4.32' not found", "glibcxx-too-new", Some("3.4.32")),
            ("AssertionError: Torch not compiled with CUDA enabled", "no-gpu-code", None),
            (
                "ERROR: Could not find a version that satisfies the requirement torch>=2.9 (from versions: none)",
                "nothing-fits",
                Some("torch"),
            ),
        ] {
            let seen = recognize(&format!("first line\n{text}\nlast line"));
            let first = seen.first().unwrap_or_else(|| panic!("{text}"));
            assert_eq!((first.error.id.as_str(), first.found.as_deref()), (id, found), "{text}");
            assert_eq!(first.line, text);
        }
        assert_eq!(recognize("all is well"), []);
    }

    #[test]
    fn every_row_of_the_table_says_what_to_do_and_who_says_so() {
        assert!(KNOWN.len() >= 12);
        for error in &*KNOWN {
            assert!(
                !error.remedy.is_empty() && !error.cause.is_empty() && !error.sources.is_empty(),
                "{error:?}"
            );
            assert_eq!(
                error.patterns.iter().any(|pattern| pattern.contains('*')),
                error.word.is_some(),
                "{error:?}"
            );
            for pattern in &error.patterns {
                assert_eq!(*pattern, pattern.to_ascii_lowercase());
            }
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,200}(no kernel image|\\.so\\.8: cannot open shared object file|glibc_)?\\PC{0,20}") {
            let _ = recognize(&text);
        }
    }
}
