//! Wheels and their core metadata, byte for byte.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, header};

use super::body::FileBody;
use super::in_force::InForce;
use super::pull::Counters;
use super::pulled;
use super::range::{self, Span};
use super::refusal::{NotForDevice, Refusal};
use super::reply::Reply;
use super::state::State;
use super::verdicts::{Terms, Together};
use super::view::View;
use crate::digest::Sha256;
use crate::policy::judge;
use crate::store::{self, Row};
use crate::wheel::{INSPECTOR, ProjectName};

/// The bytes behind a digest never change.
const FILE_CACHING: &str = "max-age=365000000, immutable";

/// The type of a wheel. Not that of a zip: some proxies and browsers unpack those.
pub(super) const WHEEL_TYPE: &str = "application/octet-stream";

/// What an entry of kept METADATA takes beside its bytes.
const METADATA_OVERHEAD: usize = 128;

/// What of a request's headers a file goes by.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) range: Option<String>,
    pub(super) if_range: Option<String>,
    pub(super) if_none_match: Option<String>,
    /// Whether only the head of an answer is asked for.
    pub(super) head: bool,
}

/// What is kept of a file that was asked for: all that an answer needs, so that a range costs no look at the catalogue.
#[derive(Debug)]
pub(super) struct KnownFile {
    project: ProjectName,
    /// Number of the project's verdicts, and generation of the policy, from which this was made.
    made_from: (u64, u64),
    filename: String,
    pub(super) size: u64,
    blob: PathBuf,
    pub(super) held: bool,
    /// Whether its facts are those that an inspection would find today.
    pub(super) current: bool,
    pub(super) metadata_sha256: Option<Sha256>,
    refused: Option<NotForDevice>,
}

/// `GET /{device}/files/{sha256}/{filename}`: the wheel as it was fetched, or a piece of it.
pub(super) async fn wheel(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    sha256: Sha256,
    filename: String,
    asked: Asked,
) -> Result<Reply, Refusal> {
    match admitted(state, in_force, view, sha256, &filename).await {
        Ok(file) => {
            if let Some(source) = state.source(view) {
                Counters::count(&source.counters().file_hits);
            }
            held(state, file, sha256, &asked).await
        }
        Err(refusal @ (Refusal::NoSuchFile | Refusal::NotHeld { .. })) => {
            pulled::wheel(state, in_force, view, (sha256, filename), asked, refusal).await
        }
        Err(refusal) => Err(refusal),
    }
}

/// The wheel, or a piece of it, from the store.
pub(super) async fn held(
    state: &Arc<State>,
    file: Arc<KnownFile>,
    sha256: Sha256,
    asked: &Asked,
) -> Result<Reply, Refusal> {
    let etag = format!("\"{sha256}\"");
    if range::names(asked.if_none_match.as_deref(), &etag) {
        return Ok(with_headers(Reply::empty(StatusCode::NOT_MODIFIED), &etag));
    }
    let (status, start, end) = span(asked, &etag, file.size)?;
    let size = file.size;
    let mut reply = if state.store.is_local() {
        let blob = match state.opened.find(&sha256, size) {
            Some(blob) => blob,
            None => state.blocking(move |state| open(state, &sha256, &file)).await?,
        };
        Reply::file(WHEEL_TYPE, FileBody::new(blob, start, end))
    } else if asked.head {
        // An address is signed for a GET alone.
        Reply::headers_of(WHEEL_TYPE, size)
    } else {
        let elsewhere = move |state: &State| match state.store.signed_url(&sha256)? {
            Some(url) => Ok(Reply::found(&url)),
            None => match state.store.pieces(&sha256, start..end)? {
                Some(pieces) => Ok(Reply::pieces(WHEEL_TYPE, pieces, end.saturating_sub(start))),
                None => Err(Refusal::NotHeld {
                    file: file.filename.clone(),
                    why: "its bytes are lost from the store",
                }),
            },
        };
        state.blocking(elsewhere).await?
    };
    if reply.status == StatusCode::FOUND {
        return Ok(reply);
    }
    reply.status = status;
    if status == StatusCode::PARTIAL_CONTENT {
        reply.set(header::CONTENT_RANGE, &format!("bytes {start}-{}/{size}", end.saturating_sub(1)));
    }
    Ok(with_headers(reply, &etag))
}

