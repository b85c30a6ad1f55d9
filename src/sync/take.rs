//! One candidate: fetch, verify, inspect, keep.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::sync::Semaphore;

use super::gather::{Origin, facts_of_damaged, note, provenance};
use super::plan::{Candidate, Knowledge};
use super::report::{Event, Report};
use super::{Error, Listener, Means, Progress};
use crate::digest::Sha256;
use crate::policy::{self, Code, DeviceProfile, Reason};
use crate::simple::CoreMetadata;
use crate::store::{IncidentKind, Provenance};
use crate::upstream::{self, Fetched, MetadataSource, Wanted, fetch, fetch_metadata, size_of};
use crate::wheel::{self, InspectOptions, Inspection, Metadata, WheelFilename};
use crate::wording::with_causes;

/// Largest wheel that is fetched; the largest known have under 4 GiB.
const LARGEST_WHEEL: u64 = 16 << 30;

/// How many bytes may still be downloaded.
#[derive(Debug)]
pub(crate) struct Budget {
    left: Option<Mutex<u64>>,
}

impl Budget {
    /// A budget of so many bytes; none for no limit.
    pub(crate) fn new(most: Option<u64>) -> Self {
        Self { left: most.map(Mutex::new) }
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.left.is_some()
    }

    /// Sets bytes aside: the size where it is known, else all that is left. None if there are not enough.
    fn reserve(&self, size: Option<u64>) -> Option<u64> {
        let Some(left) = &self.left else { return Some(LARGEST_WHEEL) };
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = size.unwrap_or(*left);
        if wanted > *left || wanted == 0 {
            return None;
        }
        *left = left.saturating_sub(wanted);
        Some(wanted)
    }

    /// Gives back what was set aside and not used.
    fn settle(&self, reserved: u64, used: u64) {
        if let Some(left) = &self.left {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = left.saturating_add(reserved.saturating_sub(used));
        }
    }
}

/// What all downloads of a pass share.
pub(crate) struct Taker {
    pub(crate) means: Means,
    pub(crate) devices: Arc<Vec<DeviceProfile>>,
    pub(crate) listener: Listener,
    pub(crate) permits: Semaphore,
    pub(crate) budget: Budget,
    pub(crate) now: String,
    /// File names under which other bytes than at first sight are taken.
    pub(crate) accept_changed: Arc<BTreeSet<String>>,
}

/// What is done with a wheel that a device takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// The store has it at once.
    AtOnce,
    /// The store has its facts; its bytes wait until the set that it belongs to is known to hold.
    Later,
}

/// A wheel that waits to be put into the store.
pub(crate) struct Pending {
    pub(crate) spool: tempfile::NamedTempFile,
    pub(crate) facts: Arc<wheel::Facts>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) provenance: Provenance,
}

/// What came of a candidate.
pub(crate) struct Taken {
    /// The wheel, where it is kept later.
    pub(crate) pending: Option<Pending>,
    /// What is known of it now.
    pub(crate) knowledge: Knowledge,
    /// What the upstream did wrong.
    pub(crate) incidents: Vec<Event>,
    /// What could not be reached.
    pub(crate) unreachable: Option<Event>,
    /// Bytes downloaded; none if nothing was.
    pub(crate) bytes: Option<u64>,
}

impl Taken {
    /// What is known without anything fetched.
    pub(crate) fn without_download(knowledge: Knowledge) -> Self {
        Self { pending: None, knowledge, incidents: Vec::new(), unreachable: None, bytes: None }
    }

    /// Moves what happened into the report of a pass.
    pub(super) fn tell(&mut self, report: &mut Report) {
        report.incidents.append(&mut self.incidents);
        report.unreachable.extend(self.unreachable.take());
        if let Some(bytes) = self.bytes.take() {
            report.downloads = report.downloads.saturating_add(1);
            report.bytes = report.bytes.saturating_add(bytes);
        }
    }
}

impl Taker {
    /// `Requires-Python` out of the metadata beside a wheel, where the page does not state it.
    pub(crate) async fn requires_python(&self, candidate: &Candidate, origin: &Origin) -> Option<String> {
        let offered = origin.link.file.core_metadata != CoreMetadata::Absent;
        if candidate.requires_python.is_some() || !offered {
            return None;
        }
        match fetch_metadata(&self.means.client, &origin.link).await {
            Ok(Some(MetadataSource::Beside(bytes))) => Metadata::parse(&bytes).ok()?.requires_python,
            _ => None,
        }
    }

