//! Tokens: what is kept of them, and what only their owner has.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::policy::Pattern;

/// How many bytes of chance a token has: 256 bits cannot be guessed, so that a plain digest of them keeps them secret.
pub const CHANCE: usize = 32;

/// What each token begins with, so that people and scanners of leaked secrets know one.
const PREFIX: &str = "jetwheel_";

/// The longest name of a token, in bytes.
const LONGEST_NAME: usize = 64;

/// The most tokens: more are a mistake of a script, and all of them are written at each change.
const MOST_TOKENS: usize = 10_000;

/// The most patterns of devices of one token.
const MOST_DEVICES: usize = 256;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Pages, files, explanations and sets, where they are not open to all.
    Read,
    /// Putting wheels into the mirror.
    Upload,
    /// Sending reports of a device, where reading is not open to all.
    Report,
    /// All of these, and what changes the mirror itself.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Upload, Self::Report, Self::Admin];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Upload => "upload",
            Self::Report => "report",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no scope; there are read, upload, report, admin"))
    }
}

/// A token itself, which is shown once and never kept. Its debug form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A new one, out of so much chance.
    pub fn new(chance: [u8; CHANCE]) -> Self {
        Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(chance)))
    }

    /// One that was presented, whatever it is.
    pub const fn presented(text: String) -> Self {
        Self(text)
    }

    /// The text, for its owner's eyes.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn digest(&self) -> Sha256 {
        Sha256::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(..)")
    }
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// What people call it.
    pub name: String,
    /// Digest of the secret.
    pub sha256: Sha256,
    /// What it allows.
    pub scopes: BTreeSet<Scope>,
    /// Which devices it reads and reports for; all where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Pattern>,
    /// When it was made.
    pub created: Timestamp,
    /// From when on it is worth nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When it was last presented, to a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
}

impl Token {
    /// Whether its time is over.
    pub fn expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// What is asked of a token that is to be made.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// What people will call it.
    pub name: String,
    /// What it will allow.
    pub scopes: BTreeSet<Scope>,
    /// For which devices.
    pub devices: Vec<String>,
    /// Until when.
    pub expires: Option<Timestamp>,
}

/// Why a token is not made, or not revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// A name that cannot be one.
    #[error(
        "a token cannot be named {0:?}: expected 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores"
    )]
    Name(String),
    /// A name that is taken.
    #[error("there is a token {0:?} already; jetwheel token revoke takes it away")]
    Taken(String),
    /// No scope.
    #[error("a token needs at least one scope: read, upload, report, admin")]
    NoScope,
    /// A device that cannot be one.
    #[error("{0:?} is no device: expected an id, or a pattern such as orin-*")]
    Device(String),
    /// Too many devices.
    #[error("a token is for at most {MOST_DEVICES} devices and patterns")]
    Devices,
    /// An end that has passed.
    #[error("a token that expired before it was made is worth nothing")]
    Past,
    /// Too many tokens.
    #[error("there are {MOST_TOKENS} tokens, and no more are kept; jetwheel token revoke makes room")]
    TooMany,
    /// No token of that name.
    #[error("there is no token {0:?}; jetwheel token list shows those that there are")]
    Unknown(String),
}

/// All tokens, found by the digest of the secret.
///
/// How long a search takes depends on bits of the digest alone. Whoever presents a secret cannot choose those beforehand, so
/// time tells nothing of the secrets that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(HashMap<Sha256, Token>);

impl Tokens {
    /// Those that were kept.
    pub fn new(tokens: impl IntoIterator<Item = Token>) -> Self {
        Self(tokens.into_iter().map(|token| (token.sha256, token)).collect())
    }

