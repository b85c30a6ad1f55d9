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
