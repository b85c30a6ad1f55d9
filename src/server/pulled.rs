//! Pages and files of upstreams: what is asked for before a page is made, and files that the store has not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{StatusCode, header};
use tokio::sync::watch;

use super::arriving::{Arriving, readable};
use super::files::{self, KnownFile};
use super::in_force::InForce;
use super::pull::{Asked, Counters, Failure, FailureKind, Offer, Offered, Outdated, Source, Stage};
use super::range;
use super::refusal::{NotForDevice, Refusal};
use super::reply::Reply;
use super::state::State;
use super::verdicts::Terms;
use super::view::View;
use crate::digest::Sha256;
use crate::policy::{Judgement, Verdict, judge_listing};
use crate::wheel::{ProjectName, Size, WheelFilename};

/// How often the projects that a page depends on are looked up, since what comes in may depend on further ones.
const MOST_ROUNDS: usize = 4;

/// When a client shall ask again for a file that is on its way, in seconds, at the least and at the most; pip asks five times.
const ASK_AGAIN: (u64, u64) = (2, 30);

/// When it shall ask again where nobody knows how fast the file comes, in seconds.
const ASK_AGAIN_UNKNOWN: u64 = 10;

/// The longest text of a `Warning`, in characters.
const LONGEST_WARNING: usize = 300;

impl State {
    /// Whoever asks upstreams, for what is held now: a snapshot is what it was.
    pub(super) fn source(&self, view: &View) -> Option<&Arc<dyn Source>> {
        self.pull.get().filter(|_| view.scope.id().is_none())
    }

    /// What upstreams offer of a project; none where nobody asks them. The projects that its verdicts depend on are looked up as
    /// well.
    pub(super) async fn offered(
        self: &Arc<Self>,
        in_force: &Arc<InForce>,
        view: &View,
        project: &ProjectName,
    ) -> Result<Option<Offered>, Refusal> {
        let Some(source) = self.source(view) else { return Ok(None) };
        let device = in_force.device(&view.device)?;
        let asked = Asked { project, device, policy: &in_force.policy };
        let offered = source.offers(&asked).await.map_err(Refusal::Upstream)?;
        for _round in 0..MOST_ROUNDS {
            let terms = Terms { device, in_force, scope: &view.scope };
            let fresh = || self.verdicts.fresh(project, terms);
            let together = if let Some(together) = fresh() {
                together
            } else {
                let (in_force, id, project) = (Arc::clone(in_force), device.id.clone(), project.clone());
                let scope = view.scope.clone();
                let find = move |state: &Self| {
                    let terms = Terms { device: in_force.device(&id)?, in_force: &in_force, scope: &scope };
                    Ok(state.verdicts.together(&project, terms)?)
                };
                self.blocking(find).await?
            };
            let others = together.projects().filter(|other| *other != project);
            let others: Vec<Asked<'_>> = others.map(|project| Asked { project, ..asked }).collect();
            // Of those that fail what is known counts.
            join_all(others.iter().map(|other| source.offers(other))).await;
            if fresh().is_some_and(|now| now.number == together.number) {
                break;
            }
        }
        Ok(Some(offered))
    }
}

/// Says in the head of a page that it may be out of date (RFC 7234, section 5.5).
pub(super) fn warn(reply: &mut Reply, outdated: &Outdated) {
    let age = outdated.copied.and_then(|copied| copied.elapsed().ok());
    if let Some(age) = age {
        reply.set(header::AGE, &age.as_secs().to_string());
    }
    let code = if age.is_some() { "110" } else { "111" };
    let text = format!("{} could not be asked: {}", outdated.upstream, outdated.why);
    let plain = |letter: char| match letter {
        '"' | '\\' => '\'',
        ' '..='~' => letter,
        _ => '?',
    };
    let text: String = text.chars().take(LONGEST_WARNING).map(plain).collect();
    reply.set(header::WARNING, &format!("{code} jetwheel \"{text}\""));
}

/// The refusal that stands for an upstream which could not be asked.
pub(super) fn unreached(outdated: &Outdated) -> Refusal {
    let text = format!("not held here, and {} could not be asked: {}", outdated.upstream, outdated.why);
    Refusal::Upstream(Failure { kind: FailureKind::Unreached, text })
}

/// What is asked for: a digest with a name.
pub(super) type Key = (Sha256, String);

