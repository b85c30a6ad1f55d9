//! From pages and rows to candidates; notices what changed and what is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::pages::Answer;
use super::plan::{Candidate, Knowledge};
use super::report::Event;
use super::shipped;
use crate::digest::Sha256;
use crate::store::{self, Incident, IncidentKind, Provenance, Row, Store};
use crate::upstream::{Link, Listing, shown};
use crate::wheel::{Facts, INSPECTOR, ProjectName, WheelFilename};

/// All that is known of a project before anything is fetched.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Candidates.
    pub(crate) candidates: Vec<Candidate>,
    /// Where each candidate is fetched from; none for one that the store alone has.
    pub(crate) origins: Vec<Option<Origin>>,
    /// Name of the upstream that each candidate is from.
    pub(crate) from: Vec<String>,
    /// What upstreams did wrong.
    pub(crate) incidents: Vec<Event>,
    /// Files that their upstream lists no more.
    pub(crate) gone: Vec<String>,
    /// How many links were passed over, by reason.
    pub(crate) skipped: BTreeMap<String, u64>,
    /// Upstreams that list the project.
    pub(crate) listed_by: Vec<String>,
    /// Their places, less those that list no file of it.
    pub(crate) lists: BTreeSet<usize>,
    /// Places of the upstreams that were not reached.
    pub(crate) unreached: BTreeSet<usize>,
    /// Upstreams that the store has files of the project from.
    pub(crate) known_from: BTreeSet<String>,
    /// Candidates that are taken in place of others of their name, by whoever said so.
    pub(crate) replacing: BTreeSet<usize>,
    /// Sizes that the page does not state, where they were asked for.
    pub(crate) sizes: BTreeMap<usize, Option<u64>>,
}

impl Gathered {
    /// What a page or the facts say of a candidate's size.
    pub(crate) fn size(&self, index: usize) -> Option<u64> {
        let candidate = self.candidates.get(index)?;
        let origin = self.origins.get(index)?.as_ref();
        match &candidate.knowledge {
            Knowledge::Facts { facts, .. } => Some(facts.size),
            _ => origin
                .and_then(|origin| origin.link.file.size)
                .or_else(|| self.sizes.get(&index).copied().flatten()),
        }
    }

    /// The digest of a candidate, where it is known.
    pub(crate) fn sha256(&self, index: usize) -> Option<Sha256> {
        match &self.candidates.get(index)?.knowledge {
            Knowledge::Facts { facts, .. } => Some(facts.sha256),
            _ => self.origins.get(index)?.as_ref()?.link.file.sha256(),
        }
    }
}

/// Where a candidate is fetched from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Name of the upstream.
    pub(crate) upstream: String,
    /// The link.
    pub(crate) link: Link,
}

