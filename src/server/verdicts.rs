//! Verdicts on the files of a store: each file judged alone, then together with what it needs. Pages, files, explanations and
//! sets all go by this, on the command line as well, so that they cannot disagree.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

mod explanation;

pub(crate) use explanation::judgement;

use super::in_force::InForce;
use super::lru::{Counts, Lru};
use super::view::Scope;
use crate::digest::Sha256;
use crate::policy::{Code, DeviceProfile, Judgement, Reason, Verdict, code_name, judge};
use crate::resolve::closure::{Brief, Change, Connected, Wheel};
use crate::resolve::{Failure, KnownFile, Request, Resolution, resolve_rows};
use crate::store::{self, Listed, Row, Store};
use crate::wheel::{Facts, ProjectName};

/// How much is kept of verdicts on single files, in bytes: those on some 40,000 files.
const VERDICTS_WEIGHT: usize = 16 << 20;

/// How much is kept of what the rules need of files, in bytes; some 800 are one file.
const BRIEFS_WEIGHT: usize = 16 << 20;

/// How much is kept of what looking at files together found, in bytes; some 300 are one project on one device.
const TOGETHER_WEIGHT: usize = 8 << 20;

/// The verdicts on the files of a store, with bounded caches.
#[derive(Debug)]
pub(crate) struct Verdicts {
    store: Arc<Store>,
    alone: Lru<(String, Sha256, String), Arc<Alone>>,
    briefs: Lru<(Sha256, String), Arc<Brief>>,
    together: Lru<(String, ProjectName), Arc<Together>>,
    made: AtomicU64,
    /// How many files were judged, by verdict and code of the first reason.
    judged: Mutex<BTreeMap<(String, String), u64>>,
}

/// By what files are judged: for a device, by a policy, among some files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) device: &'a DeviceProfile,
    pub(crate) in_force: &'a InForce,
    pub(crate) scope: &'a Scope,
}

/// What judging a file alone said.
#[derive(Debug)]
pub(crate) struct Alone {
    generation: u64,
    verdict: Verdict,
    /// The first reason against it.
    reason: Option<Reason>,
}

/// Which files of a project are refused once what they need is looked at.
#[derive(Debug)]
pub(crate) struct Together {
    /// Another one for each that is made, so that what was made from it can be told to be out of date.
    pub(crate) number: u64,
    generation: u64,
    /// Newest revision of the store at which it was known to hold.
    seen_at: AtomicU64,
    /// The projects that it depends on, with the revisions of their rows.
    made_from: Vec<(ProjectName, u64)>,
    /// Of a snapshot, what the rows of the files that it lists amounted to: new files elsewhere leave that as it is.
    print: Option<u64>,
    weight: usize,
    refused: Arc<HashMap<(Sha256, String), Change>>,
}

impl Terms<'_> {
    /// What tells results from those for other devices, and among other files.
    fn key(&self) -> String {
        self.scope.key(&self.device.id)
    }
}

impl Together {
    /// The projects that it depends on, the one that it is of among them.
    pub(crate) fn projects(&self) -> impl Iterator<Item = &ProjectName> {
        self.made_from.iter().map(|(project, _)| project)
    }

    /// Why a file is refused, beyond what judging it alone says.
    pub(crate) fn refusal(&self, sha256: &Sha256, file: &str) -> Option<&Change> {
        if self.refused.is_empty() {
            return None;
        }
        self.refused.get(&(*sha256, file.to_owned()))
    }
}

