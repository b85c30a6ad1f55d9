//! Snapshots, what they list, and how two of them differ.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde::Serialize;

use super::{Desk, Sheet, layout};
use crate::server::refusal::Refusal;
use crate::server::view::LIVE;
use crate::store::{ChangedFile, Channel, Difference, SnapshotFile, SnapshotHead, SnapshotId};
use crate::wheel::Size;
use crate::wording::counted;

/// How many snapshots, and how many files of one, a page lists.
const MOST_SHOWN: usize = 100;

/// How many files of each kind a page of differences lists.
const MOST_DIFFERENT: usize = 500;

#[derive(Serialize)]
struct Snapshots {
    total: usize,
    from: usize,
    #[serde(rename = "snapshots")]
    heads: Vec<SnapshotHead>,
    channels: Vec<ChannelLine>,
}

#[derive(Serialize)]
struct ChannelLine {
    name: &'static str,
    #[serde(flatten)]
    channel: Channel,
}

/// `GET /snapshots/`.
pub(super) fn snapshots(desk: &Desk<'_>) -> Result<Sheet, Refusal> {
    let store = &desk.state.store;
    let mut heads = store.snapshots();
    heads.reverse();
    let total = heads.len();
    let from = desk.from(total);
    let channels: Vec<ChannelLine> =
        store.channels().into_iter().map(|(name, channel)| ChannelLine { name, channel }).collect();
    let heads = heads.into_iter().skip(from).take(MOST_SHOWN).collect();
    let page = Snapshots { total, from, heads, channels };
    desk.sheet("Snapshots", &page, || {
        html! {
            p { "A snapshot is a frozen list of wheels. " code { "candidate" } " follows the newest one; " code { "stable" } " is moved by people." }
            @for line in &page.channels {
                p { strong { (line.name) } ": " a href=(line.channel.current) { (line.channel.current) } ", since " (layout::time(&line.channel.moved))
                    @if let Some(before) = line.channel.history.last() { "; before that " a href=(before) { (before) } ", " a href={ (before) ".." (line.channel.current) } { "what that changed" } }
                }
            }
            @if page.heads.is_empty() { p { "There is none yet." } } @else {
                (layout::wide("Snapshots", &html! { table {
                    thead { tr { th scope="col" { "Snapshot" } th scope="col" { "Made" } th scope="col" { "For" } th scope="col" { "Wheels" } th scope="col" { "Size" } th scope="col" { "Differences" } } }
                    tbody { @for (at, head) in page.heads.iter().enumerate() { tr {
                        th scope="row" { a href=(head.id) { (head.id) } @if let Some(name) = &head.name { " (" (name) ")" } }
                        td { (layout::time(&head.created)) } td { (head.reason) } td.number { (head.count) } td.number { (Size(head.bytes)) }
                        td {
                            @if let Some(before) = page.heads.get(at.saturating_add(1)) { a href={ (before.id) ".." (head.id) } { "to the one before " (head.id) } ", " }
                            a href={ (head.id) "..live" } { "from " (head.id) " to now" }
                        }
                    } } }
                } }))
                (layout::pieces("", page.from, MOST_SHOWN, page.total))
            }
        }
    })
}

#[derive(Serialize)]
struct One {
    #[serde(flatten)]
    head: SnapshotHead,
    channels: Vec<&'static str>,
    from: usize,
    files: Vec<SnapshotFile>,
}

/// `GET /snapshots/{id, name or channel}`.
pub(super) fn snapshot(desk: &Desk<'_>, selector: &str) -> Result<Sheet, Refusal> {
    let id = find(desk, selector)?;
    let store = &desk.state.store;
    let head = store.snapshots().into_iter().find(|head| head.id == id);
    let count = head.map_or(0, |head| usize::try_from(head.count).unwrap_or(usize::MAX));
    let from = desk.from(count);
    let (mut at, mut files) = (0_usize, Vec::new());
    let (head, _) = store.each_in_snapshot(&id, |file| {
        if at >= from && files.len() < MOST_SHOWN {
            files.push(file);
        }
        at = at.saturating_add(1);
    })?;
    let names = store.channels().into_iter();
    let channels = names.filter(|(_, channel)| channel.current == id).map(|(name, _)| name).collect();
    let one = One { head, channels, from, files };
    desk.sheet(&format!("Snapshot {id}"), &one, || {
        let One { head, channels, from, files } = &one;
        html! {
            dl {
                @if let Some(name) = &head.name { dt { "Name" } dd { (name) } }
                @if !channels.is_empty() { dt { "Channels" } dd { (channels.join(", ")) } }
                dt { "Made" } dd { (layout::time(&head.created)) ", for " (head.reason) }
                @if let Some(origin) = &head.origin { dt { "A copy of" } dd { (origin.snapshot) " of the site " (origin.site) } }
                dt { "Holds" } dd { (counted(head.count, "wheel")) ", " (Size(head.bytes)) }
                dt { "Index" } dd { code { (desk.asked.base) "/DEVICE@" (head.id) "/simple/" } }
            }
            p { a href={ (head.id) "..live" } { "What came since" } }
            (list(desk.root, "Files", files))
            (layout::pieces("", *from, MOST_SHOWN, count))
        }
    })
}

