//! `Range`, and the conditions that go with it (RFC 9110, sections 13 and 14).

/// What a `Range` header means for a file of a known size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// No range, one that is malformed, of another unit, or more than one: the whole file, which is always allowed.
    Whole,
    /// From the first byte to before the second; never empty.
    Part(u64, u64),
    /// Nothing of it lies inside the file.
    Outside,
}

/// Reads a `Range` header.
pub(super) fn span(range: Option<&str>, size: u64) -> Span {
    let Some(set) = range.and_then(|range| range.trim().strip_prefix("bytes=")) else { return Span::Whole };
    let Some((first, last)) = set.trim().split_once('-') else { return Span::Whole };
    match (position(first), position(last)) {
        (Position::At(first), Position::At(last)) if first > last => Span::Whole,
        (_, Position::Bad) => Span::Whole,
        (Position::At(first), _) if first >= size => Span::Outside,
        (Position::At(first), Position::Open) => Span::Part(first, size),
        (Position::At(first), Position::At(last)) => Span::Part(first, last.saturating_add(1).min(size)),
        (Position::Open, Position::At(length)) if length == 0 || size == 0 => Span::Outside,
        (Position::Open, Position::At(length)) => Span::Part(size.saturating_sub(length), size),
        _ => Span::Whole,
    }
}

/// One end of a range.
enum Position {
    /// A number. One past 64 bits is as good as the largest.
    At(u64),
    /// Nothing is written there.
    Open,
    /// What is written there is no number.
    Bad,
}

fn position(text: &str) -> Position {
    match text {
        "" => Position::Open,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Position::At(digits.parse().unwrap_or(u64::MAX))
        }
        _ => Position::Bad,
    }
}

/// Whether an `If-None-Match` header names that entity tag, by weak comparison.
pub(super) fn names(if_none_match: Option<&str>, etag: &str) -> bool {
    if_none_match.is_some_and(|header| {
        header
            .split(',')
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
    })
}

/// Whether a range may be answered under an `If-Range` header: by strong comparison. No date ever fits, for none is sent.
pub(super) fn same(if_range: Option<&str>, etag: &str) -> bool {
    if_range.is_none_or(|header| header.trim() == etag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_ranges_as_rfc_9110_has_them() {
        for (range, wanted) in [
            ("bytes=0-9", Span::Part(0, 10)),
            ("bytes=-20", Span::Part(80, 100)),
            ("bytes=-200", Span::Part(0, 100)),
            ("bytes=30-", Span::Part(30, 100)),
            ("bytes=90-500", Span::Part(90, 100)),
            ("bytes=0-99999999999999999999999", Span::Part(0, 100)),
            ("bytes=100-", Span::Outside),
            ("bytes=100-200", Span::Outside),
            ("bytes=-0", Span::Outside),
            ("bytes=9-0", Span::Whole),
            ("bytes=0-0,5-6", Span::Whole),
            ("bytes=-", Span::Whole),
            ("bytes=a-b", Span::Whole),
            ("bytes=+1-2", Span::Whole),
            ("lines=0-9", Span::Whole),
            ("", Span::Whole),
        ] {
            assert_eq!(span(Some(range), 100), wanted, "{range}");
        }
        assert_eq!(span(None, 100), Span::Whole);
    }

    #[test]
    fn compares_entity_tags() {
        assert!(
            names(Some("\"b\", W/\"a\""), "\"a\"") && names(Some("*"), "\"a\"") && !names(Some("a"), "\"a\"")
        );
        assert!(same(None, "\"a\"") && same(Some("\"a\""), "\"a\""));
        assert!(!same(Some("W/\"a\""), "\"a\"") && !same(Some("Mon, 30 Nov 2026 00:00:00 GMT"), "\"a\""));
    }

    proptest! {
        #[test]
        fn a_part_lies_inside(range in "bytes=[0-9,-]{0,24}", size in 0_u64..1000) {
            if let Span::Part(start, end) = span(Some(&range), size) {
                prop_assert!(start < end && end <= size);
            }
        }
    }
}
