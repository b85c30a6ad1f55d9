//! Which files a device takes for a requirement, and which have to be fetched to know: values in, values out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::requirements::Requirement;
use crate::policy::{self, DeviceProfile, Judgement, Policy, Reason};
use crate::wheel::{Facts, SupportedTags, WheelFilename};

/// A wheel that some upstream lists, or that the store holds.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its name.
    pub name: WheelFilename,
    /// Which upstreams list it, by their place in the order of priority; none for one that the store alone has.
    pub upstreams: Vec<usize>,
    /// `Requires-Python`, as far as it is known without the wheel.
    pub requires_python: Option<String>,
    /// Whether, and why, it is yanked.
    pub yanked: Option<String>,
    /// What is known of its content.
    pub knowledge: Knowledge,
}

/// What is known of a candidate's content.
#[derive(Debug, Clone)]
pub enum Knowledge {
    /// Nothing: it has to be fetched.
    Unknown,
    /// Its facts.
    Facts {
        /// The facts.
        facts: Arc<Facts>,
        /// Whether the store has its bytes.
        held: bool,
        /// Whether it was fetched in this pass.
        fresh: bool,
    },
    /// It could not be fetched in this pass.
    Unreachable,
    /// Fetching it would pass the size limit.
    OverLimit,
    /// What came is not what the index promises.
    Lied(Box<Reason>),
}

/// What one device wants.
#[derive(Debug, Clone, Copy)]
pub struct Want<'a> {
    /// The device.
    pub device: &'a DeviceProfile,
    /// What decides.
    pub policy: &'a Policy,
    /// The requirement.
    pub requirement: &'a Requirement,
    /// The upstreams that serve the device.
    pub upstreams: &'a [usize],
    /// How many versions to keep.
    pub keep: usize,
    /// How many versions that were fetched in this pass may be refused before the search ends.
    pub tries: Option<usize>,
}

/// Why a candidate is not looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassedOver {
    /// Its version is not asked for.
    Version,
    /// It is yanked, and not pinned.
    Yanked,
    /// It is a pre-release, and a final version fits.
    PreRelease,
    /// Its name or its index page rules it out.
    Listing(Vec<Reason>),
    /// Enough newer versions fit, or another file of the same version does.
    Older,
    /// The search ended before it.
    GaveUp,
}

/// What is to be done for one want.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Candidates that are admitted and held.
    pub keep: Vec<(usize, Judgement)>,
    /// Candidates that have to be fetched before more can be said.
    pub fetch: Vec<usize>,
    /// Candidates that are refused by their content.
    pub refused: Vec<(usize, Judgement)>,
    /// Candidates that were not looked into.
    pub passed_over: Vec<(usize, PassedOver)>,
    /// Candidates that are wanted and cannot be had now.
    pub out_of_reach: Vec<usize>,
}

/// What became of the files of one version.
enum Settled {
    Taken,
    Refused { fresh: bool },
}

/// Plans for one want.
///
/// Versions come newest first, pre-releases behind all final versions unless they are asked for, and then only if no final
/// version fits. Among files of one version the upstream's priority decides, then the tags, then the build number. A version
/// whose file cannot be had counts as taken: an outage shall not bring older versions in.
pub fn plan(want: &Want<'_>, candidates: &[Candidate]) -> Plan {
    let mut plan = Plan::default();
    let pre_releases_count = want.requirement.asks_for_pre_releases();
    let mut versions: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let served = candidate.upstreams.is_empty()
            || candidate.upstreams.iter().any(|upstream| want.upstreams.contains(upstream));
        if !served {
            continue;
        }
        if let Some(why) = passed_over(want, candidate) {
            plan.passed_over.push((index, why));
            continue;
        }
        let behind = candidate.name.version.any_prerelease() && !pre_releases_count;
        versions.entry((behind, Reverse(&candidate.name.version))).or_default().push(index);
    }

    let tags = supported_tags(want.device);
    let (mut taken, mut refused_fresh, mut final_taken) = (0_usize, 0_usize, false);
    for ((behind, _), mut files) in versions {
        files.sort_by_key(|&index| rank(&tags, want, candidates, index));
        let why = if behind && final_taken {
            Some(PassedOver::PreRelease)
        } else if taken >= want.keep {
            Some(PassedOver::Older)
        } else if want.tries.is_some_and(|tries| refused_fresh >= tries) {
            Some(PassedOver::GaveUp)
        } else {
            None
        };
        if let Some(why) = why {
            plan.passed_over.extend(files.into_iter().map(|index| (index, why.clone())));
            continue;
        }
        match settle(want, candidates, &files, &mut plan) {
            Settled::Taken => {
                taken = taken.saturating_add(1);
                final_taken |= !behind;
            }
            Settled::Refused { fresh } => refused_fresh = refused_fresh.saturating_add(fresh.into()),
        }
    }
    plan
}