/// Answers a request for a wheel that is not held: sent while it arrives where its facts are known, else once it was inspected.
pub(super) async fn wheel(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    key: Key,
    asked: files::Asked,
    refusal: Refusal,
) -> Result<Reply, Refusal> {
    let (sha256, filename) = &key;
    let (source, offer) = offer(state, in_force, view, &key, refusal).await?;
    let Some(file) = known(state, in_force, view, &key).await? else {
        let file = inspected(state, in_force, view, (&source, &offer)).await?;
        return files::held(state, file, *sha256, &asked).await;
    };
    if file.held {
        return files::held(state, file, *sha256, &asked).await;
    }
    let etag = format!("\"{sha256}\"");
    if range::names(asked.if_none_match.as_deref(), &etag) {
        return Ok(files::with_headers(Reply::empty(StatusCode::NOT_MODIFIED), &etag));
    }
    let (status, start, end) = files::span(&asked, &etag, file.size)?;
    let size = file.size;
    let mut reply = if asked.head {
        let mut reply = Reply::bytes(files::WHEEL_TYPE, Bytes::new());
        reply.set(header::CONTENT_LENGTH, &end.saturating_sub(start).to_string());
        reply
    } else {
        let mut stages = begin(in_force, view, &source, &offer, Some(size))?;
        let ready = |stage: &Stage| match stage {
            Stage::Waiting(..) => false,
            Stage::Arriving(..) => readable(stage, size).is_none_or(|readable| readable > start),
            Stage::Whole(_) | Stage::Kept | Stage::Failed(_) => true,
        };
        match wait(&source, &mut stages, filename, ready).await? {
            Stage::Arriving(file, _) | Stage::Whole(file) => {
                Reply::arriving(files::WHEEL_TYPE, Arriving::new(file, (start, end, size), stages))
            }
            _ => {
                let file = files::admitted(state, in_force, view, *sha256, filename).await?;
                return files::held(state, file, *sha256, &asked).await;
            }
        }
    };
    reply.status = status;
    if status == StatusCode::PARTIAL_CONTENT {
        reply.set(header::CONTENT_RANGE, &format!("bytes {start}-{}/{size}", end.saturating_sub(1)));
    }
    Ok(files::with_headers(reply, &etag))
}

/// The core metadata of a wheel that is not held.
pub(super) async fn metadata(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    key: Key,
    refusal: Refusal,
) -> Result<Bytes, Refusal> {
    let (source, offer) = offer(state, in_force, view, &key, refusal).await?;
    let file = known(state, in_force, view, &key).await?;
    if file.is_none() {
        check_listing(in_force, view, &offer)?;
    }
    if file.as_ref().is_none_or(|file| !file.held) {
        let sha256 = file.and_then(|file| file.metadata_sha256);
        if let Some(bytes) = source.metadata(&offer, sha256).await.map_err(Refusal::Upstream)? {
            return Ok(bytes);
        }
        inspected(state, in_force, view, (&source, &offer)).await?;
    }
    let sha256 = offer.sha256;
    let bytes = state.blocking(move |state| Ok(state.store.metadata(&sha256)?)).await?;
    bytes.map(Bytes::from).ok_or(Refusal::NoSuchFile)
}

/// The offer of that digest and name; the refusal where there is none.
async fn offer(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    (sha256, filename): &Key,
    refusal: Refusal,
) -> Result<(Arc<dyn Source>, Offer), Refusal> {
    let Some(source) = state.source(view) else { return Err(refusal) };
    let Ok(name) = filename.parse::<WheelFilename>() else { return Err(refusal) };
    let Some(offered) = state.offered(in_force, view, &name.project).await? else { return Err(refusal) };
    match (offered.offers.find(sha256, filename), &offered.outdated) {
        (Some(offer), _) => {
            Counters::count(&source.counters().file_misses);
            Ok((Arc::clone(source), offer.clone()))
        }
        (None, Some(outdated)) => Err(unreached(outdated)),
        (None, None) => Err(refusal),
    }
}