    /// The size of a candidate, from its page or its server.
    pub(crate) async fn size(&self, origin: &Origin) -> Option<u64> {
        match origin.link.file.size {
            Some(size) => Some(size),
            None => size_of(&self.means.client, &origin.link.url).await.ok().flatten(),
        }
    }

    /// Fetches a candidate, whose size may be known, and keeps what it yields.
    pub(crate) async fn take(
        &self,
        candidate: &Candidate,
        origin: &Origin,
        size: Option<u64>,
        keeping: Keeping,
    ) -> Result<Taken, Error> {
        let Ok(_permit) = self.permits.acquire().await else {
            return Ok(Taken::without_download(Knowledge::Unreachable));
        };
        let file = candidate.name.text.clone();
        if let Some(taken) = self.take_left(candidate, origin, keeping).await? {
            let outcome = self.outcome(&taken);
            (self.listener)(Progress::Ends { file, outcome });
            return Ok(taken);
        }
        let size = match size {
            None if self.budget.is_limited() => self.size(origin).await,
            known => known,
        };
        let Some(reserved) = self.budget.reserve(size) else {
            return Ok(Taken::without_download(Knowledge::OverLimit));
        };
        (self.listener)(Progress::Begins { file: file.clone(), size });
        let taken = self.download(&candidate.name, origin, (size, reserved), keeping).await?;
        self.budget.settle(reserved, taken.bytes.unwrap_or(0));
        let outcome = self.outcome(&taken);
        (self.listener)(Progress::Ends { file, outcome });
        Ok(taken)
    }

    /// Takes what a pass that was killed had fetched of a candidate already.
    async fn take_left(
        &self,
        candidate: &Candidate,
        origin: &Origin,
        keeping: Keeping,
    ) -> Result<Option<Taken>, Error> {
        let sha256 = match &candidate.knowledge {
            Knowledge::Facts { facts, .. } => Some(facts.sha256),
            _ => origin.link.file.sha256(),
        };
        let Some(sha256) = sha256 else { return Ok(None) };
        let store = Arc::clone(&self.means.store);
        let taking = move || store.take_left(&sha256);
        let Some((spool, size)) = tokio::task::spawn_blocking(taking).await?? else { return Ok(None) };
        let fetched = Fetched { sha256, size };
        let taken = self.keep(&candidate.name, origin, spool, fetched, keeping).await?;
        Ok(Some(Taken { bytes: None, ..taken }))
    }

    async fn download(
        &self,
        name: &WheelFilename,
        origin: &Origin,
        (size, limit): (Option<u64>, u64),
        keeping: Keeping,
    ) -> Result<Taken, Error> {
        let store = Arc::clone(&self.means.store);
        let size = size.unwrap_or(0);
        let spool = tokio::task::spawn_blocking(move || store.spool_for(size)).await??;
        let wanted = Wanted {
            url: origin.link.url.clone(),
            sha256: origin.link.file.sha256(),
            size: origin.link.file.size,
            limit: limit.min(LARGEST_WHEEL),
            append_only: false,
        };
        let listener = Arc::clone(&self.listener);
        let file = name.text.clone();
        let progress: upstream::Progress =
            Arc::new(move |bytes| listener(Progress::Reached { file: file.clone(), bytes }));
        match fetch(&self.means.client, &wanted, spool.path(), &progress).await {
            Ok(fetched) => {
                if fetched.size < size {
                    // Gives back what was set aside for a size that was none.
                    let cut = spool.as_file().set_len(fetched.size);
                    cut.map_err(|source| upstream::Error::Io { path: spool.path().to_owned(), source })
                        .map_err(Error::Fetch)?;
                }
                self.keep(name, origin, spool, fetched, keeping).await
            }
            Err(error @ upstream::Error::Io { .. }) => Err(Error::Fetch(error)),
            Err(upstream::Error::TooLarge { .. }) if self.budget.is_limited() => {
                Ok(Taken::without_download(Knowledge::OverLimit))
            }
            Err(error) => self.failed(name, origin, error).await,
        }
    }

