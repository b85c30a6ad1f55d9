//! `--server URL`: commands that a mirror elsewhere carries out, by its API.

use std::fmt;
use std::io::Read as _;
use std::path::Path;

use http::Method;
use percent_encoding::utf8_percent_encode;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::{Command, Context, Usage, upstreams};
use crate::server::api::Wrong;
use crate::server::path::ESCAPED;
use crate::upstream::Client;
use crate::wording::with_causes;

/// The variable that may hold the token.
const TOKEN: &str = "JETWHEEL_TOKEN";

/// The longest file of a token, in bytes; a token has 52.
const LONGEST_TOKEN: u64 = 4096;

/// The largest answer that is read, in bytes: a snapshot of a million files has some 250 MB.
const LARGEST_ANSWER: u64 = 1 << 30;

/// A mirror elsewhere.
pub(super) struct Remote {
    client: Client,
    /// Ends in a slash.
    base: Url,
    token: Option<String>,
    runtime: tokio::runtime::Runtime,
}

impl fmt::Debug for Remote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Remote {{ base: {} }}", self.base)
    }
}

/// Why a mirror did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct Problem {
    /// The status; 0 where there was no answer.
    pub(super) status: u16,
    /// The word for it, where there is one.
    pub(super) kind: Option<String>,
    /// The sentence.
    pub(super) detail: String,
    /// All that was told.
    pub(super) more: Value,
}

impl Problem {
    fn of(detail: String) -> Self {
        Self { status: 0, kind: None, detail, more: Value::Null }
    }

    /// Whether another command line, or another token, would do.
    pub(super) fn is_usage(&self) -> bool {
        (400..500).contains(&self.status) && self.status != 408
    }
}

/// What the user can put right by another command line is wrong usage.
pub(super) fn wrong(wrong: Wrong) -> anyhow::Error {
    match wrong {
        Wrong::Asked(why) | Wrong::Unknown(why) | Wrong::Stands(why) => Usage(why).into(),
        Wrong::Store(error) => error.into(),
    }
}

/// A text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    // A dot segment would lead elsewhere, however it is written; nothing has a name with a question mark.
    let text = if matches!(text, "." | "..") { "?" } else { text };
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The verbs that a mirror elsewhere can carry out.
const VERBS: &str = "snapshot, explain, advisories, token, sync, audit";

/// Whether a mirror elsewhere can carry the command out; an error says that it cannot.
pub(super) fn check(command: &Command) -> Result<(), Usage> {
    let verb = match command {
        Command::Snapshot(_)
        | Command::Explain(_)
        | Command::Advisories(_)
        | Command::Token(_)
        | Command::Sync(_)
        | Command::Audit(_) => return Ok(()),
        Command::Resolve(_) => {
            return Err(Usage(
                "resolve works on the data folder; of a mirror elsewhere POST /DEVICE/resolve answers the same. Over \
                 --server there are "
                    .to_owned()
                    + VERBS,
            ));
        }
        Command::Add(_) => {
            return Err(Usage(
                "add works on the data folder; to a mirror elsewhere wheels go by twine upload or uv publish. Over \
                 --server there are "
                    .to_owned()
                    + VERBS,
            ));
        }
        Command::Quickstart(_) => "quickstart",
        Command::Inspect(_) => "inspect",
        Command::Devices(_) => "devices",
        Command::Detect(_) => "detect",
        Command::Serve(_) => "serve",
        Command::Export(_) => "export",
        Command::Import(_) => "import",
        Command::Inventory(_) => "inventory",
        Command::Work(_) => "work",
        Command::Verify(_) => "verify",
        Command::Gc(_) => "gc",
        Command::Migrate(_) => "migrate",
        Command::Rebuild(_) => "rebuild",
        Command::Config(_) => "config",
        Command::Completions(_) => "completions",
        Command::Man(_) => "man",
    };
    Err(Usage(format!("{verb} works on this machine alone, not over --server; over it there are {VERBS}")))
}

impl Remote {
    /// Finds out how the mirror is reached, and with which token.
    pub(super) fn new(
        server: &str,
        token_file: Option<&Path>,
        context: &mut Context,
    ) -> anyhow::Result<Self> {
        let mut options = upstreams::network_options(context)?;
        let bad = |why: &str| {
            Usage(format!("--server is no URL of a mirror such as https://mirror.example/: {why}"))
        };
        let url: Url = server.parse().map_err(|error: url::ParseError| bad(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
            return Err(bad("expected http or https, without a query").into());
        }
        let mut base = options.credentials.take_from(&url);
        if !base.path().ends_with('/') {
            let path = format!("{}/", base.path());
            base.set_path(&path);
        }
        let token = match token_file {
            Some(file) => Some(read_token(&context.path(file))?),
            None => std::env::var(TOKEN)
                .ok()
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty()),
        };
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(Usage(
                "the token holds what no token holds: blanks, or other letters than ASCII".to_owned(),
            )
            .into());
        }
        let client = Client::new(options).map_err(|error| Usage(with_causes(&error)))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { client, base, token, runtime })
    }

    /// Asks for something below `/api/v1/`.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Result<T, Problem> {
        self.ask(Method::GET, path, query, None)
    }

    /// Has something made or done.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Problem> {
        let body = serde_json::to_vec(body).map_err(|error| Problem::of(error.to_string()))?;
        self.ask(Method::POST, path, &[], Some(body))
    }

    /// Has something taken away.
    pub(super) fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        self.ask(Method::DELETE, path, &[], None)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<T, Problem> {
        let mut url = self
            .base
            .join(&format!("api/v1/{path}"))
            .map_err(|error| Problem::of(format!("{}: {error}", self.base)))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let asked = self.client.call(method, &url, self.token.as_deref(), body, LARGEST_ANSWER);
        let (status, body) =
            self.runtime.block_on(asked).map_err(|error| Problem::of(with_causes(&error)))?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&body).map_err(|error| {
                Problem::of(format!("{} does not answer as a mirror does: {error}", self.base))
            });
        }
        let more: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| more.get(name).and_then(Value::as_str).map(str::to_owned);
        let detail = text("detail").unwrap_or_else(|| {
            format!("{} answers {status}, and does not say why as a mirror does", self.base)
        });
        Err(Problem { status, kind: text("kind"), detail, more })
    }
}

fn read_token(file: &Path) -> anyhow::Result<String> {
    let wrong = |error: std::io::Error| Usage(format!("--token-file: {error}"));
    let mut text = String::new();
    let opened = fs_err::File::open(file).map_err(wrong)?;
    opened.take(LONGEST_TOKEN).read_to_string(&mut text).map_err(wrong)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Usage(format!("--token-file: {} holds no token", file.display())).into());
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_never_leads_elsewhere() {
        let base: Url = "http://a.test/m/api/v1/x/".parse().unwrap();
        for text in [".", "..", "a/b", "../x", "%2e%2e", "a?b#c", "é", "//b.test/"] {
            let joined = base.join(&segment(text)).unwrap();
            assert!(joined.as_str().starts_with(base.as_str()), "{text}: {joined}");
            assert_eq!(joined.path_segments().unwrap().count(), 5, "{text}: {joined}");
        }
    }
}
