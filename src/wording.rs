//! How messages are worded: an error with what lies below it, and so many of a noun.

use std::error::Error;
use std::fmt::{Display, Write as _};

/// The messages of an error and of its sources, from the outermost to the first cause: `a: b: c`.
///
/// Some libraries print their source as well as return it: what stands there already is not repeated.
pub(crate) fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let message = cause.to_string();
        if !text.contains(&message) {
            let _infallible = write!(text, ": {message}");
        }
    }
    text
}

/// An error and all that lies below it, from the outermost to the first cause.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + use<'a> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// So many of a noun whose plural ends in s: `1 wheel`, `2 wheels`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0_u64, 1, 2].map(|count| counted(count, "wheel")), ["0 wheels", "1 wheel", "2 wheels"]);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Option<Box<Layer>> {
        let (text, below) = texts.split_first()?;
        Some(Box::new(Layer { text, source: layers(below) }))
    }

    #[test]
    fn a_cause_is_told_once() {
        let told = |texts: &[&'static str]| with_causes(&*layers(texts).unwrap());
        assert_eq!(told(&["a file", "its member", "byte 7"]), "a file: its member: byte 7");
        assert_eq!(told(&["cannot connect: refused", "refused"]), "cannot connect: refused");
    }
}