/// `GET /{device}/files/{sha256}/{filename}.metadata`: the METADATA member of the wheel (PEP 658, PEP 714).
pub(super) async fn metadata(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    sha256: Sha256,
    filename: String,
    asked: Asked,
) -> Result<Reply, Refusal> {
    let bytes = match admitted(state, in_force, view, sha256, &filename).await {
        Ok(file) => {
            if let Some(bytes) = state.metadata.find(&sha256) {
                bytes
            } else {
                state.blocking(move |state| read_metadata(state, &sha256, &file)).await?
            }
        }
        Err(refusal @ (Refusal::NoSuchFile | Refusal::NotHeld { .. })) => {
            pulled::metadata(state, in_force, view, (sha256, filename), refusal).await?
        }
        Err(refusal) => return Err(refusal),
    };
    // One wheel has one METADATA: the digest of the wheel tags it as well.
    let etag = format!("\"{sha256}-metadata\"");
    if range::names(asked.if_none_match.as_deref(), &etag) {
        return Ok(with_headers(Reply::empty(StatusCode::NOT_MODIFIED), &etag));
    }
    let size = bytes.len() as u64;
    let (status, start, end) = span(&asked, &etag, size)?;
    let place = |at: u64| usize::try_from(at).unwrap_or(bytes.len()).min(bytes.len());
    let mut reply = Reply::bytes(WHEEL_TYPE, bytes.slice(place(start)..place(end)));
    reply.status = status;
    if status == StatusCode::PARTIAL_CONTENT {
        reply.set(header::CONTENT_RANGE, &format!("bytes {start}-{}/{size}", end.saturating_sub(1)));
    }
    Ok(with_headers(reply, &etag))
}

/// Reads the METADATA, and keeps it if it is what the wheel had. Blocks.
fn read_metadata(state: &State, sha256: &Sha256, file: &KnownFile) -> Result<Bytes, Refusal> {
    let Some(bytes) = state.store.metadata(sha256)?.map(Bytes::from) else {
        return Err(Refusal::NotHeld {
            file: file.filename.clone(),
            why: "its metadata is missing from the store",
        });
    };
    if file.metadata_sha256 == Some(Sha256::of(&bytes)) {
        state.metadata.keep(*sha256, bytes.clone(), bytes.len().saturating_add(METADATA_OVERHEAD));
    }
    Ok(bytes)
}

pub(super) fn with_headers(mut reply: Reply, etag: &str) -> Reply {
    reply.set(header::ETAG, etag);
    reply.set(header::CACHE_CONTROL, FILE_CACHING);
    reply.set(header::ACCEPT_RANGES, "bytes");
    reply.set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    reply
}

/// Which part is answered, with which status.
pub(super) fn span(asked: &Asked, etag: &str, size: u64) -> Result<(StatusCode, u64, u64), Refusal> {
    let range = asked.range.as_deref().filter(|_| range::same(asked.if_range.as_deref(), etag));
    match range::span(range, size) {
        Span::Whole => Ok((StatusCode::OK, 0, size)),
        Span::Part(start, end) => Ok((StatusCode::PARTIAL_CONTENT, start, end)),
        Span::Outside => Err(Refusal::OutsideFile { size }),
    }
}

/// The file of that digest and name, if the device may have it: asked anew at every request, for the policy may have changed.
pub(super) async fn admitted(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    sha256: Sha256,
    filename: &str,
) -> Result<Arc<KnownFile>, Refusal> {
    let file = look(state, in_force, view, sha256, filename).await?;
    if !file.held {
        return Err(Refusal::NotHeld {
            file: file.filename.clone(),
            why: "its bytes are not held here; a sync fetches them",
        });
    }
    Ok(file)
}