    /// What a fetch that failed says of a candidate.
    pub(crate) async fn failed(
        &self,
        name: &WheelFilename,
        origin: &Origin,
        error: upstream::Error,
    ) -> Result<Taken, Error> {
        let text = with_causes(&error);
        let event = |kind| Event {
            kind,
            upstream: origin.upstream.clone(),
            name: name.text.clone(),
            text: text.clone(),
        };
        if !error.is_lie() {
            let unreachable = Some(event("file"));
            return Ok(Taken { unreachable, ..Taken::without_download(Knowledge::Unreachable) });
        }
        let (found, wanted, bytes) = match &error {
            upstream::Error::Hash { expected, found, size, .. } => {
                (vec![found.to_string()], vec![expected.to_string()], Some(*size))
            }
            _ => (Vec::new(), Vec::new(), None),
        };
        let reason = Reason {
            code: Code::HashMismatch,
            member: None,
            found,
            wanted,
            text: text.clone(),
            remedy: "ask the upstream's keeper; another upstream may have the right file".to_owned(),
        };
        let incident = self.note(IncidentKind::HashMismatch, origin, name, text.clone()).await?;
        Ok(Taken {
            pending: None,
            knowledge: Knowledge::Lied(Box::new(reason)),
            incidents: vec![incident],
            unreachable: Some(event("file")),
            bytes,
        })
    }

    /// Inspects a whole file and puts it, or its facts, into the store.
    pub(crate) async fn keep(
        &self,
        name: &WheelFilename,
        origin: &Origin,
        spool: tempfile::NamedTempFile,
        fetched: Fetched,
        keeping: Keeping,
    ) -> Result<Taken, Error> {
        let bytes = Some(fetched.size);
        if !self.accept_changed.contains(&name.text)
            && let Some(taken) = self.changed(name, origin, fetched).await?
        {
            return Ok(Taken { bytes, ..taken });
        }
        (self.listener)(Progress::Inspecting { file: name.text.clone() });
        let means = self.means.clone();
        let devices = Arc::clone(&self.devices);
        let provenance = provenance(origin, &self.now);
        let own_name = name.clone();
        let work = move || -> Result<(Inspection, bool, Option<Pending>), Error> {
            let inspection = inspect(&own_name, &spool, fetched)?;
            let facts = &inspection.facts;
            let admitted = devices.iter().any(|device| {
                let verdict = policy::judge(facts, device, &means.policy).verdict;
                means.policy.lists(&own_name.project, verdict)
            });
            if !admitted {
                means.store.put_facts(facts, &provenance)?;
                return Ok((inspection, false, None));
            }
            if keeping == Keeping::AtOnce {
                means.store.put(spool, facts, &inspection.metadata, &provenance)?;
                return Ok((inspection, true, None));
            }
            means.store.put_facts(facts, &provenance)?;
            let spool = means.store.keep_arrived(spool, &facts.sha256);
            let (facts, metadata) = (Arc::new(facts.clone()), inspection.metadata.clone());
            Ok((inspection, true, Some(Pending { spool, facts, metadata, provenance })))
        };
        let (inspection, held, pending) = tokio::task::spawn_blocking(work).await??;
        let incidents = self.compare_metadata(name, origin, &inspection).await?;
        let facts = Arc::new(inspection.facts);
        let knowledge = Knowledge::Facts { facts, held, fresh: true };
        Ok(Taken { pending, knowledge, incidents, unreachable: None, bytes })
    }

    /// Whether an upstream without digests sent other bytes than at first sight.
    async fn changed(
        &self,
        name: &WheelFilename,
        origin: &Origin,
        fetched: Fetched,
    ) -> Result<Option<Taken>, Error> {
        let store = Arc::clone(&self.means.store);
        let (upstream, file) = (origin.upstream.clone(), name.text.clone());
        let pinned = tokio::task::spawn_blocking(move || store.pinned(&upstream, &file)).await??;
        let Some(pinned) = pinned.filter(|pinned| *pinned != fetched.sha256) else { return Ok(None) };
        let text = format!("now has sha256 {}, at first sight it was {pinned}", fetched.sha256);
        let incident = self.note(IncidentKind::ChangedFile, origin, name, text.clone()).await?;
        let reason = Reason {
            code: Code::HashMismatch,
            member: None,
            found: vec![fetched.sha256.to_string()],
            wanted: vec![pinned.to_string()],
            text,
            remedy: "ask the upstream's keeper which file is right".to_owned(),
        };
        Ok(Some(Taken {
            incidents: vec![incident],
            ..Taken::without_download(Knowledge::Lied(Box::new(reason)))
        }))
    }

