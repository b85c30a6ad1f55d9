//! The search over projects, files, digests, devices and snapshots.

use maud::html;
use serde::Serialize;

use super::{Desk, Sheet, layout};
use crate::digest::Sha256;
use crate::server::refusal::Refusal;
use crate::server::state::nearest;
use crate::wheel::ProjectName;

/// The longest text that is searched for, in characters.
const LONGEST: usize = 200;

/// How many of each kind are shown.
const MOST_FOUND: usize = 50;

#[derive(Default, Serialize)]
struct Found {
    query: String,
    projects: Vec<ProjectName>,
    files: Vec<FoundFile>,
    devices: Vec<String>,
    snapshots: Vec<String>,
    /// Projects with a name like it, where nothing else is found.
    nearest: Vec<String>,
}

#[derive(Serialize)]
struct FoundFile {
    file: String,
    sha256: String,
}

/// `GET /search?q=`.
pub(super) fn search(desk: &Desk<'_>) -> Result<Sheet, Refusal> {
    let query: String = desk.field("q").unwrap_or_default().trim().chars().take(LONGEST).collect();
    let found = find(desk, &query)?;
    let Found { projects, files, devices, snapshots, nearest, .. } = &found;
    let root = desk.root;
    let title = if query.is_empty() { "Search".to_owned() } else { format!("Search for {query}") };
    desk.sheet(&title, &found, || {
        html! {
            @if !query.is_empty() && projects.is_empty() && files.is_empty() && devices.is_empty() && snapshots.is_empty() {
                p { "Nothing is called so." }
                @if !nearest.is_empty() {
                    p { "Names like it: " @for name in nearest { a href={ (root) "projects/" (name) "/" } { (name) } " " } }
                }
            }
            @if !projects.is_empty() {
                h2 { "Projects" }
                ul { @for name in projects { li { a href={ (root) "projects/" (name) "/" } { (name) } } } }
            }
            @if !files.is_empty() {
                h2 { "Files" }
                ul { @for found in files { li { a href={ (root) (layout::wheel_path(&found.sha256, &found.file)) } { (found.file) } } } }
            }
            @if !devices.is_empty() {
                h2 { "Devices" }
                ul { @for id in devices { li { a href={ (root) "devices/" (layout::segment(id)) } { (id) } } } }
            }
            @if !snapshots.is_empty() {
                h2 { "Snapshots" }
                ul { @for id in snapshots { li { a href={ (root) "snapshots/" (layout::segment(id)) } { (id) } } } }
            }
        }
    })
}

fn find(desk: &Desk<'_>, query: &str) -> Result<Found, Refusal> {
    let mut found = Found { query: query.to_owned(), ..Found::default() };
    if query.is_empty() {
        return Ok(found);
    }
    let store = &desk.state.store;
    let small = query.to_lowercase();
    // As names are written that are normalized.
    let name = small.replace(['_', '.', ' '], "-");
    let names = desk.state.names()?;
    let mut hits: Vec<&ProjectName> =
        names.iter().filter(|project| project.as_str().contains(&name)).collect();
    hits.sort_by_key(|project| (project.as_str() != name, !project.as_str().starts_with(&name)));
    found.projects = hits.into_iter().take(MOST_FOUND).cloned().collect();
    if let Ok(sha256) = small.parse::<Sha256>()
        && let Some(row) = store.row(&sha256)?
    {
        found.files.push(FoundFile { file: row.facts.file.clone(), sha256: small.clone() });
    } else if let Some((project, _)) = query.split_once('-')
        && let Ok(project) = project.parse::<ProjectName>()
    {
        let files = store.listing(&project)?.into_iter();
        let hits = files.filter(|file| file.file.to_lowercase().contains(&small));
        let shown =
            |file: crate::store::Listed| FoundFile { file: file.file, sha256: file.sha256.to_string() };
        found.files = hits.take(MOST_FOUND).map(shown).collect();
    }
    let devices = desk.devices().filter(|device| device.id.contains(&small));
    found.devices = devices.take(MOST_FOUND).map(|device| device.id.clone()).collect();
    let heads = store.snapshots().into_iter().rev().filter(|head| {
        head.id.to_string().to_lowercase().contains(&small)
            || head.name.as_ref().is_some_and(|name| name.to_lowercase().contains(&small))
    });
    found.snapshots = heads.take(MOST_FOUND).map(|head| head.id.to_string()).collect();
    if found.projects.is_empty() {
        found.nearest = nearest(&name, &names);
    }
    Ok(found)
}