/// The same, whether or not its bytes are held.
pub(super) async fn look(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    sha256: Sha256,
    filename: &str,
) -> Result<Arc<KnownFile>, Refusal> {
    let terms = Terms { device: in_force.device(&view.device)?, in_force, scope: &view.scope };
    let key = (view.scope.key(&terms.device.id), sha256, filename.to_owned());
    let fresh = |file: &Arc<KnownFile>| {
        let together = state.verdicts.fresh(&file.project, terms);
        together.is_some_and(|together| file.made_from == (together.number, in_force.generation))
    };
    let file = if let Some(file) = state.files.find(&key).filter(fresh) {
        file
    } else {
        let (in_force, view) = (Arc::clone(in_force), view.clone());
        state.blocking(move |state| look_up(state, &in_force, &view, key)).await?
    };
    if let Some(why) = &file.refused {
        return Err(Refusal::NotForDevice(Box::new(why.clone())));
    }
    Ok(file)
}

/// Looks the file up in the catalogue and judges it. Blocks.
fn look_up(
    state: &State,
    in_force: &InForce,
    view: &View,
    key: (String, Sha256, String),
) -> Result<Arc<KnownFile>, Refusal> {
    let (_, sha256, filename) = &key;
    let terms = Terms { device: in_force.device(&view.device)?, in_force, scope: &view.scope };
    let find = || match state.store.row_named(sha256, filename) {
        Ok(row) => row.ok_or(Refusal::NoSuchFile),
        Err(store::Error::Damaged { path, found }) => {
            tracing::error!(file = filename, sidecar = %path.display(), "damaged sidecar: {found}");
            Err(Refusal::NotHeld { file: filename.clone(), why: "its sidecar file is damaged" })
        }
        Err(error) => Err(error.into()),
    };
    let Some(project) = find()?.facts.project.clone() else { return Err(Refusal::NoSuchFile) };
    if !view.scope.lists(&project, filename, sha256) {
        return Err(Refusal::NoSuchFile);
    }
    // The row that is kept is read after that: a change in between makes this out of date, never stale.
    let together = state.verdicts.together(&project, terms)?;
    let made_from = (together.number, in_force.generation);
    let row = find()?;
    let refused = refusal(&row, &project, &together, terms);
    let file = Arc::new(KnownFile {
        made_from,
        filename: row.facts.file.clone(),
        size: row.facts.size,
        blob: state.store.blob(sha256),
        held: row.held,
        current: row.held || row.facts.inspector >= INSPECTOR,
        metadata_sha256: row.facts.metadata_sha256,
        refused,
        project,
    });
    let texts = file.refused.as_ref().map_or(0, |why| why.text.len().saturating_add(why.phrase.len()));
    state.files.keep(key, Arc::clone(&file), texts.saturating_add(600));
    Ok(file)
}

fn refusal(row: &Row, project: &ProjectName, together: &Together, terms: Terms<'_>) -> Option<NotForDevice> {
    let Terms { device, in_force, .. } = terms;
    let mut judgement = judge(&row.facts, device, &in_force.policy);
    if let Some(change) = together.refusal(&row.facts.sha256, &row.facts.file) {
        change.apply(&mut judgement);
    }
    let listed = in_force.policy.lists(project, judgement.verdict);
    (!listed).then(|| NotForDevice::new(&row.facts.file, &device.id, &judgement))
}

/// Opens the blob, and refuses it before any header is sent if it is not as long as it was. Blocks.
fn open(state: &State, sha256: &Sha256, file: &KnownFile) -> Result<Arc<File>, Refusal> {
    let lost = |why: &'static str| Err(Refusal::NotHeld { file: file.filename.clone(), why });
    let blob = match fs_err::File::open(&file.blob) {
        Ok(blob) => blob.into_file(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::error!(file = file.filename, blob = ?file.blob, "a blob is lost: verify and sync repair it");
            return lost("its bytes are lost from the store");
        }
        Err(error) => return Err(error.into()),
    };
    let length = blob.metadata()?.len();
    if length != file.size {
        tracing::error!(
            file = file.filename, blob = ?file.blob, length_bytes = length, expected_bytes = file.size,
            "a blob is damaged: verify and sync repair it"
        );
        return lost("its bytes are damaged in the store");
    }
    let blob = Arc::new(blob);
    state.opened.keep(*sha256, &blob);
    Ok(blob)
}
