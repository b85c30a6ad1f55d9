//! The parameters of a URL.

use http::request::Parts;
use url::form_urlencoded;

use super::{MOST_DEVICES, Wrong};
use crate::server::refusal::cut;

/// The parameters of a URL.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Those of a request.
    pub(super) fn of(parts: &Parts) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// All values of a parameter, in the order of the URL; at most [`MOST_DEVICES`].
    pub(super) fn all(&self, name: &str) -> Result<Vec<String>, Wrong> {
        let values = self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone());
        let values: Vec<String> = values.take(MOST_DEVICES.saturating_add(1)).collect();
        if values.len() > MOST_DEVICES {
            return Err(Wrong::Asked(format!("{name} is given more than {MOST_DEVICES} times")));
        }
        Ok(values)
    }

    /// The value of a parameter that may be given once.
    pub(super) fn one(&self, name: &str) -> Result<Option<String>, Wrong> {
        let mut values = self.all(name)?;
        let value = values.pop();
        if values.is_empty() {
            Ok(value)
        } else {
            Err(Wrong::Asked(format!("{name} is given more than once")))
        }
    }

    /// The same, where it is a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Wrong> {
        let number = |text: String| {
            let number = text.parse().ok().and_then(|number: i64| u64::try_from(number).ok());
            number.ok_or_else(|| {
                Wrong::Asked(format!("{name} is {:?}, expected a number of at most 63 bits", cut(&text)))
            })
        };
        self.one(name)?.map(number).transpose()
    }
}
