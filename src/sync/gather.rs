//! From pages and rows to candidates; notices what changed and what is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::{Candidate, Knowledge};
use super::report::Event;
use crate::digest::Sha256;
use crate::store::{self, Incident, IncidentKind, Provenance, Row, Store};
use crate::upstream::{Link, Listing, shown};
use crate::wheel::{Facts, ProjectName, WheelFilename};

/// What an upstream answered for a project.
pub(super) struct Answered {
    /// Place in the order of priority.
    pub(super) order: usize,
    /// Name.
    pub(super) upstream: String,
    /// What it lists; none if it does not know the project.
    pub(super) listing: Option<Listing>,
}

/// All that is known of a project before anything is fetched.
#[derive(Default)]
pub(super) struct Gathered {
    /// Candidates.
    pub(super) candidates: Vec<Candidate>,
    /// Where each candidate is fetched from; none for one that the store alone has.
    pub(super) origins: Vec<Option<Origin>>,
    /// Name of the upstream that each candidate is from.
    pub(super) from: Vec<String>,
    /// What upstreams did wrong.
    pub(super) incidents: Vec<Event>,
    /// Files that their upstream lists no more.
    pub(super) gone: Vec<String>,
    /// How many links were passed over, by reason.
    pub(super) skipped: BTreeMap<String, u64>,
    /// Upstreams that list the project.
    pub(super) listed_by: Vec<String>,
}

/// Where a candidate is fetched from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// Name of the upstream.
    pub(super) upstream: String,
    /// The link.
    pub(super) link: Link,
}

/// Gathers a project's candidates, and brings up to date what the store says of yanks and of files that are gone.
///
/// Blocks: it reads and writes the store.
pub(super) fn gather(
    store: &Store,
    project: &ProjectName,
    answers: Vec<Answered>,
    now: &str,
) -> Result<Gathered, store::Error> {
    let rows = store.rows(project)?;
    let mut gathered = Gathered::default();
    for answer in &answers {
        note_listing(store, &rows, answer, now, &mut gathered)?;
    }
    let mut seen: BTreeMap<(String, Sha256), usize> = BTreeMap::new();
    for answer in answers {
        let Some(listing) = answer.listing else { continue };
        gathered.listed_by.push(answer.upstream.clone());
        let dropped = listing.dropped;
        count(&mut gathered.skipped, "not-a-file", dropped);
        for link in listing.files {
            let Some(name) = wheel_of(project, &link, &mut gathered.skipped) else { continue };
            let stated = link.file.sha256();
            if let Some(&index) = stated.and_then(|sha256| seen.get(&(name.text.clone(), sha256))) {
                if let Some(candidate) = gathered.candidates.get_mut(index) {
                    candidate.upstreams.push(answer.order);
                }
                continue;
            }
            let origin = Origin { upstream: answer.upstream.clone(), link };
            let known = known(store, &rows, &name, &origin, &mut gathered.incidents)?;
            if let Some(sha256) = stated {
                seen.insert((name.text.clone(), sha256), gathered.candidates.len());
            }
            gathered.candidates.push(Candidate {
                upstreams: vec![answer.order],
                requires_python: origin.link.file.requires_python.clone(),
                yanked: origin.link.file.yanked.clone(),
                knowledge: known.map_or(Knowledge::Unknown, |row| of_row(&row)),
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
    for row in rows.iter().filter(|row| row.held && !listed.contains(&row.facts.sha256)) {
        let Ok(name) = row.facts.file.parse::<WheelFilename>() else { continue };
        gathered.candidates.push(Candidate {
            name,
            upstreams: Vec::new(),
            requires_python: row.facts.requires_python.clone(),
            yanked: row.provenance.yanked.clone(),
            knowledge: of_row(row),
        });
        gathered.from.push(row.provenance.upstream.clone());
        gathered.origins.push(None);
    }
}

fn of_row(row: &Row) -> Knowledge {
    Knowledge::Facts { facts: Arc::clone(&row.facts), held: row.held, fresh: false }
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
    rows: &[Row],
    name: &WheelFilename,
    origin: &Origin,
    incidents: &mut Vec<Event>,
) -> Result<Option<Row>, store::Error> {
    let row_of = |sha256: Sha256| {
        rows.iter().find(|row| row.facts.sha256 == sha256 && row.facts.file == name.text).cloned()
    };
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
    if let Some(pinned) = store.pinned(&origin.upstream, &name.text)?
        && pinned != stated
    {
        let text = format!("the index page now says sha256 {stated}, at first sight it was {pinned}");
        incidents.push(note(store, IncidentKind::ChangedFile, origin, name, &text)?);
        return Ok(row_of(pinned));
    }
    Ok(row_of(stated))
}

/// Writes an incident down, and yields it for the report.
pub(super) fn note(
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
    answer: &Answered,
    now: &str,
    gathered: &mut Gathered,
) -> Result<(), store::Error> {
    let links: BTreeMap<&str, &Link> = answer
        .listing
        .iter()
        .flat_map(|listing| &listing.files)
        .map(|link| (link.file.filename.as_str(), link))
        .collect();
    for row in rows.iter().filter(|row| row.provenance.upstream == answer.upstream) {
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
pub(super) fn provenance(origin: &Origin, now: &str) -> Provenance {
    let file = &origin.link.file;
    let upload_time = file.upload_time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    Provenance {
        upstream: origin.upstream.clone(),
        url: Some(origin.link.stable_url()),
        first_seen: now.to_owned(),
        upload_time: upload_time.map(|time| time.to_string()),
        yanked: file.yanked.clone(),
        gone_since: None,
    }
}

/// The facts of a file that is no wheel: what its name says, and what is wrong.
pub(super) fn facts_of_damaged(name: &WheelFilename, sha256: Sha256, size: u64, text: String) -> Facts {
    use crate::wheel::{Damage, DamageCode, GpuClass};
    Facts {
        file: name.text.clone(),
        sha256,
        size,
        project: Some(name.project.clone()),
        version: Some(name.version_text().to_owned()),
        tags: name.tags().collect(),
        requires_python: None,
        requires_dist: Vec::new(),
        provides_extra: Vec::new(),
        metadata_sha256: None,
        gpu: GpuClass::None,
        members: Vec::new(),
        compilers: Vec::new(),
        images: BTreeMap::new(),
        cuda_sources: 0,
        needed_dlopen: Vec::new(),
        damage: vec![Damage { code: DamageCode::Damaged, member: None, text }],
    }
}
