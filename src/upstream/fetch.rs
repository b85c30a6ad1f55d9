//! Fetching a file into a spool file, hashing it on the way, resuming where the upstream can.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::header;
use tokio::sync::mpsc;
use url::Url;

use super::client::{Answer, Client, Purpose};
use super::error::{Error, shown};
use crate::digest::{Hasher, Sha256};

/// Pieces that may wait between the network and the disk: some 256 KiB with the pieces that hyper reads.
const PIECES_IN_FLIGHT: usize = 16;

/// How much may be written without `progress` being told, in bytes, while more is coming.
const TELL_EVERY: u64 = 256 << 10;

/// Most tries for one file, even if each got some bytes further.
const MOST_TRIES: u32 = 100;

/// A file to fetch, and what its index page says of it.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Where it is.
    pub url: Url,
    /// Digest that the page states: it decides.
    pub sha256: Option<Sha256>,
    /// Size that the page states. It decides only where there is no digest, for some indexes state wrong ones.
    pub size: Option<u64>,
    /// Most bytes that are taken.
    pub limit: u64,
    /// Whether somebody reads the file while it grows: bytes that are there never change then. A fetch that would have to begin
    /// anew fails instead, once there are any.
    pub append_only: bool,
}

/// Who is told the size that has reached the disk. It is called on a thread that may block.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// A file that was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// Digest of the bytes.
    pub sha256: Sha256,
    /// Size in bytes.
    pub size: u64,
}

/// What has reached the disk.
struct Spool {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    size: u64,
}

/// What tells whether the rest of a file belongs to the beginning that we have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Validator(String);

/// Fetches a file into `spool`, from its start; `progress` is told the size reached, which falls when a fetch begins anew.
///
/// A body that breaks off is resumed by a range request, if the upstream gave a strong validator and confirms it; else it is
/// fetched anew. Bytes that differ from the page's digest are fetched once more, since transparent proxies cut bodies short
/// without a trace, and are an error the second time. An empty file is never a wheel.
pub async fn fetch(
    client: &Client,
    wanted: &Wanted,
    spool: &Path,
    progress: &Progress,
) -> Result<Fetched, Error> {
    let io = |source| Error::Io { path: spool.to_owned(), source };
    let file = fs_err::OpenOptions::new().write(true).open(spool).map_err(io)?.into_parts().0;
    let mut state = Spool { file, path: spool.to_owned(), hasher: Hasher::default(), size: 0 };
    let mut validator = None;
    let mut failures = 0;
    let mut lied = false;
    for _try in 0..MOST_TRIES {
        let before = state.size;
        let (back, outcome) = attempt(client, wanted, state, &mut validator, progress).await?;
        state = back;
        let error = match outcome.and_then(|()| check(wanted, &state)) {
            Ok(fetched) => return Ok(fetched),
            Err(error) => error,
        };
        if wanted.append_only && state.size > 0 && (validator.is_none() || error.is_lie()) {
            return Err(error);
        }
        if matches!(error, Error::Hash { .. } | Error::Size { .. }) && !lied {
            lied = true;
            validator = None;
            state.restart()?;
            continue;
        }
        // A byte now and then is no progress.
        if state.size > before && !matches!(error, Error::Slow { .. }) {
            failures = 0;
        }
        client.pause(error, failures).await?;
        failures = failures.saturating_add(1);
        if validator.is_none() {
            state.restart()?;
        }
    }
    Err(Error::Size { url: shown(&wanted.url), expected: wanted.size.unwrap_or(0), found: state.size })
}

/// Asks for the size of a file alone; none where the upstream does not say it.
pub async fn size_of(client: &Client, url: &Url) -> Result<Option<u64>, Error> {
    let ask = || async {
        let answer = client.head(url).await?;
        match answer.status() {
            200 => Ok(answer.header(&header::CONTENT_LENGTH).and_then(|length| length.parse().ok())),
            405 | 501 => Ok(None),
            _ => Err(answer.status_error()),
        }
    };
    client.retrying(ask).await
}

impl Spool {
    fn restart(&mut self) -> Result<(), Error> {
        let io = |source| Error::Io { path: self.path.clone(), source };
        // An empty file may have space set aside, which this would give back.
        if self.size > 0 {
            self.file.set_len(0).map_err(io)?;
            self.file.seek(SeekFrom::Start(0)).map_err(io)?;
        }
        self.hasher = Hasher::default();
        self.size = 0;
        Ok(())
    }
}

fn check(wanted: &Wanted, state: &Spool) -> Result<Fetched, Error> {
    let found = state.hasher.clone().finish();
    let size = state.size;
    let url = || shown(&wanted.url);
    match (wanted.sha256, wanted.size) {
        (Some(expected), _) if expected != found => Err(Error::Hash { url: url(), expected, found, size }),
        (None, Some(expected)) if expected != size => Err(Error::Size { url: url(), expected, found: size }),
        (None, None) if size == 0 => Err(Error::Size { url: url(), expected: 1, found: 0 }),
        _ => Ok(Fetched { sha256: found, size }),
    }
}