    /// The token of a secret.
    pub fn find(&self, secret: &Secret) -> Option<&Token> {
        self.0.get(&secret.digest())
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<&Token> {
        let mut tokens: Vec<&Token> = self.0.values().collect();
        tokens.sort_by(|left, right| left.name.cmp(&right.name));
        tokens
    }

    /// Makes a token; the caller shows the secret once and forgets it.
    pub fn create(&mut self, new: NewToken, secret: &Secret, now: Timestamp) -> Result<Token, BadToken> {
        let NewToken { name, scopes, devices, expires } = new;
        let is_name = |name: &str| {
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
                && (1..=LONGEST_NAME).contains(&name.len())
        };
        let is_device = |device: &&String| is_name(&device.replace('*', "x"));
        if !is_name(&name) {
            return Err(BadToken::Name(name.chars().take(LONGEST_NAME).collect()));
        }
        if self.0.values().any(|token| token.name == name) {
            return Err(BadToken::Taken(name));
        }
        if self.0.len() >= MOST_TOKENS {
            return Err(BadToken::TooMany);
        }
        if scopes.is_empty() {
            return Err(BadToken::NoScope);
        }
        if let Some(device) = devices.iter().find(|device| !is_device(device)) {
            return Err(BadToken::Device(device.chars().take(LONGEST_NAME).collect()));
        }
        if devices.len() > MOST_DEVICES {
            return Err(BadToken::Devices);
        }
        let devices = devices.iter().map(|device| Pattern::new(device)).collect();
        let sha256 = secret.digest();
        let token = Token { name, sha256, scopes, devices, created: now, expires, last_used: None };
        if token.expired(now) {
            return Err(BadToken::Past);
        }
        self.0.insert(sha256, token.clone());
        Ok(token)
    }

    /// Takes a token away.
    pub fn revoke(&mut self, name: &str) -> Result<Token, BadToken> {
        let found = self.0.values().find(|token| token.name == name).map(|token| token.sha256);
        found
            .and_then(|sha256| self.0.remove(&sha256))
            .ok_or_else(|| BadToken::Unknown(name.chars().take(LONGEST_NAME).collect()))
    }

    /// Notes when a token was last presented.
    pub fn used(&mut self, sha256: &Sha256, when: Timestamp) {
        if let Some(token) = self.0.get_mut(sha256) {
            token.last_used = token.last_used.max(Some(when));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewToken {
        NewToken {
            name: name.to_owned(),
            scopes: [Scope::Upload].into(),
            devices: vec!["orin-*".to_owned()],
            expires: None,
        }
    }

    #[test]
    fn a_secret_is_never_kept_nor_shown() {
        let secret = Secret::new([7; CHANCE]);
        assert!(secret.reveal().starts_with("jetwheel_") && secret.reveal().len() == 9 + 43);
        let mut tokens = Tokens::default();
        let token = tokens.create(new("ci"), &secret, Timestamp::UNIX_EPOCH).unwrap();
        for text in [format!("{tokens:?} {secret:?}"), serde_json::to_string(&token).unwrap()] {
            assert!(!text.contains(secret.reveal()), "{text}");
        }
        assert_eq!(tokens.find(&secret).unwrap().name, "ci");
        assert_eq!(tokens.find(&Secret::new([8; CHANCE])), None);
    }

    #[test]
    fn what_cannot_be_a_token_is_refused() {
        let mut tokens = Tokens::default();
        let (one, two) = (Secret::new([1; CHANCE]), Secret::new([2; CHANCE]));
        let now = Timestamp::from_second(1_000_000).unwrap();
        tokens.create(new("ci"), &one, now).unwrap();
        let mut refused = |new| tokens.create(new, &two, now).unwrap_err();
        assert_eq!(refused(new("ci")), BadToken::Taken("ci".to_owned()));
        assert!(matches!(refused(new("a b")), BadToken::Name(_)));
        assert!(matches!(refused(new("")), BadToken::Name(_)));
        assert_eq!(refused(NewToken { scopes: BTreeSet::new(), ..new("x") }), BadToken::NoScope);
        assert_eq!(refused(NewToken { expires: Some(now), ..new("x") }), BadToken::Past);
        assert!(matches!(
            refused(NewToken { devices: vec!["a/b".to_owned()], ..new("x") }),
            BadToken::Device(_)
        ));
        assert!(tokens.revoke("x").is_err());
        assert_eq!(tokens.revoke("ci").unwrap().name, "ci");
        assert_eq!(tokens.find(&one), None);
    }
}