/// What is known of a file, if its facts are those that would be found today.
async fn known(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    (sha256, filename): &Key,
) -> Result<Option<Arc<KnownFile>>, Refusal> {
    match files::look(state, in_force, view, *sha256, filename).await {
        Ok(file) => Ok(Some(file).filter(|file| file.current)),
        Err(Refusal::NoSuchFile) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// The file, once it was fetched and inspected, if the device may have it.
async fn inspected(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    (source, offer): (&Arc<dyn Source>, &Offer),
) -> Result<Arc<KnownFile>, Refusal> {
    check_listing(in_force, view, offer)?;
    let mut stages = begin(in_force, view, source, offer, None)?;
    let ready = |stage: &Stage| matches!(stage, Stage::Kept | Stage::Failed(_));
    wait(source, &mut stages, &offer.name.text, ready).await?;
    files::admitted(state, in_force, view, offer.sha256, &offer.name.text).await
}

/// Refuses what its name or its index page rules out, before it is fetched.
fn check_listing(in_force: &Arc<InForce>, view: &View, offer: &Offer) -> Result<(), Refusal> {
    let device = in_force.device(&view.device)?;
    let requires_python = offer.file.requires_python.as_deref();
    let reasons = judge_listing(&offer.name, requires_python, device, &in_force.policy);
    if reasons.is_empty() {
        return Ok(());
    }
    let judgement = Judgement { verdict: Verdict::Refuse, reasons, notes: Vec::new() };
    let why = NotForDevice::new(&offer.name.text, &device.id, &judgement);
    Err(Refusal::NotForDevice(Box::new(why)))
}

fn begin(
    in_force: &Arc<InForce>,
    view: &View,
    source: &Arc<dyn Source>,
    offer: &Offer,
    size: Option<u64>,
) -> Result<watch::Receiver<Stage>, Refusal> {
    let device = in_force.device(&view.device)?;
    let asked = Asked { project: &offer.name.project, device, policy: &in_force.policy };
    source.fetch(&asked, offer, size).map_err(Refusal::Upstream)
}

/// Waits for a stage, as long as a client is kept waiting.
async fn wait(
    source: &Arc<dyn Source>,
    stages: &mut watch::Receiver<Stage>,
    filename: &str,
    ready: impl Fn(&Stage) -> bool,
) -> Result<Stage, Refusal> {
    let patience = source.patience();
    let before = far(&stages.borrow()).0;
    let waited = tokio::time::timeout(patience, stages.wait_for(ready)).await;
    let stage = match waited.map(|stage| stage.map(|stage| stage.clone())) {
        Ok(Ok(stage)) => stage,
        Ok(Err(_nobody_fetches)) => {
            let text = format!("{filename}: its fetch ended without a result");
            return Err(Refusal::Upstream(Failure { kind: FailureKind::Unreached, text }));
        }
        Err(_elapsed) => {
            Counters::count(&source.counters().put_off);
            let (reached, size) = far(&stages.borrow());
            let seconds = seconds_left(reached.saturating_sub(before), reached, size, patience);
            let of =
                size.map_or(String::new(), |size| format!(" ({} of {} are here)", Size(reached), Size(size)));
            return Err(Refusal::OnItsWay { file: filename.to_owned(), of, seconds });
        }
    };
    match stage {
        Stage::Failed(failure) => Err(Refusal::Upstream(failure)),
        stage => Ok(stage),
    }
}

fn far(stage: &Stage) -> (u64, Option<u64>) {
    match stage {
        Stage::Waiting(reached, size) => (*reached, *size),
        Stage::Arriving(_, reached) => (*reached, None),
        _ => (0, None),
    }
}

/// When to ask again: as much as came while somebody waited comes in the same time again.
fn seconds_left(came: u64, reached: u64, size: Option<u64>, waited: Duration) -> u64 {
    let left = size.and_then(|size| size.checked_sub(reached));
    let seconds = left.and_then(|left| left.saturating_mul(waited.as_secs().max(1)).checked_div(came));
    seconds.unwrap_or(ASK_AGAIN_UNKNOWN).clamp(ASK_AGAIN.0, ASK_AGAIN.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_clients_to_come_when_the_file_should_be_there() {
        let waited = Duration::from_secs(10);
        assert_eq!(seconds_left(100, 100, Some(250), waited), 15);
        assert_eq!(seconds_left(100, 100, Some(100), waited), ASK_AGAIN.0);
        assert_eq!(seconds_left(1, 1, Some(1 << 40), waited), ASK_AGAIN.1);
        assert_eq!(seconds_left(0, 0, Some(250), waited), ASK_AGAIN_UNKNOWN);
        assert_eq!(seconds_left(5, 5, None, waited), ASK_AGAIN_UNKNOWN);
    }
}
