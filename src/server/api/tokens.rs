//! Access tokens, as commands and the API tell of them and make them. All blocks.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::wrong::Wrong;
use crate::access::{BadToken, NewToken, Scope, Token};
use crate::store::Store;

/// What is told of a token; never its digest.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) scopes: BTreeSet<Scope>,
    pub(crate) devices: Vec<String>,
    pub(crate) created: Timestamp,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) expired: bool,
    pub(crate) last_used: Option<Timestamp>,
    /// The token itself, where it was made just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// All tokens, by name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct List {
    pub(crate) tokens: Vec<Told>,
}

/// A token that was taken away.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Revoked {
    pub(crate) revoked: String,
}

/// What is asked of a new token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    pub(crate) name: String,
    pub(crate) scopes: BTreeSet<Scope>,
    #[serde(default)]
    pub(crate) devices: Vec<String>,
    #[serde(default)]
    pub(crate) expires: Option<Timestamp>,
}

impl Told {
    fn new(token: &Token, secret: Option<String>) -> Self {
        Self {
            name: token.name.clone(),
            scopes: token.scopes.clone(),
            devices: token.devices.iter().map(|pattern| pattern.as_str().to_owned()).collect(),
            created: token.created,
            expires: token.expires,
            expired: token.expired(Timestamp::now()),
            last_used: token.last_used,
            token: secret,
        }
    }

    /// What the audit log says of it.
    pub(crate) fn noted(&self) -> serde_json::Value {
        serde_json::json!({"name": self.name, "scopes": self.scopes, "devices": self.devices, "expires": self.expires})
    }
}

fn wrong(bad: &BadToken) -> Wrong {
    match bad {
        BadToken::Unknown(_) => Wrong::Unknown(bad.to_string()),
        BadToken::Taken(_) | BadToken::TooMany => Wrong::Stands(bad.to_string()),
        BadToken::Name(_) | BadToken::NoScope | BadToken::Device(_) | BadToken::Devices | BadToken::Past => {
            Wrong::Asked(bad.to_string())
        }
    }
}

/// Makes a token; what is told holds the secret.
pub(crate) fn create(store: &Store, asked: Asked) -> Result<Told, Wrong> {
    let Asked { name, scopes, devices, expires } = asked;
    let (token, secret) =
        store.create_token(NewToken { name, scopes, devices, expires })?.map_err(|bad| wrong(&bad))?;
    Ok(Told::new(&token, Some(secret.reveal().to_owned())))
}

/// Lists the tokens.
pub(crate) fn list(store: &Store) -> Result<List, Wrong> {
    store.write_uses()?;
    let tokens = store.tokens()?;
    Ok(List { tokens: tokens.list().into_iter().map(|token| Told::new(token, None)).collect() })
}

/// Takes a token away.
pub(crate) fn revoke(store: &Store, name: &str) -> Result<Revoked, Wrong> {
    let token = store.revoke_token(name)?.map_err(|bad| wrong(&bad))?;
    Ok(Revoked { revoked: token.name })
}
