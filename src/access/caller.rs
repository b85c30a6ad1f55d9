//! Who asks: what the router hands on to whoever has to know.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::presented::Presented;
use super::token::{Scope, Token, Tokens};
use crate::policy::Pattern;

/// Who asks, and what that one may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// Name of the token; none for somebody who presented none.
    pub name: Option<String>,
    /// What the token allows.
    pub scopes: BTreeSet<Scope>,
    /// For which devices; all where there is none.
    pub devices: Vec<Pattern>,
    /// Why what was presented counts for nothing, where something was.
    pub worthless: Option<Worthless>,
}

/// Why what was presented counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Worthless {
    /// It is no token.
    #[error("the Authorization field holds no token")]
    Malformed,
    /// Nobody has that token.
    #[error("this access token is not known here: it was revoked, or mistyped")]
    Unknown,
    /// Its time is over.
    #[error("the access token {name:?} expired at {at}")]
    Expired {
        /// Its name.
        name: String,
        /// When.
        at: Timestamp,
    },
}

/// Why a caller may not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No token, or one that counts for nothing; another one may do.
    #[error("{}{ASK}", .0.as_ref().map(|why| format!("{why}; ")).unwrap_or_default())]
    WhoAreYou(Option<Worthless>),
    /// The token does not allow it.
    #[error("the access token {name:?} allows {}, and this needs {needed}", list(.scopes))]
    Scope {
        /// Name of the token.
        name: String,
        /// What it allows.
        scopes: BTreeSet<Scope>,
        /// What it would have to allow.
        needed: Scope,
    },
    /// The token is for other devices.
    #[error("the access token {name:?} is for {}, and this is {device}", devices.join(", "))]
    Device {
        /// Name of the token.
        name: String,
        /// For which devices it is.
        devices: Vec<String>,
        /// What was asked for.
        device: String,
    },
}

/// How to present a token.
const ASK: &str = "this needs an access token, as the password of the user __token__";

fn list(scopes: &BTreeSet<Scope>) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ")
}

impl Caller {
    /// Who presents that.
    pub fn of(presented: &Presented, tokens: &Tokens, now: Timestamp) -> Self {
        let worthless = |why| Self { worthless: Some(why), ..Self::default() };
        let Presented::Secret(secret) = presented else { return worthless(Worthless::Malformed) };
        let Some(token) = tokens.find(secret) else { return worthless(Worthless::Unknown) };
        let Token { name, scopes, devices, expires, .. } = token;
        match expires {
            Some(at) if token.expired(now) => worthless(Worthless::Expired { name: name.clone(), at: *at }),
            _ => Self {
                name: Some(name.clone()),
                scopes: scopes.clone(),
                devices: devices.clone(),
                worthless: None,
            },
        }
    }

    /// Checks a scope; a device as well where one is named, by any of its names.
    pub fn check(&self, needed: Scope, device: &[&str]) -> Result<(), Denied> {
        let Some(name) = &self.name else { return Err(Denied::WhoAreYou(self.worthless.clone())) };
        if !self.scopes.contains(&needed) && !self.scopes.contains(&Scope::Admin) {
            return Err(Denied::Scope { name: name.clone(), scopes: self.scopes.clone(), needed });
        }
        let reached = |pattern: &Pattern| device.iter().any(|device| pattern.matches(device));
        match device.first() {
            Some(first) if !self.devices.is_empty() && !self.devices.iter().any(reached) => {
                Err(Denied::Device {
                    name: name.clone(),
                    devices: self.devices.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
                    device: (*first).to_owned(),
                })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::{CHANCE, NewToken, Secret};
    use super::*;

    #[test]
    fn what_a_token_allows() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let mut tokens = Tokens::default();
        let mut make = |name: &str, scope, devices: &[&str], expires| {
            let secret = Secret::presented(name.repeat(CHANCE));
            let devices = devices.iter().map(|device| (*device).to_owned()).collect();
            let new = NewToken { name: name.to_owned(), scopes: [scope].into(), devices, expires };
            tokens.create(new, &secret, Timestamp::UNIX_EPOCH).unwrap();
            Presented::Secret(secret)
        };
        let reader = make("r", Scope::Read, &["orin-*"], None);
        let admin = make("a", Scope::Admin, &[], None);
        let old = make("o", Scope::Admin, &[], Some(now));
        let caller = |presented| Caller::of(presented, &tokens, now);

        assert_eq!(caller(&reader).check(Scope::Read, &["orin-jp6.2"]), Ok(()));
        // By an alias as well as by its own name.
        assert_eq!(caller(&reader).check(Scope::Read, &["mine", "orin-jp6.2"]), Ok(()));
        let denied = caller(&reader).check(Scope::Read, &["thor-jp7.0"]).unwrap_err().to_string();
        assert_eq!(denied, "the access token \"r\" is for orin-*, and this is thor-jp7.0");
        let denied = caller(&reader).check(Scope::Upload, &[]).unwrap_err().to_string();
        assert_eq!(denied, "the access token \"r\" allows read, and this needs upload");
        assert_eq!(caller(&admin).check(Scope::Upload, &[]), Ok(()));
        let denied = caller(&old).check(Scope::Read, &[]).unwrap_err().to_string();
        assert!(
            denied.starts_with("the access token \"o\" expired at 1970-01-12T13:46:40Z; this needs"),
            "{denied}"
        );
        let nobody = Caller::default().check(Scope::Read, &[]).unwrap_err().to_string();
        assert!(nobody.starts_with("this needs an access token"), "{nobody}");
    }
}
