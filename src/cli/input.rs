//! What people write: text files and spans of time.

use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use crate::wheel::Size;

/// Largest file with requirements, an upstream or a policy, in bytes.
const LARGEST_FILE: u64 = 16 << 20;

/// Reads a text file of bounded size.
pub(super) fn read_text(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let reader = fs_err::File::open(file)?;
    let count = reader.take(LARGEST_FILE.saturating_add(1)).read_to_string(&mut text)?;
    if count as u64 > LARGEST_FILE {
        return Err(io::Error::other(format!("larger than {}", Size(LARGEST_FILE))));
    }
    Ok(text)
}

/// Reads a span of time; a day has 24 hours.
pub(super) fn parse_delay(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no span of time, expected such as 24h or 7d");
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let seconds =
        span.total((jiff::Unit::Second, jiff::SpanRelativeTo::days_are_24_hours())).map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays() {
        assert_eq!(parse_delay("24h"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_delay("7d"), Ok(Duration::from_hours(7 * 24)));
        assert_eq!(parse_delay("0s"), Ok(Duration::ZERO));
        assert!(parse_delay("soon").is_err() && parse_delay("-1h").is_err());
    }
}
