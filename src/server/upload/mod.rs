//! `POST /legacy/`: uploads as twine and `uv publish` make them.
//!
//! A form (`multipart/form-data`) whose fields come before or after the file. The file goes to the store's spool piece by
//! piece; only when the form is whole, its digests fit and the wheel was inspected does the store know of it. What is
//! refused is still read to its end, for clients look at the answer only when they have sent everything.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use tokio::sync::Semaphore;

use self::form::{File, Form};
use super::refusal::Refusal;
use super::reply::Reply;
use super::request_body;
use super::state::State;
use crate::access::Caller;
use crate::digest::Sha256;
use crate::store::{AuditEntry, Offered, Put, SnapshotId};
use crate::wheel::WheelFilename;

mod form;
mod sink;

/// The largest upload where the configuration does not say otherwise, in bytes. The largest wheels for Jetson have some 3 GB.
pub const LARGEST: u64 = 8 << 30;

/// How many wheels are inspected at once; one keeps all cores busy.
const INSPECTED_AT_ONCE: usize = 2;

/// What is done after wheels were taken in: a snapshot is made, as for `add`. The text is the reason; an error is a sentence.
pub type AfterChange = Box<dyn Fn(&str) -> Result<Option<SnapshotId>, String> + Send + Sync>;

/// What uploads share.
pub(super) struct Uploads {
    /// The most bytes of one.
    pub(super) largest: u64,
    pub(super) after_change: Option<AfterChange>,
    inspecting: Arc<Semaphore>,
}

impl Default for Uploads {
    fn default() -> Self {
        let inspecting = Arc::new(Semaphore::new(INSPECTED_AT_ONCE));
        Self { largest: LARGEST, after_change: None, inspecting }
    }
}

impl fmt::Debug for Uploads {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Uploads {{ largest: {} }}", self.largest)
    }
}

/// Takes an upload.
pub(super) async fn upload(
    state: &Arc<State>,
    caller: &Caller,
    headers: &HeaderMap,
    body: request_body::Received,
) -> Result<Reply, Refusal> {
    let taken = take(state, caller, headers, body).await;
    match &taken {
        Ok((Put::New, bytes, _)) => state.metrics.uploaded("new", *bytes),
        Ok((Put::Known, ..)) => state.metrics.uploaded("known", 0),
        Err(Refusal::NotTaken { status: StatusCode::CONFLICT, .. }) => state.metrics.uploaded("exists", 0),
        Err(refusal) if refusal.status().is_client_error() => state.metrics.uploaded("refused", 0),
        Err(_) => state.metrics.uploaded("failed", 0),
    }
    taken.map(|(_, _, reply)| reply)
}

