//! What a device may be offered of a project, by the rules of a sync pass.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::flight::Job;
use super::pages::Page;
use super::{Shared, blocking};
use crate::policy::{DeviceProfile, Policy, judge_listing};
use crate::server::pull::{Asked, Failure, Offer, Offered, Offers};
use crate::store::{self, Store};
use crate::sync::Knowledge;
use crate::sync::gather::{Gathered, Origin, gather, provenance};
use crate::sync::owner::{Standing, owner};
use crate::sync::pages::Answer;
use crate::wheel::{ProjectName, WheelFilename};

/// What stands for an upstream in the provenance of files that were added by hand.
const LOCAL: &str = "local";

/// What one offer weighs in memory, in bytes, about.
const OFFER_WEIGHT: usize = 1500;

/// What was found for a device and a project, and what it was made from.
pub(super) struct Found {
    pages: Vec<u64>,
    revision: u64,
    policy: Arc<Policy>,
    offers: Arc<Offers>,
    jobs: Vec<Job>,
}

/// The upstreams of a device, best first, as the owner of a project is chosen among them.
struct Standings {
    names: Vec<String>,
    general: Vec<bool>,
}

/// What the upstreams of a device offer of a project.
pub(super) async fn offers(shared: &Arc<Shared>, asked: &Asked<'_>) -> Result<Offered, Failure> {
    let serving = shared.pages.serving(asked.device);
    let pages = serving.iter().map(|order| shared.pages.page(*order, asked.project, asked.policy));
    let pages: Vec<Page> = join_all(pages).await;
    let outdated = pages.iter().filter_map(|page| page.outdated.clone());
    // Of several the one whose copy is oldest; one without a copy says least.
    let outdated = outdated.min_by_key(|outdated| (outdated.copied.is_none(), outdated.copied));
    let numbers: Vec<u64> = pages.iter().map(|page| page.number).collect();
    let key = (asked.device.id.clone(), asked.project.to_string());
    // Read before the rows: a change in between makes this out of date, never stale.
    let revision = shared.store.project_revision(asked.project);
    let current = |found: &Arc<Found>| {
        found.pages == numbers && found.revision == revision && Arc::ptr_eq(&found.policy, asked.policy)
    };
    let found = if let Some(found) = shared.offered.find(&key).filter(current) {
        found
    } else {
        let upstreams = || serving.iter().filter_map(|order| shared.pages.upstream(*order));
        let standings = Standings {
            names: upstreams().map(|upstream| upstream.name.clone()).collect(),
            general: upstreams().map(|upstream| upstream.general).collect(),
        };
        let answers: Vec<Answer> = pages.into_iter().map(|page| page.answer).collect();
        let (own, project) = (Arc::clone(shared), asked.project.clone());
        let (device, policy) = (asked.device.clone(), Arc::clone(asked.policy));
        let made = blocking(move || {
            let (files, jobs) = make(&own, &project, &standings, &answers, (&device, &policy))?;
            Ok((files, jobs, policy))
        });
        let (files, jobs, policy) = made.await?;
        let weight = files.len().saturating_add(jobs.len()).saturating_mul(OFFER_WEIGHT);
        let waiting = jobs.len();
        let offers = Arc::new(Offers::new(shared.number(), files, waiting));
        let found = Arc::new(Found { pages: numbers, revision, policy, offers, jobs });
        shared.offered.keep(key, Arc::clone(&found), weight.saturating_add(500));
        found
    };
    // Also those that failed before, when their time has come.
    for job in &found.jobs {
        shared.queue.put(job);
    }
    Ok(Offered { offers: Arc::clone(&found.offers), outdated })
}