/// Goes through the files of one version until one is taken.
fn settle(want: &Want<'_>, candidates: &[Candidate], files: &[usize], plan: &mut Plan) -> Settled {
    let mut any_fresh = false;
    let mut out_of_reach = false;
    let mut files = files.iter().copied();
    while let Some(index) = files.next() {
        let Some(candidate) = candidates.get(index) else { continue };
        let taken = match &candidate.knowledge {
            Knowledge::Unknown => {
                plan.fetch.push(index);
                true
            }
            Knowledge::Facts { facts, held, fresh } => {
                let judgement = policy::judge(facts, want.device, want.policy);
                let lists = want.policy.lists(&candidate.name.project, judgement.verdict);
                match (lists, held) {
                    (true, true) => plan.keep.push((index, judgement)),
                    (true, false) => plan.fetch.push(index),
                    (false, _) => {
                        any_fresh |= fresh;
                        plan.refused.push((index, judgement));
                    }
                }
                lists
            }
            Knowledge::Unreachable | Knowledge::OverLimit => {
                plan.out_of_reach.push(index);
                out_of_reach = true;
                false
            }
            Knowledge::Lied(reason) => {
                plan.refused.push((index, refusal(reason)));
                false
            }
        };
        if taken {
            plan.passed_over.extend(files.map(|index| (index, PassedOver::Older)));
            return Settled::Taken;
        }
    }
    if out_of_reach { Settled::Taken } else { Settled::Refused { fresh: any_fresh } }
}

/// The judgement of what is not what its index promises.
pub(super) fn refusal(reason: &Reason) -> Judgement {
    Judgement { verdict: policy::Verdict::Refuse, reasons: vec![reason.clone()], notes: Vec::new() }
}

fn passed_over(want: &Want<'_>, candidate: &Candidate) -> Option<PassedOver> {
    if !want.requirement.specifiers.contains(&candidate.name.version) {
        return Some(PassedOver::Version);
    }
    if candidate.yanked.is_some() && !want.requirement.pins() {
        return Some(PassedOver::Yanked);
    }
    let reasons = policy::judge_listing(
        &candidate.name,
        candidate.requires_python.as_deref(),
        want.device,
        want.policy,
    );
    (!reasons.is_empty()).then_some(PassedOver::Listing(reasons))
}

fn supported_tags(device: &DeviceProfile) -> SupportedTags {
    let number = |part: u32| u16::try_from(part).unwrap_or(u16::MAX);
    SupportedTags::new((number(device.python.major()), number(device.python.minor())), &device.platform_tags)
}

/// The order among files of one version: what is held first, for it costs nothing.
fn rank<'a>(
    tags: &SupportedTags,
    want: &Want<'_>,
    candidates: &'a [Candidate],
    index: usize,
) -> impl Ord + use<'a> {
    let candidate = candidates.get(index);
    let upstream = candidate.and_then(|candidate| {
        candidate.upstreams.iter().filter(|upstream| want.upstreams.contains(upstream)).min().copied()
    });
    (
        upstream,
        candidate.and_then(|candidate| tags.priority(&candidate.name)).unwrap_or(u32::MAX),
        Reverse(candidate.and_then(|candidate| candidate.name.build.clone())),
        candidate.map(|candidate| candidate.name.text.as_str()),
    )
}