    /// Compares the metadata that the upstream serves beside a wheel with the wheel's own.
    async fn compare_metadata(
        &self,
        name: &WheelFilename,
        origin: &Origin,
        inspection: &Inspection,
    ) -> Result<Vec<Event>, Error> {
        let own = Sha256::of(&inspection.metadata);
        let beside = match origin.link.file.core_metadata {
            CoreMetadata::Absent => return Ok(Vec::new()),
            CoreMetadata::Hashed(sha256) => sha256,
            CoreMetadata::Offered => match fetch_metadata(&self.means.client, &origin.link).await {
                Ok(Some(MetadataSource::Beside(bytes))) => Sha256::of(&bytes),
                _ => return Ok(Vec::new()),
            },
        };
        if beside == own {
            return Ok(Vec::new());
        }
        let text = format!("metadata beside the wheel has sha256 {beside}, METADATA in the wheel has {own}");
        Ok(vec![self.note(IncidentKind::MetadataMismatch, origin, name, text).await?])
    }

    async fn note(
        &self,
        kind: IncidentKind,
        origin: &Origin,
        name: &WheelFilename,
        text: String,
    ) -> Result<Event, Error> {
        let store = Arc::clone(&self.means.store);
        let (origin, name) = (origin.clone(), name.clone());
        let noting = move || note(&store, kind, &origin, &name, &text);
        Ok(tokio::task::spawn_blocking(noting).await??)
    }

    fn outcome(&self, taken: &Taken) -> String {
        let project_of = |facts: &wheel::Facts| facts.project.clone();
        match &taken.knowledge {
            Knowledge::Facts { facts, .. } => {
                // Of the reasons of several devices the last in their order says most: the wheel came nearest there.
                let (mut fits, mut last_reason) = (Vec::new(), None::<Reason>);
                for device in self.devices.iter() {
                    let judgement = policy::judge(facts, device, &self.means.policy);
                    let lists = project_of(facts)
                        .is_some_and(|project| self.means.policy.lists(&project, judgement.verdict));
                    if lists {
                        fits.push(device.id.as_str());
                    }
                    last_reason = last_reason
                        .into_iter()
                        .chain(judgement.reasons.into_iter().next())
                        .max_by_key(|reason| reason.code);
                }
                match (fits.is_empty(), last_reason) {
                    (false, _) => format!("kept for {}", fits.join(", ")),
                    (true, Some(reason)) => format!("refused: {}", reason.text),
                    (true, None) => "refused".to_owned(),
                }
            }
            Knowledge::Lied(reason) => format!("not taken: {}", reason.text),
            Knowledge::OverLimit => "larger than what may still be downloaded".to_owned(),
            Knowledge::Unreachable | Knowledge::Unknown => match &taken.unreachable {
                Some(event) => format!("failed: {}", event.text),
                None => "failed".to_owned(),
            },
        }
    }
}

/// Inspects a spooled wheel; what is no zip at all has its damage as its only fact.
fn inspect(
    name: &WheelFilename,
    spool: &tempfile::NamedTempFile,
    fetched: Fetched,
) -> Result<Inspection, Error> {
    let options = InspectOptions { sha256: Some(fetched.sha256), ..InspectOptions::default() };
    match wheel::inspect_wheel_as(&name.text, spool.path(), &options) {
        Ok(inspection) => Ok(inspection),
        Err(wheel::Error::Io { source, .. }) => {
            Err(Error::Fetch(upstream::Error::Io { path: spool.path().to_owned(), source }))
        }
        Err(error) => {
            let facts = facts_of_damaged(name, fetched.sha256, fetched.size, with_causes(&error));
            Ok(Inspection { facts, metadata: Vec::new() })
        }
    }
}
