//! What all devices of a pass share: the candidates of each project, and the metadata that was read of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use super::gather::{Gathered, Origin, gather};
use super::owner::{Owned, Standing, owner};
use super::pages::Pages;
use super::plan::Candidate;
use super::report::{Event, Report, Shadowed};
use super::take::Taker;
use super::{Error, Progress};
use crate::policy::DeviceProfile;
use crate::resolve;
use crate::upstream::{MetadataSource, fetch_metadata, fetch_metadata_inside};
use crate::wheel::{Metadata, ProjectName};
use crate::wording::with_causes;

/// Most wheels of which the metadata is read twice.
const MOST_RECHECKS: usize = 64;

/// The means of a pass, with all that it has looked up so far.
pub(super) struct Shelf {
    pub(super) taker: Taker,
    pub(super) pages: Pages,
    entries: Mutex<BTreeMap<ProjectName, Arc<OnceCell<Arc<Entry>>>>>,
}

/// A project.
pub(super) struct Entry {
    gathered: Mutex<Gathered>,
    declared: Mutex<HashMap<usize, Arc<OnceCell<Declared>>>>,
    /// Candidates whose metadata is that of the file beside the wheel, which may lie.
    beside: Mutex<BTreeSet<usize>>,
    /// Upstreams that answered.
    pub(super) asked: Vec<String>,
    /// Upstreams that did not.
    pub(super) unreachable: Vec<Event>,
}

