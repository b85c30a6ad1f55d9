//! The access tokens: `tokens.json`, written whole and durably at each change. It holds digests of the secrets alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::notes::{Document, Turn};
use super::{Error, Store, locked, site};
use crate::access::{BadToken, CHANCE, NewToken, Secret, Token, Tokens};
use crate::digest::Sha256;

/// How often the last uses of tokens are written.
const USES_WRITTEN: SignedDuration = SignedDuration::from_mins(1);

/// The tokens in memory.
#[derive(Debug, Default)]
pub(super) struct TokenShelf {
    /// None before they were first asked for, and while they cannot be read.
    now: RwLock<Option<Arc<Tokens>>>,
    /// The number of the change that they came with, where processes count them.
    as_of: AtomicI64,
    uses: Mutex<Uses>,
}

/// What is not yet in the file.
#[derive(Debug, Default)]
struct Uses {
    last: HashMap<Sha256, Timestamp>,
    written: Option<Timestamp>,
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    tokens: Vec<Token>,
}

impl Store {
    /// The tokens as of now. Reads the file at the first call alone, and never waits for one who writes it.
    pub fn tokens(&self) -> Result<Arc<Tokens>, Error> {
        if let Some(tokens) = &*self.tokens.now.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Arc::clone(tokens));
        }
        let tokens = self.read_tokens(&self.notes.turn()?)?;
        let mut now = self.tokens.now.write().unwrap_or_else(PoisonError::into_inner);
        // Who changed them meanwhile knows better.
        Ok(Arc::clone(now.get_or_insert_with(|| Arc::new(tokens))))
    }

    /// Makes a token: durable, and good for requests, when this returns. The secret is nowhere but in the answer.
    pub fn create_token(&self, new: NewToken) -> Result<Result<(Token, Secret), BadToken>, Error> {
        let secret = Secret::new(site::chance::<CHANCE>()?);
        let token = self.change_tokens(|tokens| tokens.create(new, &secret, Timestamp::now()))?;
        Ok(token.map(|token| (token, secret)))
    }

    /// Takes a token away: no request gets by with it once this returns.
    pub fn revoke_token(&self, name: &str) -> Result<Result<Token, BadToken>, Error> {
        self.change_tokens(|tokens| tokens.revoke(name))
    }

    /// Notes in memory that a token was presented; true, now and then, if the notes should be written.
    pub fn note_use(&self, token: &Token) -> bool {
        let now = Timestamp::now();
        let mut uses = locked(&self.tokens.uses);
        uses.last.insert(token.sha256, now);
        let due = uses.written.is_none_or(|written| now.duration_since(written) >= USES_WRITTEN);
        if due {
            uses.written = Some(now);
        }
        due
    }

    /// Writes when tokens were last presented.
    pub fn write_uses(&self) -> Result<(), Error> {
        // Within the turn, so that whoever comes second finds them written.
        let turn = self.notes.turn()?;
        let last = std::mem::take(&mut locked(&self.tokens.uses).last);
        if last.is_empty() {
            return Ok(());
        }
        let mut tokens = self.read_tokens(&turn)?;
        for (sha256, when) in &last {
            tokens.used(sha256, *when);
        }
        self.keep_tokens(turn, tokens)
    }

    fn change_tokens<T>(
        &self,
        change: impl FnOnce(&mut Tokens) -> Result<T, BadToken>,
    ) -> Result<Result<T, BadToken>, Error> {
        let turn = self.notes.turn()?;
        let mut tokens = self.read_tokens(&turn)?;
        let answer = match change(&mut tokens) {
            Ok(answer) => answer,
            Err(bad) => return Ok(Err(bad)),
        };
        self.keep_tokens(turn, tokens)?;
        Ok(Ok(answer))
    }

    fn read_tokens(&self, turn: &Turn<'_>) -> Result<Tokens, Error> {
        let Some(bytes) = turn.read(Document::Tokens)? else { return Ok(Tokens::default()) };
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| Error::Tokens {
            path: self.notes.name(Document::Tokens),
            found: error.to_string(),
        })?;
        Ok(Tokens::new(kept.tokens))
    }

    /// Writes the tokens durably and has them in force.
    fn keep_tokens(&self, turn: Turn<'_>, tokens: Tokens) -> Result<(), Error> {
        let kept = Kept { tokens: tokens.list().into_iter().cloned().collect() };
        let path = self.notes.name(Document::Tokens);
        let mut text = serde_json::to_vec_pretty(&kept).map_err(|error| Error::io(&path)(error.into()))?;
        text.push(b'\n');
        turn.write(Document::Tokens, &text)?;
        let as_of = turn.finish()?;
        self.tokens.replace(Some(tokens), as_of);
        Ok(())
    }
}

impl TokenShelf {
    /// Puts the tokens in force that came with a change, unless later ones are. None has them read at the next request.
    fn replace(&self, tokens: Option<Tokens>, as_of: i64) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        if as_of >= self.as_of.load(Ordering::Relaxed) {
            self.as_of.store(as_of, Ordering::Relaxed);
            *now = tokens.map(Arc::new);
        }
    }

    /// The same for what another process may have written.
    pub(super) fn follow(&self, text: Option<&[u8]>, as_of: i64) {
        let tokens = match text {
            None => Some(Tokens::default()),
            Some(text) => serde_json::from_slice(text).ok().map(|kept: Kept| Tokens::new(kept.tokens)),
        };
        self.replace(tokens, as_of);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use fs_err as fs;

    use super::*;
    use crate::access::Scope;

    fn new(name: &str) -> NewToken {
        NewToken { name: name.to_owned(), scopes: [Scope::Read].into(), devices: Vec::new(), expires: None }
    }

    #[test]
    fn tokens_outlive_the_process_and_their_file_holds_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (token, secret) = store.create_token(new("ci")).unwrap().unwrap();
        assert!(store.note_use(&token) && !store.note_use(&token), "once a minute");
        store.create_token(new("other")).unwrap().unwrap();
        drop(store);
        let path = dir.path().join("tokens.json");
        assert!(!fs::read_to_string(&path).unwrap().contains(secret.reveal()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let store = Store::open(dir.path()).unwrap();
        let tokens = store.tokens().unwrap();
        let found = tokens.find(&secret).unwrap();
        assert!(found.last_used.is_some());
        store.revoke_token("ci").unwrap().unwrap();
        assert_eq!(store.tokens().unwrap().find(&secret), None);
    }

    /// Nobody gets in, and nobody loses a token, because a file is damaged.
    #[test]
    fn a_damaged_file_is_told_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tokens.json"), "{").unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(store.tokens().is_err());
        assert!(store.create_token(new("ci")).is_err());
        assert_eq!(fs::read_to_string(dir.path().join("tokens.json")).unwrap(), "{");
    }
}