/// Reads pages and rows. Blocks.
fn make(
    shared: &Shared,
    project: &ProjectName,
    standings: &Standings,
    answers: &[Answer],
    (device, policy): (&DeviceProfile, &Arc<Policy>),
) -> Result<(Vec<Offer>, Vec<Job>), store::Error> {
    let now = jiff::Timestamp::now().to_string();
    let gathered = gather(&shared.store, project, &standings.names, answers, (&now, &BTreeSet::new()))?;
    for incident in &gathered.incidents {
        tracing::warn!(upstream = incident.upstream, kind = incident.kind, "{}", incident.text);
    }
    let Some(owner) = owner_of(project, standings, &gathered, policy) else { return Ok(Default::default()) };
    let (mut files, mut unknown) = (Vec::new(), Vec::new());
    let mut versions = BTreeSet::new();
    for (candidate, origin) in gathered.candidates.iter().zip(&gathered.origins) {
        let Some(origin) = origin.as_ref().filter(|_| candidate.upstreams.contains(&owner)) else { continue };
        let name = &candidate.name;
        let fits = judge_listing(name, candidate.requires_python.as_deref(), device, policy).is_empty();
        let version = (Reverse(name.version.any_prerelease()), name.version.clone());
        if fits && candidate.yanked.is_none() {
            versions.insert(version.clone());
        }
        let stated = origin.link.file.sha256();
        match &candidate.knowledge {
            Knowledge::Facts { facts, held: false, .. } => {
                // Other bytes than at first sight are an incident, and are not fetched.
                if stated.is_none_or(|stated| stated == facts.sha256) {
                    if shared.store.row_named(&facts.sha256, &facts.file)?.is_none() {
                        shared.store.put_facts(facts, &provenance(origin, &now))?;
                    }
                    files.push(offer(name, facts.sha256, origin, false));
                }
            }
            Knowledge::Unknown => {
                if is_pinned_otherwise(&shared.store, name, origin)? {
                    continue;
                }
                let light = is_light(name, origin.link.file.size, shared.options.on_the_fly);
                let listed = light && fits && !policy.requires_gpu(project);
                if let Some(sha256) = stated {
                    files.push(offer(name, sha256, origin, listed));
                }
                if fits && candidate.yanked.is_none() && !(listed && stated.is_some()) {
                    unknown.push((
                        version,
                        Job {
                            name: name.clone(),
                            sha256: stated,
                            origin: origin.clone(),
                            device: device.clone(),
                            policy: Arc::clone(policy),
                            size: None,
                        },
                    ));
                }
            }
            Knowledge::Facts { .. } | Knowledge::Lied(_) | Knowledge::Unreachable | Knowledge::OverLimit => {}
        }
    }
    let newest: BTreeSet<_> = versions.into_iter().rev().take(shared.options.versions).collect();
    unknown.retain(|(version, _)| newest.contains(version));
    unknown.sort_by(|one, other| other.0.cmp(&one.0));
    Ok((files, unknown.into_iter().map(|(_, job)| job).collect()))
}

fn owner_of(
    project: &ProjectName,
    standings: &Standings,
    gathered: &Gathered,
    policy: &Policy,
) -> Option<usize> {
    let all = standings.names.iter().zip(&standings.general).enumerate();
    let standings: Vec<Standing<'_>> = all
        .map(|(order, (name, general))| Standing {
            order,
            name,
            general: *general,
            lists: (!gathered.unreached.contains(&order)).then(|| gathered.lists.contains(&order)),
            known: gathered.known_from.contains(name),
        })
        .collect();
    let owner = owner(project, policy, &standings).owner?;
    // Where a site has builds of its own, nobody else may put newer ones beside them.
    let is_general = standings.iter().any(|standing| standing.order == owner && standing.general);
    (!is_general || !gathered.known_from.contains(LOCAL)).then_some(owner)
}

fn offer(name: &WheelFilename, sha256: crate::digest::Sha256, origin: &Origin, listed: bool) -> Offer {
    Offer {
        name: name.clone(),
        sha256,
        file: origin.link.file.clone(),
        url: origin.link.url.clone(),
        upstream: origin.upstream.clone(),
        listed,
    }
}

/// Whether an upstream had other bytes under that name at first sight.
fn is_pinned_otherwise(store: &Store, name: &WheelFilename, origin: &Origin) -> Result<bool, store::Error> {
    let Some(stated) = origin.link.file.sha256() else { return Ok(false) };
    Ok(store.pinned(&origin.upstream, &name.text)?.is_some_and(|pinned| pinned != stated))
}

/// Whether a wheel is by its name for any system, and small as far as its page says.
fn is_light(name: &WheelFilename, size: Option<u64>, limit: u64) -> bool {
    let only = |tags: &[String], tag: &str| tags.iter().all(|found| found == tag);
    only(&name.abi, "none") && only(&name.platform, "any") && size.is_none_or(|size| size <= limit)
}
