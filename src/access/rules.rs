//! Which devices may be read by anybody.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::policy::Pattern;

/// Who may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reading {
    /// Anybody.
    #[default]
    Open,
    /// Whoever has a token for it.
    Token,
}

/// Who may read what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// What holds where nothing else is said.
    pub read: Reading,
    /// What holds for devices, by their ids or by patterns.
    pub devices: BTreeMap<String, Reading>,
}

impl Rules {
    /// Who may read a device, by any of its names. Of several patterns that match one, a token wins.
    pub fn reading(&self, names: &[&str]) -> Reading {
        let matching = self.devices.iter().filter(|(pattern, _)| {
            let pattern = Pattern::new(pattern);
            names.iter().any(|name| pattern.matches(name))
        });
        let mut found: Vec<Reading> = matching.map(|(_, reading)| *reading).collect();
        found.sort_by_key(|reading| *reading == Reading::Open);
        found.first().copied().unwrap_or(self.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_by_itself_or_by_a_pattern() {
        let rules = Rules {
            read: Reading::Open,
            devices: BTreeMap::from([
                ("orin-*".to_owned(), Reading::Token),
                ("orin-jp6.2".to_owned(), Reading::Open),
                ("thor-jp7.0".to_owned(), Reading::Token),
            ]),
        };
        assert_eq!(rules.reading(&["orin-jp5.1.2"]), Reading::Token);
        assert_eq!(rules.reading(&["orin-jp6.2"]), Reading::Token);
        assert_eq!(rules.reading(&["spark"]), Reading::Open);
        assert_eq!(rules.reading(&["an-alias", "thor-jp7.0"]), Reading::Token);
        assert_eq!(Rules { read: Reading::Token, ..Rules::default() }.reading(&["spark"]), Reading::Token);
        let open = Rules { read: Reading::Token, devices: [("spark".to_owned(), Reading::Open)].into() };
        assert_eq!(open.reading(&["spark"]), Reading::Open);
    }
}