/// Gathers a project's candidates, and brings up to date what the store says of yanks and of files that are gone.
///
/// Blocks: it reads and writes the store.
pub(crate) fn gather(
    store: &Store,
    project: &ProjectName,
    names: &[String],
    answers: &[Answer],
    (now, accepted): (&str, &BTreeSet<String>),
) -> Result<Gathered, store::Error> {
    let rows = store.rows(project)?;
    let by_name: HashMap<(&str, Sha256), &Row> =
        rows.iter().map(|row| ((row.facts.file.as_str(), row.facts.sha256), row)).collect();
    let mut gathered = Gathered {
        known_from: rows.iter().map(|row| row.provenance.upstream.clone()).collect(),
        ..Gathered::default()
    };
    let mut seen: BTreeMap<(String, Sha256), usize> = BTreeMap::new();
    let mut digests: BTreeMap<String, (Sha256, String)> = BTreeMap::new();
    for (order, (upstream, answer)) in names.iter().zip(answers).enumerate() {
        let Ok(listing) = &**answer else {
            gathered.unreached.insert(order);
            continue;
        };
        note_listing(store, &rows, upstream, listing.as_ref(), now, &mut gathered)?;
        let Some(listing) = listing else { continue };
        gathered.listed_by.push(upstream.clone());
        count(&mut gathered.skipped, "not-a-file", listing.dropped);
        let pins = store.pins(upstream, listing.files.iter().map(|link| link.file.filename.as_str()))?;
        for link in &listing.files {
            gathered.lists.insert(order);
            let Some(name) = wheel_of(project, link, &mut gathered.skipped) else { continue };
            let stated = link.file.sha256();
            if let Some(sha256) = stated {
                let first = digests.entry(name.text.clone()).or_insert((sha256, upstream.clone()));
                if first.0 != sha256 && first.1 != *upstream {
                    gathered.incidents.push(Event {
                        kind: "differs",
                        upstream: upstream.clone(),
                        name: name.text.clone(),
                        text: format!(
                            "{}: has sha256 {sha256} on {upstream}, and {} on {}",
                            name.text, first.0, first.1
                        ),
                    });
                }
            }
            if let Some(&index) = stated.and_then(|sha256| seen.get(&(name.text.clone(), sha256))) {
                if let Some(candidate) = gathered.candidates.get_mut(index) {
                    candidate.upstreams.push(order);
                }
                continue;
            }
            let origin = Origin { upstream: upstream.clone(), link: link.clone() };
            let replaces = accepted.contains(&name.text)
                && pins.get(&*name.text).is_some_and(|pinned| stated != Some(*pinned));
            let known = if replaces {
                gathered.replacing.insert(gathered.candidates.len());
                stated.and_then(|stated| by_name.get(&(&*name.text, stated)).copied().cloned())
            } else {
                let pinned = pins.get(&*name.text).copied();
                known(store, (&by_name, pinned), &name, &origin, &mut gathered.incidents)?
            };
            if let Some(sha256) = stated {
                seen.insert((name.text.clone(), sha256), gathered.candidates.len());
            }
            let shipped = || {
                let facts = shipped::facts(&stated?, &name.text)?;
                Some(Knowledge::Facts { facts, held: false, fresh: false })
            };
            let knowledge = known.and_then(|row| of_row(&row)).or_else(shipped);
            gathered.candidates.push(Candidate {
                upstreams: vec![order],
                requires_python: origin.link.file.requires_python.clone(),
                yanked: origin.link.file.yanked.clone(),
                knowledge: knowledge.unwrap_or(Knowledge::Unknown),
                name,
            });
            gathered.from.push(origin.upstream.clone());
            gathered.origins.push(Some(origin));
        }
    }
    add_held(&rows, &mut gathered);
    Ok(gathered)
}

/// Adds what the store holds and no upstream lists: it came by hand, or is gone upstream.
fn add_held(rows: &[Row], gathered: &mut Gathered) {
    let listed: BTreeSet<Sha256> = gathered
        .candidates
        .iter()
        .filter_map(|candidate| match &candidate.knowledge {
            Knowledge::Facts { facts, .. } => Some(facts.sha256),
            _ => None,
        })
        .collect();
    let replacing = gathered.replacing.iter().filter_map(|index| gathered.candidates.get(*index));
    let replaced: BTreeSet<String> = replacing.map(|candidate| candidate.name.text.clone()).collect();
    let counts = |row: &&Row| row.provenance.replaced_since.is_none() && !replaced.contains(&row.facts.file);
    let held = rows.iter().filter(|row| row.held && !listed.contains(&row.facts.sha256));
    for row in held.filter(counts) {
        let Ok(name) = row.facts.file.parse::<WheelFilename>() else { continue };
        let Some(knowledge) = of_row(row) else { continue };
        gathered.candidates.push(Candidate {
            name,
            upstreams: Vec::new(),
            requires_python: row.facts.requires_python.clone(),
            yanked: row.provenance.yanked.clone(),
            knowledge,
        });
        gathered.from.push(row.provenance.upstream.clone());
        gathered.origins.push(None);
    }
}

/// What a row tells; nothing if it has no bytes, and its facts are of an earlier inspector.
fn of_row(row: &Row) -> Option<Knowledge> {
    let current = row.held || row.facts.are_current();
    current.then(|| Knowledge::Facts { facts: Arc::clone(&row.facts), held: row.held, fresh: false })
}

fn count(skipped: &mut BTreeMap<String, u64>, reason: &str, number: u64) {
    if number > 0 {
        let counter = skipped.entry(reason.to_owned()).or_default();
        *counter = counter.saturating_add(number);
    }
}

/// The name of a link that leads to a wheel of the project.
fn wheel_of(
    project: &ProjectName,
    link: &Link,
    skipped: &mut BTreeMap<String, u64>,
) -> Option<WheelFilename> {
    let file = &link.file.filename;
    if !file.to_ascii_lowercase().ends_with(".whl") {
        count(skipped, "source-build", 1);
        return None;
    }
    match file.parse::<WheelFilename>() {
        Ok(name) if name.project == *project => Some(name),
        Ok(_) => {
            count(skipped, "other-project", 1);
            None
        }
        Err(_) => {
            count(skipped, "bad-name", 1);
            None
        }
    }
}

