//! Sizes of files, as people write and read them.

use std::fmt;
use std::str::FromStr;

use bytesize::ByteSize;

/// A size in bytes, shown in units of powers of 1000 with at most one decimal: `542.9 MB`.
///
/// Read from bytes (`7`), or with a unit of powers of 1000 (`20GB`) or of 1024 (`20GiB`); more than 64 bits hold is the
/// largest that they do.
///
/// ```
/// use jetwheel::wheel::Size;
///
/// assert_eq!(Size(542_944_731).to_string(), "542.9 MB");
/// assert_eq!("1 MiB".parse(), Ok(Size(1 << 20)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(pub u64);

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no size, expected such as 20GB or 20GiB")]
pub struct NotASize(pub String);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Through a text, so that a table's width and alignment count.
        out.pad(&ByteSize::b(self.0).display().si().to_string())
    }
}

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let size: Result<ByteSize, String> = text.trim().parse();
        size.map(|size| Self(size.as_u64())).map_err(|_| NotASize(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bytes_and_units() {
        assert_eq!("20GB".parse(), Ok(Size(20_000_000_000)));
        assert_eq!("1 MiB".parse(), Ok(Size(1 << 20)));
        assert_eq!("7".parse(), Ok(Size(7)));
        assert_eq!("99999999TB".parse(), Ok(Size(u64::MAX)), "as good as no limit");
        assert!("GB".parse::<Size>().is_err() && "-1".parse::<Size>().is_err());
    }

    #[test]
    fn shows_powers_of_a_thousand_and_keeps_to_a_column() {
        assert_eq!(
            [999, 1500, 2_345_000_000].map(|size| Size(size).to_string()),
            ["999 B", "1.5 kB", "2.3 GB"]
        );
        assert_eq!(format!("{:>9}|", Size(1500)), "   1.5 kB|");
    }
}
