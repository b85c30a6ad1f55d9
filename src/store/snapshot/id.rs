//! Names of snapshots.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most snapshots with one second in their ids; more take the next second, so that ids sort as texts.
const MOST_A_SECOND: u8 = 9;

/// The id of a snapshot: the second in which it was made (UTC), and a digit that tells those of one second apart.
///
/// Each is greater than all before it in its store, whatever the clock says: where the clock was set back, an id has the
/// second of the one before it.
///
/// ```
/// use jetwheel::store::SnapshotId;
///
/// let one: SnapshotId = "20261130T075300Z-1".parse().unwrap();
/// assert!(one < "20261130T075300Z-2".parse().unwrap());
/// assert!("20261130T075300Z".parse::<SnapshotId>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId {
    second: String,
    number: u8,
}

/// Why a text is no id of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a snapshot's id is such as 20261130T075300Z-1, found {0:?}")]
pub struct NotASnapshotId(String);

impl SnapshotId {
    /// The id of a snapshot that is made now, after another.
    pub(super) fn after(newest: Option<&Self>, now: jiff::Timestamp) -> Self {
        let second = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        match newest {
            Some(newest) if newest.second >= second => newest.next(),
            _ => Self { second, number: 1 },
        }
    }

    fn next(&self) -> Self {
        if self.number < MOST_A_SECOND {
            return Self { second: self.second.clone(), number: self.number.saturating_add(1) };
        }
        let later = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", &self.second)
            .ok()
            .and_then(|time| time.checked_add(jiff::SignedDuration::from_secs(1)).ok());
        // The end of the year 9999 has no next second; its ids are no longer unique then.
        let second =
            later.map_or_else(|| self.second.clone(), |time| time.strftime("%Y%m%dT%H%M%SZ").to_string());
        Self { second, number: 1 }
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.second, self.number)
    }
}

impl FromStr for SnapshotId {
    type Err = NotASnapshotId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (second, number) = text.split_once('-')?;
            let shape = second.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
            let known = shape.eq(b"00000000T000000Z".iter().copied());
            let number: u8 = number.parse().ok().filter(|_| number.len() == 1)?;
            (known && (1..=MOST_A_SECOND).contains(&number))
                .then(|| Self { second: second.to_owned(), number })
        };
        parse().ok_or_else(|| NotASnapshotId(text.chars().take(80).collect()))
    }
}

impl Serialize for SnapshotId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SnapshotId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_whatever_the_clock_says() {
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        let mut ids = vec![SnapshotId::after(None, at("2026-11-30T23:59:59Z"))];
        assert_eq!(ids[0].to_string(), "20261130T235959Z-1");
        for _ in 0..20 {
            ids.push(SnapshotId::after(ids.last(), at("1970-01-01T00:00:00Z")));
        }
        let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
        assert!(ids.is_sorted() && texts.is_sorted(), "{texts:?}");
        assert_eq!(texts[9], "20261201T000000Z-1");
        assert!(texts.iter().all(|text| text.parse::<SnapshotId>().is_ok()));
        for bad in ["", "20261130T235959Z-0", "20261130T235959Z-10", "20261130T235959Z-+1", "../x-1"] {
            assert!(bad.parse::<SnapshotId>().is_err(), "{bad}");
        }
    }
}