/// What a wheel says of itself, had without it.
#[derive(Clone)]
pub(super) enum Declared {
    /// `Requires-Dist` as written, and all of it as resolving reads it.
    Metadata(Arc<Vec<String>>, Result<Arc<resolve::Metadata>, String>),
    /// Only the whole wheel tells.
    Hidden,
    /// It could not be reached.
    Unreached(Event),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf {
    /// One on which nothing has been looked up.
    pub(super) fn new(taker: Taker, pages: Pages) -> Self {
        Self { taker, pages, entries: Mutex::default() }
    }

    /// A project, looked up at the first call.
    pub(super) async fn entry(&self, project: &ProjectName) -> Result<Arc<Entry>, Error> {
        let cell = Arc::clone(locked(&self.entries).entry(project.clone()).or_default());
        let entry = cell.get_or_try_init(|| async { Ok::<_, Error>(Arc::new(self.look_up(project).await?)) });
        Ok(Arc::clone(entry.await?))
    }

    /// A project that was looked up.
    pub(super) fn seen(&self, project: &ProjectName) -> Option<Arc<Entry>> {
        locked(&self.entries).get(project)?.get().cloned()
    }

    /// All projects that were looked up, in order.
    pub(super) fn all(&self) -> Vec<(ProjectName, Arc<Entry>)> {
        let entries = locked(&self.entries);
        entries.iter().filter_map(|(name, cell)| Some((name.clone(), cell.get().cloned()?))).collect()
    }

    async fn look_up(&self, project: &ProjectName) -> Result<Entry, Error> {
        (self.taker.listener)(Progress::Project { project: project.to_string() });
        let answers = self.pages.ask_all(project).await;
        let names: Vec<String> = (0..answers.len()).map(|order| self.pages.name(order).to_owned()).collect();
        let asked = names.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        let asked = asked.map(|(name, _)| name.clone()).collect();
        let unreachable =
            answers.iter().filter_map(|answer| answer.as_ref().as_ref().err().cloned()).collect();
        let store = Arc::clone(&self.taker.means.store);
        let (own, now) = (project.clone(), self.taker.now.clone());
        let accepted = Arc::clone(&self.taker.accept_changed);
        let gathering = move || gather(&store, &own, &names, &answers, (&now, &accepted));
        let gathered = tokio::task::spawn_blocking(gathering).await??;
        Ok(Entry {
            gathered: Mutex::new(gathered),
            declared: Mutex::default(),
            beside: Mutex::default(),
            asked,
            unreachable,
        })
    }

    /// Whose a project is, among the upstreams that serve a device.
    pub(super) fn owned(&self, project: &ProjectName, gathered: &Gathered, serving: &[usize]) -> Owned {
        let standings: Vec<Standing<'_>> = serving
            .iter()
            .filter_map(|&order| {
                let (source, _) = self.pages.sources.get(order)?;
                let name = source.upstream.name.as_str();
                Some(Standing {
                    order,
                    name,
                    general: source.upstream.general,
                    lists: (!gathered.unreached.contains(&order)).then(|| gathered.lists.contains(&order)),
                    known: gathered.known_from.contains(name),
                })
            })
            .collect();
        owner(project, &self.taker.means.policy, &standings)
    }

    /// Places of the candidates of a project that a device may be offered: those of its owner, and those that the store has
    /// from nowhere that is asked now.
    pub(super) fn offered(
        &self,
        project: &ProjectName,
        gathered: &Gathered,
        device: &DeviceProfile,
    ) -> Vec<usize> {
        let serving = self.pages.serving(device);
        let owner = self.owned(project, gathered, &serving).owner;
        let is_owner = |name: &str| owner.is_some_and(|order| self.pages.name(order) == name);
        let is_asked = |name: &str| serving.iter().any(|&order| self.pages.name(order) == name);
        let offered = gathered.candidates.iter().enumerate().filter(|(index, candidate)| {
            if candidate.upstreams.is_empty() {
                let from = gathered.from.get(*index).map_or("", String::as_str);
                return is_owner(from) || !is_asked(from);
            }
            owner.is_some_and(|order| candidate.upstreams.contains(&order))
        });
        offered.map(|(index, _)| index).collect()
    }

    /// Writes what looking a project up told into the report.
    pub(super) fn tell(
        &self,
        project: &ProjectName,
        entry: &Entry,
        devices: &[DeviceProfile],
        report: &mut Report,
    ) {
        let gathered = entry.gathered();
        report.unreachable.extend(entry.unreachable.iter().cloned());
        report.incidents.extend(gathered.incidents.iter().cloned());
        report.gone.extend(gathered.gone.iter().cloned());
        for (reason, number) in &gathered.skipped {
            report.count(reason.clone(), *number);
        }
        for device in devices {
            let owned = self.owned(project, &gathered, &self.pages.serving(device));
            let from = owned.owner.map(|order| self.pages.name(order).to_owned());
            for order in owned.shadowed {
                let upstream = self.pages.name(order);
                let same = |row: &&mut Shadowed| {
                    row.project == *project && row.owner == from && row.upstream == upstream
                };
                match report.shadowed.iter_mut().find(same) {
                    Some(row) => row.devices.push(device.id.clone()),
                    None => report.shadowed.push(Shadowed {
                        project: project.clone(),
                        owner: from.clone(),
                        upstream: upstream.to_owned(),
                        devices: vec![device.id.clone()],
                    }),
                }
            }
        }
    }

    /// What a candidate says of itself, read without the wheel at the first call.
    pub(super) async fn declared(&self, entry: &Entry, index: usize) -> Declared {
        let Some((candidate, Some(origin))) = entry.candidate(index) else { return Declared::Hidden };
        let cell = Arc::clone(locked(&entry.declared).entry(index).or_default());
        cell.get_or_init(|| self.read(entry, index, &candidate, &origin)).await.clone()
    }

    /// Reads again, out of the wheels themselves, what files beside them say; whether any of it was not so.
    ///
    /// For a request that has no answer: it may be for a file beside a wheel that names what the wheel does not need.
    pub(super) async fn recheck(&self, projects: &BTreeSet<ProjectName>) -> bool {
        let mut changed = false;
        let mut left = MOST_RECHECKS;
        for entry in projects.iter().filter_map(|project| self.seen(project)) {
            let beside = std::mem::take(&mut *locked(&entry.beside));
            for index in beside.into_iter().take(left) {
                left = left.saturating_sub(1);
                let Some((_, Some(origin))) = entry.candidate(index) else { continue };
                let inside = fetch_metadata_inside(&self.taker.means.client, &origin.link).await;
                let Ok(Some(inside)) = inside else { continue };
                let (Some(inside), Declared::Metadata(said, _)) =
                    (declare(&inside), self.declared(&entry, index).await)
                else {
                    continue;
                };
                if matches!(&inside, Declared::Metadata(own, _) if *own != said) {
                    changed = true;
                    locked(&entry.declared).insert(index, Arc::new(OnceCell::new_with(Some(inside))));
                }
            }
        }
        changed
    }

    async fn read(&self, entry: &Entry, index: usize, candidate: &Candidate, origin: &Origin) -> Declared {
        let source = match fetch_metadata(&self.taker.means.client, &origin.link).await {
            Ok(Some(source)) => source,
            Ok(None) => return Declared::Hidden,
            Err(error) if error.is_lie() => {
                // Inspecting the wheel will say what is wrong with it.
                tracing::info!(file = candidate.name.text, "{}", with_causes(&error));
                return Declared::Hidden;
            }
            Err(error) => {
                return Declared::Unreached(Event {
                    kind: "file",
                    upstream: origin.upstream.clone(),
                    name: candidate.name.text.clone(),
                    text: with_causes(&error),
                });
            }
        };
        if matches!(source, MetadataSource::Beside(_)) {
            locked(&entry.beside).insert(index);
        }
        declare(source.bytes()).unwrap_or(Declared::Hidden)
    }
}

fn declare(bytes: &[u8]) -> Option<Declared> {
    let Metadata { requires_dist, requires_python, provides_extra, .. } = Metadata::parse(bytes).ok()?;
    let parsed = parse(&requires_dist, requires_python.as_deref(), &provides_extra);
    Some(Declared::Metadata(Arc::new(requires_dist), parsed))
}

impl Entry {
    /// The candidates. Locked while the guard lives: not across an await.
    pub(super) fn gathered(&self) -> MutexGuard<'_, Gathered> {
        locked(&self.gathered)
    }

    /// A candidate, and where it is fetched from.
    pub(super) fn candidate(&self, index: usize) -> Option<(Candidate, Option<Origin>)> {
        let gathered = self.gathered();
        Some((gathered.candidates.get(index)?.clone(), gathered.origins.get(index)?.clone()))
    }
}

/// Reads the fields of metadata as resolving needs them, or says why they cannot be used.
pub(super) fn parse(
    requires_dist: &[String],
    requires_python: Option<&str>,
    provides_extra: &[String],
) -> Result<Arc<resolve::Metadata>, String> {
    resolve::Metadata::parse(requires_dist, requires_python, provides_extra)
        .map(Arc::new)
        .map_err(|error| with_causes(&error))
}
