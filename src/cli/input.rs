//! What people write: text files, sizes, spans of time.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytesize::ByteSize;

/// Largest file with requirements, an upstream or a policy, in bytes.
const LARGEST_FILE: u64 = 16 << 20;

/// Reads a text file of bounded size.
pub(super) fn read_text(file: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let reader = fs_err::File::open(file)?;
    let count = reader.take(LARGEST_FILE.saturating_add(1)).read_to_string(&mut text)?;
    if count as u64 > LARGEST_FILE {
        return Err(io::Error::other(format!("larger than {LARGEST_FILE} bytes")));
    }
    Ok(text)
}

/// Reads a size: bytes, or with a unit of powers of 1000 (`20GB`) or 1024 (`20GiB`).
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let size: Result<ByteSize, String> = text.trim().parse();
    size.map(|size| size.as_u64()).map_err(|_| format!("{text:?} is no size, expected such as 20GB or 20GiB"))
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
    fn sizes() {
        assert_eq!(parse_size("20GB"), Ok(20_000_000_000));
        assert_eq!(parse_size("1 MiB"), Ok(1 << 20));
        assert_eq!(parse_size("7"), Ok(7));
        assert_eq!(parse_size("99999999TB"), Ok(u64::MAX), "as good as no limit");
        assert!(parse_size("GB").is_err() && parse_size("-1").is_err());
    }

    #[test]
    fn delays() {
        assert_eq!(parse_delay("24h"), Ok(Duration::from_hours(24)));
        assert_eq!(parse_delay("7d"), Ok(Duration::from_hours(7 * 24)));
        assert_eq!(parse_delay("0s"), Ok(Duration::ZERO));
        assert!(parse_delay("soon").is_err() && parse_delay("-1h").is_err());
    }
}