impl Verdicts {
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            alone: Lru::new(VERDICTS_WEIGHT),
            briefs: Lru::new(BRIEFS_WEIGHT),
            together: Lru::new(TOGETHER_WEIGHT),
            made: AtomicU64::new(0),
            judged: Mutex::default(),
        }
    }

    /// How many files were judged, by verdict and code of the first reason.
    pub(super) fn counts(&self) -> BTreeMap<(String, String), u64> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often the verdict on a file was at hand.
    pub(super) fn cache_counts(&self) -> Counts {
        self.alone.counts()
    }

    /// Why a file is not listed; none if it is. Blocks.
    pub(crate) fn refusal(
        &self,
        listed: &Listed,
        together: &Together,
        terms: Terms<'_>,
    ) -> Result<Option<Reason>, store::Error> {
        let alone = self.alone(listed, terms)?;
        if !terms.in_force.policy.lists(&listed.project, alone.verdict) {
            return Ok(Some(alone.reason.clone().unwrap_or_else(|| unlisted(alone.verdict))));
        }
        let change = together.refusal(&listed.sha256, &listed.file);
        Ok(change.and_then(|change| change.refusals.first().cloned()))
    }

    /// The verdicts on the files of a project that count, each alone and beside what it needs. Blocks.
    pub(crate) fn judged(
        &self,
        project: &ProjectName,
        terms: Terms<'_>,
    ) -> Result<HashMap<(Sha256, String), Verdict>, store::Error> {
        let together = self.together(project, terms)?;
        let judge = |file: Listed| {
            let refused = together.refusal(&file.sha256, &file.file);
            let verdict = match refused.filter(|change| !change.refusals.is_empty()) {
                Some(_) => Verdict::Refuse,
                None => self.alone(&file, terms)?.verdict,
            };
            Ok(((file.sha256, file.file), verdict))
        };
        self.listing(project, terms.scope)?.into_iter().map(judge).collect()
    }

    /// What was found for a project, if that still holds. Does not block.
    pub(crate) fn fresh(&self, project: &ProjectName, terms: Terms<'_>) -> Option<Arc<Together>> {
        let together = self.together.find(&(terms.key(), project.clone()))?;
        if together.generation != terms.in_force.generation {
            return None;
        }
        // Read first: a change in between is then seen at the next look.
        let newest = self.store.revision();
        if together.seen_at.load(Ordering::Acquire) != newest {
            let same =
                |(project, revision): &(ProjectName, u64)| self.store.project_revision(project) == *revision;
            if !together.made_from.iter().all(same) {
                return None;
            }
            together.seen_at.store(newest, Ordering::Release);
        }
        Some(together)
    }

    /// Which files of a project are refused once what they need is looked at. Blocks.
    pub(crate) fn together(
        &self,
        project: &ProjectName,
        terms: Terms<'_>,
    ) -> Result<Arc<Together>, store::Error> {
        if let Some(fresh) = self.fresh(project, terms) {
            return Ok(fresh);
        }
        if let Some(same) = self.unchanged(project, terms)? {
            return Ok(same);
        }
        let Terms { device, in_force, scope } = terms;
        let newest = self.store.revision();
        let mut made_from = Vec::new();
        let mut own = Vec::new();
        let mut print = scope.id().map(|_| DefaultHasher::new());
        let mut connected = Connected::new(device, &in_force.policy, |name: &ProjectName| {
            // The revision is read before the rows: a change in between makes this out of date, never stale.
            made_from.push((name.clone(), self.store.project_revision(name)));
            let (files, wheels) = self.wheels(name, terms)?;
            if let Some(print) = &mut print {
                files.hash(print);
            }
            if name == project {
                own = files;
            }
            Ok::<_, store::Error>(wheels)
        });
        let changes = connected.refusals(project)?;
        drop(connected);
        let refused: HashMap<(Sha256, String), Change> = changes
            .into_iter()
            .filter_map(|(at, change)| own.get(at).map(|file| ((file.sha256, file.file.clone()), change)))
            .collect();
        let texts = |change: &Change| -> usize {
            change.refusals.iter().map(|reason| weight(reason).saturating_add(400)).sum()
        };
        let weight = refused.values().map(texts).sum::<usize>().saturating_add(80 * made_from.len() + 300);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let together = Arc::new(Together {
            number,
            generation: in_force.generation,
            seen_at: AtomicU64::new(newest),
            made_from,
            print: print.map(|print| print.finish()),
            weight,
            refused: Arc::new(refused),
        });
        self.together.keep((terms.key(), project.clone()), Arc::clone(&together), weight);
        Ok(together)
    }

    /// What was found for a project in a snapshot, if nothing changed but files that the snapshot does not list. Blocks.
    ///
    /// What a snapshot lists is fixed, so in general nothing but a policy makes a difference; but bytes can be lost and found
    /// again, and an upstream can yank.
    fn unchanged(
        &self,
        project: &ProjectName,
        terms: Terms<'_>,
    ) -> Result<Option<Arc<Together>>, store::Error> {
        if terms.scope.id().is_none() {
            return Ok(None);
        }
        let key = (terms.key(), project.clone());
        let Some(old) = self.together.find(&key) else { return Ok(None) };
        if old.generation != terms.in_force.generation {
            return Ok(None);
        }
        let newest = self.store.revision();
        let mut print = DefaultHasher::new();
        let mut made_from = Vec::with_capacity(old.made_from.len());
        for (name, _) in &old.made_from {
            made_from.push((name.clone(), self.store.project_revision(name)));
            self.listing(name, terms.scope)?.hash(&mut print);
        }
        if old.print != Some(print.finish()) {
            return Ok(None);
        }
        let same = Arc::new(Together {
            number: old.number,
            generation: old.generation,
            seen_at: AtomicU64::new(newest),
            made_from,
            print: old.print,
            weight: old.weight,
            refused: Arc::clone(&old.refused),
        });
        self.together.keep(key, Arc::clone(&same), same.weight);
        Ok(Some(same))
    }

    /// The files of a project that count.
    fn listing(&self, project: &ProjectName, scope: &Scope) -> Result<Vec<Listed>, store::Error> {
        let mut files = self.store.listing(project)?;
        files.retain(|file| scope.offers(file));
        Ok(files)
    }

    /// A set for a request, or why there is none. Its URLs are below `device_url`, where the device reaches the mirror. Blocks.
    pub(crate) fn resolve(
        &self,
        request: &Request,
        terms: Terms<'_>,
        device_url: &str,
    ) -> Result<Resolution, Failure<store::Error>> {
        let answer = self.resolve_once(request, terms, device_url);
        let Err(Failure::Unsatisfiable(mut explanation)) = answer else { return answer };
        let Terms { device, in_force, .. } = terms;
        // The same machine with another release: other machines are no remedy.
        let others =
            in_force.policy.devices().filter(|other| other.soc == device.soc && other.id != device.id);
        let fits =
            |device: &&DeviceProfile| self.resolve_once(request, Terms { device, ..terms }, "").is_ok();
        explanation.offer_elsewhere(others.filter(fits).map(|other| other.id.clone()).collect());
        Err(Failure::Unsatisfiable(explanation))
    }

    fn resolve_once(
        &self,
        request: &Request,
        terms: Terms<'_>,
        device_url: &str,
    ) -> Result<Resolution, Failure<store::Error>> {
        resolve_rows(request, terms.device, device_url, |project| self.known_files(project, terms))
    }

    fn known_files(&self, project: &ProjectName, terms: Terms<'_>) -> Result<Vec<KnownFile>, store::Error> {
        let together = self.together(project, terms)?;
        let (files, wheels) = self.wheels(project, terms)?;
        let known = files.into_iter().zip(wheels).map(|(file, wheel)| {
            let reason = self.refusal(&file, &together, terms)?;
            Ok(KnownFile {
                listed: reason.is_none(),
                judgement: Judgement {
                    verdict: if reason.is_none() { wheel.verdict } else { Verdict::Refuse },
                    reasons: reason.into_iter().collect(),
                    notes: Vec::new(),
                },
                facts: Arc::clone(&wheel.brief.facts),
                held: file.held,
                abi: wheel.brief.abi.clone(),
                yanked: file.provenance.yanked,
                upstream: file.provenance.upstream,
                upload_time: file.provenance.upload_time,
            })
        });
        known.collect()
    }

    /// The files of a project that count, each as the rules need it.
    fn wheels(
        &self,
        project: &ProjectName,
        terms: Terms<'_>,
    ) -> Result<(Vec<Listed>, Vec<Wheel>), store::Error> {
        let files = self.listing(project, terms.scope)?;
        let mut wheels = Vec::with_capacity(files.len());
        let known: Vec<Option<Arc<Alone>>> = files.iter().map(|file| self.known(file, terms)).collect();
        let unknown = files.iter().zip(&known).filter(|(_, known)| known.is_none());
        let unknown: Vec<Listed> = unknown.map(|(file, _)| file.clone()).collect();
        let mut rows = self.store.rows_of(&unknown);
        for (file, known) in files.iter().zip(known) {
            let alone = match known {
                Some(alone) => alone,
                None => self.judge_alone(file, facts_of(file, rows.next().unwrap_or(Ok(None)))?, terms),
            };
            // Of a file that is refused already no rule asks more than its name.
            let brief = if terms.in_force.policy.lists(project, alone.verdict) {
                self.brief(file)?
            } else {
                Arc::new(Brief::of(&name_alone(file)))
            };
            wheels.push(Wheel { brief, verdict: alone.verdict });
        }
        Ok((files, wheels))
    }

    /// What judging a file alone says, kept for as long as the policy is in force: what the bytes of a digest contain does not
    /// change.
    fn alone(&self, file: &Listed, terms: Terms<'_>) -> Result<Arc<Alone>, store::Error> {
        match self.known(file, terms) {
            Some(alone) => Ok(alone),
            None => Ok(self.judge_alone(file, self.facts(file)?, terms)),
        }
    }

    /// What judging a file alone said, where that is at hand.
    fn known(&self, file: &Listed, Terms { device, in_force, .. }: Terms<'_>) -> Option<Arc<Alone>> {
        let key = (device.id.clone(), file.sha256, file.file.clone());
        self.alone.find(&key).filter(|alone| alone.generation == in_force.generation)
    }

    /// Judges a file alone, and keeps what that says.
    fn judge_alone(&self, file: &Listed, facts: Result<Arc<Facts>, Reason>, terms: Terms<'_>) -> Arc<Alone> {
        let Terms { device, in_force, .. } = terms;
        let generation = in_force.generation;
        let facts = match facts {
            Ok(facts) => facts,
            // It is not kept, for `verify --repair` ends it.
            Err(reason) => {
                return Arc::new(Alone { generation, verdict: Verdict::Refuse, reason: Some(reason) });
            }
        };
        let judgement = judge(&facts, device, &in_force.policy);
        if in_force.policy.lists(&file.project, judgement.verdict) {
            self.keep_brief(file, &facts);
        }
        let reason = judgement.reasons.into_iter().next();
        self.count(judgement.verdict, reason.as_ref());
        let weight = reason.as_ref().map_or(0, weight).saturating_add(file.file.len()).saturating_add(300);
        let alone = Arc::new(Alone { generation, verdict: judgement.verdict, reason });
        let key = (device.id.clone(), file.sha256, file.file.clone());
        self.alone.keep(key, Arc::clone(&alone), weight);
        alone
    }

    fn count(&self, verdict: Verdict, reason: Option<&Reason>) {
        let code = reason.map(|reason| code_name(&reason.code)).unwrap_or_default();
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let count = judged.entry((verdict.to_string(), code)).or_default();
        *count = count.saturating_add(1);
    }

    fn brief(&self, file: &Listed) -> Result<Arc<Brief>, store::Error> {
        if let Some(brief) = self.briefs.find(&(file.sha256, file.file.clone())) {
            return Ok(brief);
        }
        Ok(match self.facts(file)? {
            Ok(facts) => self.keep_brief(file, &facts),
            Err(_damaged) => Arc::new(Brief::of(&name_alone(file))),
        })
    }

    fn keep_brief(&self, file: &Listed, facts: &Facts) -> Arc<Brief> {
        let brief = Arc::new(Brief::of(facts));
        let weight = brief.weight();
        self.briefs.keep((file.sha256, file.file.clone()), Arc::clone(&brief), weight);
        brief
    }

    /// The facts of a file, or why they cannot be read.
    fn facts(&self, file: &Listed) -> Result<Result<Arc<Facts>, Reason>, store::Error> {
        facts_of(file, self.store.row_named(&file.sha256, &file.file))
    }
}