/// Takes an upload; tells whether it was new, and its bytes.
async fn take(
    state: &Arc<State>,
    caller: &Caller,
    headers: &HeaderMap,
    body: request_body::Received,
) -> Result<(Put, u64, Reply), Refusal> {
    let limit = state.uploads.largest;
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let boundary =
        headers.get(header::CONTENT_TYPE).and_then(|value| multer::parse_boundary(value.to_str().ok()?).ok());
    let room = state.blocking(move |state| Ok(state.store.check_room(length.unwrap_or(0).min(limit))?)).await;
    let refusal = match (room, boundary.as_ref()) {
        _ if length.is_some_and(|length| length > limit) => Some(Refusal::UploadTooLarge { limit }),
        (Err(refusal), _) => Some(refusal),
        (_, None) => Some(refused(
            "an upload is a form of the type multipart/form-data, as twine upload and uv publish send it",
        )),
        _ => None,
    };
    let (Some(boundary), None) = (boundary, &refusal) else {
        request_body::discard_upload(body).await;
        return Err(refusal.unwrap_or(Refusal::UploadTooLarge { limit }));
    };
    let form = form::read(state, body, boundary, limit).await?;
    let (file, sha256) = checked(form)?;
    let File { name, sink } = file;
    let turn = Arc::clone(&state.uploads.inspecting).acquire_owned().await;
    let turn = turn.map_err(|_| Refusal::Defect("the semaphore of inspections was closed".to_owned()))?;
    let (offered_name, bytes) = (name.clone(), sink.size());
    let offered = state
        .blocking(move |state| {
            let _turn = turn;
            Ok(state.store.offer(sink.into_file()?, &offered_name, sha256, true)?)
        })
        .await?;
    let put = match offered {
        Offered::Taken(put, _) => put,
        Offered::Refused(why) | Offered::Unreadable(why) => return Err(refused(&format!("{name}: {why}"))),
        Offered::Exists(other) => {
            return Err(Refusal::NotTaken {
                status: StatusCode::CONFLICT,
                why: format!(
                    "{name} already exists with other bytes (sha256 {other}): a new build needs a new version or build number"
                ),
            });
        }
    };
    // Of a wheel that was known, too: the snapshot may have failed the first time.
    let who = format!("token:{}", caller.name.as_deref().unwrap_or_default());
    let noted = name.clone();
    let snapshot = state
        .blocking(move |state| {
            let snapshot = match &state.uploads.after_change {
                Some(after) => after("upload").map_err(|why| {
                    Refusal::Defect(format!("{noted} was taken in, and no snapshot could be made: {why}"))
                })?,
                None => None,
            };
            if put == Put::New || snapshot.is_some() {
                let what = serde_json::json!({ "file": noted, "sha256": sha256, "snapshot": snapshot });
                state.store.put_audit(&AuditEntry::now(&who, "upload", what))?;
            }
            Ok(snapshot)
        })
        .await?;
    let mut text = match put {
        Put::New => format!("{name} was taken in, sha256 {sha256}\n"),
        Put::Known => format!("{name} was here already, with the same bytes\n"),
    };
    if let Some(id) = snapshot {
        let _infallible = writeln!(text, "snapshot {id}");
    }
    let mut reply = Reply::text(StatusCode::OK, Bytes::from(text));
    reply.set(header::CACHE_CONTROL, "no-store");
    Ok((put, bytes, reply))
}

/// The file of a form in which all fits together, and its digest.
fn checked(form: Form) -> Result<(File, Sha256), Refusal> {
    let Form { fields, file, wrong } = form;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let field = |name: &str| fields.get(name).map(String::as_str);
    match field(":action") {
        Some("file_upload") => {}
        Some(other) => {
            return Err(refused(&format!("the action {other:?} is not known here; file_upload is")));
        }
        None => return Err(refused("the form has no field :action")),
    }
    if field("protocol_version").is_some_and(|version| version != "1") {
        return Err(refused("the field protocol_version is not 1, the only one there is"));
    }
    let Some(file) = file else { return Err(refused("the form has no file in its field content")) };
    let name: WheelFilename = file.name.parse().map_err(|error: crate::wheel::NotAWheelFilename| {
        refused(&format!("{}: {}", error.file, error.kind))
    })?;
    if let Some(kind) = field("filetype").filter(|kind| *kind != "bdist_wheel") {
        return Err(refused(&format!("the field filetype is {kind:?}; only wheels are taken, bdist_wheel")));
    }
    if let Some(project) = field("name") {
        let normalized = project.parse::<crate::wheel::ProjectName>();
        if normalized.as_ref() != Ok(&name.project) {
            return Err(refused(&format!(
                "the form says that {} is of the project {project:?}, and its name says {}",
                file.name, name.project
            )));
        }
    }
    if let Some(version) = field("version") {
        let parsed = version.parse::<pep440_rs::Version>();
        if !parsed.is_ok_and(|parsed| parsed == name.version) {
            return Err(refused(&format!(
                "the form says that {} is version {version:?}, and its name says {}",
                file.name,
                name.version_text()
            )));
        }
    }
    let found = file.sink.digests();
    for (field_name, found) in [
        ("sha256_digest", &found.sha256),
        ("md5_digest", &found.md5),
        ("blake2_256_digest", &found.blake2_256),
    ] {
        if let Some(stated) = field(field_name).filter(|stated| !stated.trim().is_empty())
            && !stated.trim().eq_ignore_ascii_case(found)
        {
            return Err(refused(&format!(
                "{}: hash mismatch: {field_name} is {stated}, and the bytes that came have {found}",
                file.name
            )));
        }
    }
    let sha256 = found.sha256.parse().map_err(|_| Refusal::Defect("a digest that is none".to_owned()))?;
    Ok((file, sha256))
}

fn refused(why: &str) -> Refusal {
    Refusal::NotTaken { status: StatusCode::BAD_REQUEST, why: why.to_owned() }
}