#[derive(Serialize)]
struct Diff {
    from: String,
    to: String,
    /// How many there are of each, of which the lists have the first.
    counts: [usize; 3],
    #[serde(flatten)]
    difference: Difference,
}

/// `GET /snapshots/{from}..{to}`.
pub(super) fn diff(desk: &Desk<'_>, from: &str, to: &str) -> Result<Sheet, Refusal> {
    let ((from, old), (to, new)) = (side(desk, from)?, side(desk, to)?);
    let mut difference = Difference::between(&old, &new);
    let counts = [difference.added.len(), difference.gone.len(), difference.changed.len()];
    difference.added.truncate(MOST_DIFFERENT);
    difference.gone.truncate(MOST_DIFFERENT);
    difference.changed.truncate(MOST_DIFFERENT);
    let diff = Diff { from, to, counts, difference };
    desk.sheet("Differences", &diff, || {
        let Difference { added, gone, changed } = &diff.difference;
        let [added_count, gone_count, changed_count] = diff.counts;
        html! {
            p { "From " (named(&diff.from)) " to " (named(&diff.to)) ": "
                (added_count) " added, " (gone_count) " gone, " (changed_count) " changed." }
            @if added_count > 0 { h2 { span aria-hidden="true" { "+ " } "Added" } (list(desk.root, "Added", added)) }
            @if gone_count > 0 { h2 { span aria-hidden="true" { "− " } "Gone" } (list(desk.root, "Gone", gone)) }
            @if changed_count > 0 {
                h2 { "Changed under their name" }
                ul { @for ChangedFile { file, from, to, .. } in changed { li { (file) ": from " code.hash { (from) } " to " code.hash { (to) } } } }
            }
            @if diff.counts.iter().any(|count| *count > MOST_DIFFERENT) {
                p { "Of each kind the first " (MOST_DIFFERENT) " are shown; " code { "jetwheel snapshot diff" } " tells all." }
            }
        }
    })
}

/// A side by its id; what is held now has no page of its own.
fn named(side: &str) -> Markup {
    html! { @if side == "live" { "what is held now" } @else { a href=(side) { (side) } } }
}

fn list(root: &str, label: &str, files: &[SnapshotFile]) -> Markup {
    layout::wide(
        label,
        &html! { table {
            thead { tr { th scope="col" { "File" } th scope="col" { "Project" } th scope="col" { "Size" } } }
            tbody { @for SnapshotFile { project, file, sha256, size } in files { tr {
                th scope="row" { a href={ (root) (layout::wheel_path(sha256, file)) } { (file) } }
                td { a href={ (root) "projects/" (project) "/" } { (project) } }
                td.number { (Size(*size)) }
            } } }
        } },
    )
}

fn side(desk: &Desk<'_>, selector: &str) -> Result<(String, BTreeSet<SnapshotFile>), Refusal> {
    if LIVE.contains(&selector) {
        return Ok(("live".to_owned(), desk.state.store.held_files()?.into_iter().collect()));
    }
    let id = find(desk, selector)?;
    let mut files = BTreeSet::new();
    desk.state.store.each_in_snapshot(&id, |file| {
        files.insert(file);
    })?;
    Ok((id.to_string(), files))
}

fn find(desk: &Desk<'_>, selector: &str) -> Result<SnapshotId, Refusal> {
    desk.state.store.find_snapshot(selector).ok_or_else(|| desk.state.no_such_snapshot(selector))
}