/// The facts that were read of a file, or why they cannot be.
fn facts_of(
    file: &Listed,
    row: Result<Option<Row>, store::Error>,
) -> Result<Result<Arc<Facts>, Reason>, store::Error> {
    match row {
        Ok(Some(row)) => Ok(Ok(row.facts)),
        Ok(None) => Ok(Err(unreadable("its sidecar file is lost"))),
        Err(store::Error::Damaged { path, found }) => {
            tracing::error!(file = file.file, sidecar = %path.display(), "damaged sidecar: {found}");
            Ok(Err(unreadable("its sidecar file is damaged")))
        }
        Err(error) => Err(error),
    }
}

/// About how many bytes the texts of a reason take.
fn weight(reason: &Reason) -> usize {
    let lists = reason.found.iter().chain(&reason.wanted).map(|text| text.len().saturating_add(24));
    lists.sum::<usize>().saturating_add(reason.text.len()).saturating_add(reason.remedy.len())
}

fn unreadable(text: &str) -> Reason {
    Reason {
        code: Code::Damaged,
        member: None,
        found: Vec::new(),
        wanted: Vec::new(),
        text: text.to_owned(),
        remedy: "run jetwheel verify --repair".to_owned(),
    }
}

fn unlisted(verdict: Verdict) -> Reason {
    Reason {
        code: Code::PartialKernels,
        member: None,
        found: Vec::new(),
        wanted: Vec::new(),
        text: format!("its verdict is {verdict}"),
        remedy: String::new(),
    }
}

/// What the catalogue itself says of a file.
fn name_alone(file: &Listed) -> Facts {
    Facts {
        project: Some(file.project.clone()),
        version: file.version.clone(),
        requires_python: file.requires_python.clone(),
        metadata_sha256: file.metadata_sha256,
        ..Facts::blank(file.file.clone(), file.sha256, file.size)
    }
}
