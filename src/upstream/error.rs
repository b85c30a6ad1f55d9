//! Why an upstream did not give what was asked of it.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::digest::Sha256;
use crate::wheel::Size;

/// Why an upstream did not give what was asked of it. No message holds credentials or the query of a signed URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text is no URL that we fetch from.
    #[error("{text}: {why}")]
    Url {
        /// The text, without credentials.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// No answer, or one that broke off.
    #[error("{url}: {what}")]
    Connection {
        /// What was asked for.
        url: String,
        /// In which step it failed.
        what: &'static str,
        /// Why.
        source: reqwest::Error,
    },
    /// A body that comes by the byte.
    #[error("{url}: came too slowly: {received} bytes, and then less than 4 KiB a second")]
    Slow {
        /// What was asked for.
        url: String,
        /// How much of it came.
        received: u64,
    },
    /// Another status than was hoped for.
    #[error("{url}: status {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// How long the upstream wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// A redirect that is not followed.
    #[error("{url}: a redirect to {to} is not followed: {why}")]
    Redirect {
        /// What was asked for.
        url: String,
        /// Where it leads.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// The answer is larger than the limit.
    #[error("{url}: larger than the limit of {}", Size(*.limit))]
    TooLarge {
        /// What was asked for.
        url: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The answer is no index page.
    #[error("{url}: content type {found:?} is none of an index page")]
    ContentType {
        /// What was asked for.
        url: String,
        /// The content type.
        found: String,
    },
    /// The index page cannot be read.
    #[error("{url}")]
    Page {
        /// What was asked for.
        url: String,
        /// Why.
        source: crate::simple::Error,
    },
    /// The index has no list of its projects.
    #[error(
        "{upstream}: {url} answers {status}: there is no list of all projects; name the projects instead"
    )]
    NoListing {
        /// Name of the upstream.
        upstream: String,
        /// Where the list was looked for.
        url: String,
        /// The status.
        status: u16,
    },
    /// The bytes are not those that the index page promises.
    #[error("{url}: sha256 of the {size} bytes received is {found}, the index page says {expected}")]
    Hash {
        /// What was asked for.
        url: String,
        /// What the page says.
        expected: Sha256,
        /// What was received.
        found: Sha256,
        /// Size of what was received.
        size: u64,
    },
    /// The answer has another size than promised.
    #[error("{url}: received {found} bytes, expected {expected}")]
    Size {
        /// What was asked for.
        url: String,
        /// What was promised.
        expected: u64,
        /// What was received.
        found: u64,
    },
    /// A body that broke off cannot be gone on with, and what is there of it is being read.
    #[error("{url}: broke off at byte {at}, and cannot be gone on with: status {status}, expected 206")]
    Resume {
        /// What was asked for.
        url: String,
        /// Where it broke off.
        at: u64,
        /// What the upstream answered.
        status: u16,
    },
    /// A wheel came compressed, so that its bytes are not those that were published.
    #[error("{url}: came with content encoding {encoding:?}, expected none")]
    Encoding {
        /// What was asked for.
        url: String,
        /// The content encoding.
        encoding: String,
    },
    /// The end of the zip cannot be read.
    #[error("{url}: {why}")]
    Zip {
        /// What was asked for.
        url: String,
        /// What was found and what was expected.
        why: String,
    },
    /// A local file cannot be used.
    #[error("{path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The client cannot be set up.
    #[error("{what}")]
    Setup {
        /// Which part.
        what: String,
        /// Why.
        source: reqwest::Error,
    },
    /// A netrc file cannot be read; the message of the parser is left out, for it may show a password.
    #[error("{path}: not a netrc file")]
    Netrc {
        /// The file.
        path: PathBuf,
    },
}

/// Statuses that pass by themselves.
const TRANSIENT: [u16; 6] = [408, 429, 500, 502, 503, 504];

impl Error {
    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { source, .. } => !source.is_builder(),
            Self::Slow { .. } => true,
            Self::Status { status, .. } => TRANSIENT.contains(status),
            _ => false,
        }
    }

    /// Whether the upstream was there and lied, rather than being out of reach.
    pub fn is_lie(&self) -> bool {
        matches!(
            self,
            Self::Hash { .. }
                | Self::Size { .. }
                | Self::Encoding { .. }
                | Self::TooLarge { .. }
                | Self::Zip { .. }
        )
    }
}

/// A URL as messages show it: without credentials, without the query, which may hold a signature, without fragment.
pub fn shown(url: &Url) -> String {
    let mut plain = without_credentials(url);
    plain.set_fragment(None);
    if plain.query().is_some() {
        plain.set_query(None);
        return format!("{plain}?…");
    }
    plain.into()
}

/// The URL without user name and password.
pub(super) fn without_credentials(url: &Url) -> Url {
    let mut plain = url.clone();
    // Both fail for URLs that cannot have credentials, which then have none.
    let _none = plain.set_username("");
    let _none = plain.set_password(None);
    plain
}
