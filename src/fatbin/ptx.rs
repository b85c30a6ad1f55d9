//! Loose PTX files.

use super::{GpuCode, PtxIsa, Target};

/// Reads `.version` and `.target` out of the front of a PTX file. `None` where that is no PTX.
///
/// Comments of both sorts may stand before and between.
pub(super) fn parse(front: &[u8]) -> Option<GpuCode> {
    let mut words = Words(front);
    let isa = match words.next()? {
        b".version" => version(words.next()?)?,
        _ => return None,
    };
    while words.next()? != b".target" {}
    loop {
        let word = std::str::from_utf8(words.next()?).ok()?;
        if word.starts_with('.') {
            return None;
        }
        if let Some(target) = word.split(',').find_map(|name| name.strip_prefix("sm_")) {
            return Some(GpuCode::Ptx(target.parse::<Target>().ok()?, isa));
        }
    }
}

fn version(word: &[u8]) -> Option<PtxIsa> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Words of a text, without comments.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            self.0 = self.0.trim_ascii_start();
            if let Some(comment) = self.0.strip_prefix(b"//") {
                let end = memchr::memchr(b'\n', comment)?;
                self.0 = comment.get(end..)?;
            } else if let Some(comment) = self.0.strip_prefix(b"/*") {
                let end = memchr::memmem::find(comment, b"*/")?;
                self.0 = comment.get(end.saturating_add(2)..)?;
            } else {
                break;
            }
        }
        let comment = [memchr::memmem::find(self.0, b"//"), memchr::memmem::find(self.0, b"/*")];
        let space = self.0.iter().position(u8::is_ascii_whitespace);
        let end = comment.into_iter().chain([space]).flatten().min().unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[track_caller]
    fn check(text: &str, wanted: Option<&str>) {
        assert_eq!(parse(text.as_bytes()).map(|code| code.to_string()).as_deref(), wanted, "{text}");
    }

    #[test]
    fn reads_version_and_target_past_comments() {
        check(".version 7.4\n.target sm_87\n", Some("compute_87 ptx7.4"));
        check(
            "// .version 1.0\n/* .version 2.0 */.version 8.7 // x\n.target sm_90a, debug",
            Some("compute_90a ptx8.7"),
        );
        check("\n.version\t9.0\n.target texmode_independent,sm_110f\n", Some("compute_110f ptx9.0"));
    }

    #[test]
    fn takes_nothing_else_for_ptx() {
        for text in [
            "",
            "//",
            "/*",
            ".version",
            ".version 8",
            ".version 8.0",
            ".version 8.0\n.target\n.address_size 64",
            ".target sm_87\n.version 8.0",
            "x .version 8.0\n.target sm_87",
            ".version 8.0\n.target sm_",
            ".version é.0",
        ] {
            check(text, None);
        }
    }
}