/// What the store knows of a listed file; an upstream that has other bytes under a name that it had before is an incident,
/// and what is known of the first bytes stays what counts.
fn known(
    store: &Store,
    (rows, pinned): (&HashMap<(&str, Sha256), &Row>, Option<Sha256>),
    name: &WheelFilename,
    origin: &Origin,
    incidents: &mut Vec<Event>,
) -> Result<Option<Row>, store::Error> {
    let row_of = |sha256: Sha256| rows.get(&(&*name.text, sha256)).copied().cloned();
    let Some(stated) = origin.link.file.sha256() else {
        let row = store.row_by_url(&origin.link.stable_url())?.filter(|row| row.facts.file == name.text);
        if let Some(row) = &row
            && let Some(size) = origin.link.file.size.filter(|size| *size != row.facts.size)
        {
            let text = format!("the index page now says {size} bytes, it had {} bytes", row.facts.size);
            incidents.push(note(store, IncidentKind::ChangedFile, origin, name, &text)?);
        }
        return Ok(row);
    };
    if let Some(pinned) = pinned.filter(|pinned| *pinned != stated) {
        let text = format!(
            "the index page now says sha256 {stated}, at first sight it was {pinned}, and that is kept; \
             --accept-changed {} would take what is there now",
            name.text
        );
        incidents.push(note(store, IncidentKind::ChangedFile, origin, name, &text)?);
        return Ok(row_of(pinned));
    }
    Ok(row_of(stated))
}

/// Writes an incident down, and yields it for the report.
pub(crate) fn note(
    store: &Store,
    kind: IncidentKind,
    origin: &Origin,
    name: &WheelFilename,
    text: &str,
) -> Result<Event, store::Error> {
    let incident = Incident {
        upstream: Some(origin.upstream.clone()),
        project: Some(name.project.clone()),
        file: Some(name.text.clone()),
        ..Incident::now(kind, format!("{}: {text}", shown(&origin.link.url)))
    };
    store.put_incident(&incident)?;
    let kind = match kind {
        IncidentKind::ChangedFile => "changed-file",
        IncidentKind::HashMismatch => "hash-mismatch",
        IncidentKind::MetadataMismatch => "metadata-mismatch",
        _ => "other",
    };
    Ok(Event { kind, upstream: origin.upstream.clone(), name: name.text.clone(), text: incident.text })
}

/// Brings up to date what an upstream says of the files that were first seen on it.
fn note_listing(
    store: &Store,
    rows: &[Row],
    upstream: &str,
    listing: Option<&Listing>,
    now: &str,
    gathered: &mut Gathered,
) -> Result<(), store::Error> {
    let links: BTreeMap<&str, &Link> = listing
        .iter()
        .flat_map(|listing| &listing.files)
        .map(|link| (link.file.filename.as_str(), link))
        .collect();
    let counts = |row: &&Row| row.provenance.upstream == upstream && row.provenance.replaced_since.is_none();
    for row in rows.iter().filter(counts) {
        let mut provenance = Provenance { gone_since: None, ..row.provenance.clone() };
        if let Some(link) = links.get(row.facts.file.as_str()) {
            provenance.yanked.clone_from(&link.file.yanked);
        } else {
            let since = row.provenance.gone_since.clone();
            provenance.gone_since = Some(since.unwrap_or_else(|| now.to_owned()));
            gathered.gone.push(row.facts.file.clone());
        }
        if provenance != row.provenance {
            store.put_provenance(&row.facts.sha256, &provenance)?;
        }
    }
    Ok(())
}

/// What is written down of a file's origin.
pub(crate) fn provenance(origin: &Origin, now: &str) -> Provenance {
    let file = &origin.link.file;
    let upload_time = file.upload_time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    Provenance {
        upstream: origin.upstream.clone(),
        url: Some(origin.link.stable_url()),
        first_seen: now.to_owned(),
        upload_time: upload_time.map(|time| time.to_string()),
        yanked: file.yanked.clone(),
        ..Provenance::default()
    }
}

/// The facts of a file that is no wheel: what its name says, and what is wrong.
pub(crate) fn facts_of_damaged(name: &WheelFilename, sha256: Sha256, size: u64, text: String) -> Facts {
    use crate::wheel::{Damage, DamageCode};
    Facts {
        project: Some(name.project.clone()),
        version: Some(name.version_text().to_owned()),
        tags: name.tags().collect(),
        inspector: INSPECTOR,
        damage: vec![Damage { code: DamageCode::Damaged, member: None, text }],
        ..Facts::blank(name.text.clone(), sha256, size)
    }
}