/// Asks once and takes what comes. The outer error is one of our own disk, after which there is nothing to resume.
async fn attempt(
    client: &Client,
    wanted: &Wanted,
    mut state: Spool,
    validator: &mut Option<Validator>,
    progress: &Progress,
) -> Result<(Spool, Result<(), Error>), Error> {
    let mut headers = Vec::new();
    if let Some(Validator(text)) = &validator
        && state.size > 0
    {
        headers.push((header::RANGE, format!("bytes={}-", state.size)));
        headers.push((header::IF_RANGE, text.clone()));
    }
    let answer = match client.get(Purpose::File, &wanted.url, &headers).await {
        Ok(answer) => answer,
        Err(error) => return Ok((state, Err(error))),
    };
    let resumed = answer.status() == 206
        && !headers.is_empty()
        && range_start(&answer) == Some(state.size)
        && validator_of(&answer).is_none_or(|now| Some(now) == *validator);
    if !resumed {
        if wanted.append_only && state.size > 0 {
            *validator = None;
            let error = Error::Resume { url: shown(&wanted.url), at: state.size, status: answer.status() };
            return Ok((state, Err(error)));
        }
        state.restart()?;
        *validator = None;
        if answer.status() == 206 || answer.status() == 416 {
            // An answer to a range that does not continue what we have: ask for the whole at the next try.
            let error = Error::Status { url: shown(&wanted.url), status: 503, retry_after: None };
            return Ok((state, Err(error)));
        }
        if answer.status() != 200 {
            let error = answer.status_error();
            return Ok((state, Err(error)));
        }
        *validator = validator_of(&answer);
    }
    if let Some(encoding) = answer.header(&header::CONTENT_ENCODING).filter(|value| *value != "identity") {
        let error = Error::Encoding { url: shown(&wanted.url), encoding: encoding.to_owned() };
        return Ok((state, Err(error)));
    }
    let announced = answer
        .header(&header::CONTENT_LENGTH)
        .and_then(|length| length.parse::<u64>().ok())
        .map(|length| length.saturating_add(state.size));
    if announced.is_some_and(|size| size > wanted.limit) {
        let error = Error::TooLarge { url: shown(&wanted.url), limit: wanted.limit };
        return Ok((state, Err(error)));
    }
    pour(answer, wanted, state, progress).await
}

/// Moves the body to the disk; another thread hashes and writes while this one reads on.
async fn pour(
    mut answer: Answer,
    wanted: &Wanted,
    state: Spool,
    progress: &Progress,
) -> Result<(Spool, Result<(), Error>), Error> {
    let mut reached = state.size;
    let path = state.path.clone();
    let (pieces, written) = mpsc::channel(PIECES_IN_FLIGHT);
    let told = Arc::clone(progress);
    let writer = tokio::task::spawn_blocking(move || write(state, written, &told));
    let outcome = loop {
        match answer.chunk().await {
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
            Ok(Some(piece)) => {
                reached = reached.saturating_add(piece.len() as u64);
                if reached > wanted.limit {
                    break Err(Error::TooLarge { url: shown(&wanted.url), limit: wanted.limit });
                }
                if pieces.send(piece).await.is_err() {
                    // The writer has failed, and says why below.
                    break Ok(());
                }
            }
        }
    };
    drop(pieces);
    let state = writer.await.map_err(|error| Error::Io { path, source: std::io::Error::other(error) })??;
    Ok((state, outcome))
}

fn write(mut state: Spool, mut pieces: mpsc::Receiver<Bytes>, progress: &Progress) -> Result<Spool, Error> {
    let mut told = state.size;
    while let Some(piece) = pieces.blocking_recv() {
        state.file.write_all(&piece).map_err(|source| Error::Io { path: state.path.clone(), source })?;
        state.hasher.update(&piece);
        state.size = state.size.saturating_add(piece.len() as u64);
        // What waits in the channel is told of together.
        if pieces.is_empty() || state.size.saturating_sub(told) >= TELL_EVERY {
            told = state.size;
            progress(told);
        }
    }
    Ok(state)
}

/// A strong entity tag, else the date of the last change.
fn validator_of(answer: &Answer) -> Option<Validator> {
    let tag = answer.header(&header::ETAG).filter(|tag| tag.starts_with('"'));
    tag.or_else(|| answer.header(&header::LAST_MODIFIED)).map(|text| Validator(text.to_owned()))
}

/// The first byte of a `Content-Range: bytes 5-9/10`.
fn range_start(answer: &Answer) -> Option<u64> {
    let range = answer.header(&header::CONTENT_RANGE)?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.trim().parse().ok()
}
