//! The form of an upload, read as it comes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http_body_util::BodyDataStream;
use multer::{Constraints, Field, Multipart, SizeLimit};

use super::refused;
use super::sink::Sink;
use crate::server::refusal::{Refusal, cut};
use crate::server::request_body::Received;
use crate::server::state::State;

/// The fields that say something to us. All others are metadata, which is read from the wheel itself.
const FIELDS: [&str; 8] = [
    ":action",
    "protocol_version",
    "filetype",
    "name",
    "version",
    "md5_digest",
    "sha256_digest",
    "blake2_256_digest",
];

/// The field with the file.
const CONTENT: &str = "content";

/// The longest of those fields, in bytes; the longest real one is a digest.
const LONGEST_FIELD: usize = 4096;

/// The longest name of the file, in bytes: what file systems take.
const LONGEST_NAME: usize = 255;

/// The most fields of a form; one with all of METADATA has some hundreds.
const MOST_FIELDS: usize = 20_000;

/// How much may come before a field or a piece of one is whole, in bytes, so that a head that never ends does not fill the
/// memory. What hyper has read at once, some 4 MiB, has to fit.
const AHEAD: u64 = 16 << 20;

/// A form that was read to its end.
#[derive(Debug)]
pub(super) struct Form {
    /// Those of the known fields that it had.
    pub(super) fields: BTreeMap<&'static str, String>,
    pub(super) file: Option<File>,
    /// What was wrong with it.
    pub(super) wrong: Option<Refusal>,
}

/// The file of a form.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) sink: Sink,
}

/// Reads a form to its end. An error is one that the rest of the form cannot be read after.
pub(super) async fn read(
    state: &Arc<State>,
    body: Received,
    boundary: String,
    limit: u64,
) -> Result<Form, Refusal> {
    let ahead = Arc::new(AtomicU64::new(0));
    let constraints = Constraints::new().size_limit(SizeLimit::new().whole_stream(limit));
    let mut parts = Multipart::with_constraints(bounded(body, Arc::clone(&ahead)), boundary, constraints);
    let mut form = Form { fields: BTreeMap::new(), file: None, wrong: None };
    for _ in 0..MOST_FIELDS {
        ahead.store(0, Ordering::Relaxed);
        let Some(field) = parts.next_field().await.map_err(|error| broken(&error, limit))? else {
            return Ok(form);
        };
        let known = field.name().and_then(|name| FIELDS.into_iter().find(|known| *known == name));
        let wrong = match known {
            _ if form.wrong.is_some() => drain(field, &ahead, limit).await.map(|()| None),
            Some(known) => match text(field, &ahead, limit).await? {
                Ok(text) => Ok(form
                    .fields
                    .insert(known, text)
                    .map(|_| refused(&format!("the form has the field {known} twice")))),
                Err(wrong) => Ok(Some(wrong)),
            },
            None if field.name() == Some(CONTENT) => content(state, field, &mut form, &ahead, limit).await,
            None => drain(field, &ahead, limit).await.map(|()| None),
        }?;
        form.wrong = form.wrong.or(wrong);
    }
    Err(refused(&format!("the form has more than {MOST_FIELDS} fields")))
}

/// Spools the file; yields what is wrong with it, if that can be told already.
async fn content(
    state: &Arc<State>,
    mut field: Field<'static>,
    form: &mut Form,
    ahead: &AtomicU64,
    limit: u64,
) -> Result<Option<Refusal>, Refusal> {
    let name = field.file_name().unwrap_or_default().to_owned();
    let wrong = if form.file.is_some() {
        Some(refused("the form has two files"))
    } else if name.is_empty() {
        Some(refused("the file has no name"))
    } else if name.len() > LONGEST_NAME {
        Some(refused(&format!("the name of the file is longer than {LONGEST_NAME} bytes: {}", cut(&name))))
    } else if form.fields.get("filetype").is_some_and(|kind| kind == "sdist") || is_source(&name) {
        Some(refused(&format!(
            "{} is a source distribution: this mirror takes wheels alone, for it builds nothing",
            cut(&name)
        )))
    } else {
        None
    };
    if wrong.is_some() {
        drain(field, ahead, limit).await?;
        return Ok(wrong);
    }
    let mut sink = state.blocking(|state| Ok(Sink::new(state.store.spool()?))).await?;
    loop {
        ahead.store(0, Ordering::Relaxed);
        let Some(piece) = field.chunk().await.map_err(|error| broken(&error, limit))? else { break };
        sink = match sink.take(state, piece).await {
            Ok(sink) => sink,
            Err(wrong) => {
                drain(field, ahead, limit).await?;
                return Ok(Some(wrong));
            }
        };
    }
    match sink.finish(state).await {
        Ok(sink) => form.file = Some(File { name, sink }),
        Err(wrong) => return Ok(Some(wrong)),
    }
    Ok(None)
}

fn is_source(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar"].iter().any(|ending| name.ends_with(ending))
}

/// A field as text, or what is wrong with it.
async fn text(
    mut field: Field<'static>,
    ahead: &AtomicU64,
    limit: u64,
) -> Result<Result<String, Refusal>, Refusal> {
    let mut bytes = Vec::new();
    let mut long = false;
    loop {
        ahead.store(0, Ordering::Relaxed);
        let Some(piece) = field.chunk().await.map_err(|error| broken(&error, limit))? else { break };
        long |= bytes.len().saturating_add(piece.len()) > LONGEST_FIELD;
        if !long {
            bytes.extend_from_slice(&piece);
        }
    }
    let name = field.name().unwrap_or_default();
    if long {
        return Ok(Err(refused(&format!("the field {name} is longer than {LONGEST_FIELD} bytes"))));
    }
    Ok(String::from_utf8(bytes).map_err(|_| refused(&format!("the field {name} is not UTF-8"))))
}

async fn drain(mut field: Field<'static>, ahead: &AtomicU64, limit: u64) -> Result<(), Refusal> {
    loop {
        ahead.store(0, Ordering::Relaxed);
        if field.chunk().await.map_err(|error| broken(&error, limit))?.is_none() {
            return Ok(());
        }
    }
}

/// Why a form could not be read on.
fn broken(error: &multer::Error, limit: u64) -> Refusal {
    match error {
        multer::Error::StreamSizeExceeded { .. } => Refusal::UploadTooLarge { limit },
        multer::Error::StreamReadFailed(cause) if cause.is::<FarAhead>() => refused(&cause.to_string()),
        multer::Error::StreamReadFailed(_)
        | multer::Error::IncompleteStream
        | multer::Error::IncompleteFieldData { .. } => refused("the upload broke off before its end"),
        other => refused(&format!("the form cannot be read: {other}")),
    }
}

/// More came than a part of a form can have before it makes sense.
#[derive(Debug, thiserror::Error)]
#[error("a part of the form has a head that does not end")]
struct FarAhead;

type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>> + Send>>;

/// The pieces of a body, which end when more than [`AHEAD`] came since the count was last set to zero.
fn bounded(body: Received, ahead: Arc<AtomicU64>) -> Pieces {
    Box::pin(BodyDataStream::new(body).map(move |piece| {
        let piece = piece?;
        let length = piece.len() as u64;
        if ahead.fetch_add(length, Ordering::Relaxed).saturating_add(length) > AHEAD {
            return Err(FarAhead.into());
        }
        Ok(piece)
    }))
}
