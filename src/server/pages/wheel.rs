//! The page of a wheel: verdicts, GPU code, libraries, where it came from, what devices reported of it.

use maud::{Markup, html};
use serde::Serialize;

use super::cell::Cell;
use super::picture::Picture;
use super::{Desk, Sheet, device, home, layout};
use crate::digest::Sha256;
use crate::policy::DeviceProfile;
use crate::server::refusal::Refusal;
use crate::server::verdicts::{Terms, judgement};
use crate::server::view::Scope;
use crate::store::{DeviceReport, Provenance, Row};
use crate::wheel::{Facts, Member, ProjectName, Size};

/// How many members, requirements and tags are shown of each.
const MOST_SHOWN: usize = 100;

/// How many reports are shown, the newest first.
const MOST_REPORTS: usize = 20;

#[derive(Serialize)]
struct WheelPage {
    file: String,
    sha256: String,
    held: bool,
    provenance: Provenance,
    verdicts: Vec<Cell>,
    gpu_code: Picture,
    facts: Facts,
    reports: Vec<DeviceReport>,
}

/// `GET /wheels/{sha256}/{filename}`.
pub(super) fn wheel(desk: &Desk<'_>, sha256: &Sha256, filename: &str) -> Result<Sheet, Refusal> {
    let store = &desk.state.store;
    let Some(Row { facts, provenance, held }) = store.row_named(sha256, filename)? else {
        return Err(Refusal::NoSuchFile);
    };
    let Some(project) = facts.project.clone() else { return Err(Refusal::NoSuchFile) };
    let columns = home::columns(desk)?;
    let mut devices: Vec<&DeviceProfile> = columns.clone();
    devices.extend(desk.devices().filter(|device| !columns.iter().any(|column| column.id == device.id)));
    let verdicts = judge(desk, &project, &facts, &devices)?;
    let mut reports = store.reports()?;
    reports.retain(|report| {
        report.is_of(&report.body.device, &facts) && desk.state.may_read(desk.caller, &report.body.device)
    });
    reports.reverse();
    reports.truncate(MOST_REPORTS);
    let page = WheelPage {
        file: facts.file.clone(),
        sha256: sha256.to_string(),
        held,
        provenance,
        verdicts,
        gpu_code: Picture::of(&facts, &columns, &desk.in_force.policy),
        facts: Facts::clone(&facts),
        reports,
    };
    desk.sheet(&page.file, &page, || render(desk, &project, &page, &columns))
}

fn judge(
    desk: &Desk<'_>,
    project: &ProjectName,
    facts: &Facts,
    devices: &[&DeviceProfile],
) -> Result<Vec<Cell>, Refusal> {
    let files = desk.state.store.listing(project)?;
    let verdicts = &desk.state.verdicts;
    let own = files.iter().find(|file| file.sha256 == facts.sha256 && file.file == facts.file);
    let mut cells = Vec::with_capacity(devices.len());
    for device in devices {
        let terms = Terms { device, in_force: desk.in_force, scope: &Scope::Live };
        let together = verdicts.together(project, terms)?;
        let judgement = judgement(facts, &together, terms);
        let listed = match own {
            Some(file) => verdicts.refusal(file, &together, terms)?.is_none(),
            None => false,
        };
        let newest = if listed { None } else { verdicts.newest_listed(&files, &together, terms)? };
        let newest = newest.map(|file| file.file);
        cells.push(Cell::new(&device.id, judgement, listed, newest.as_deref()));
    }
    Ok(cells)
}

fn render(desk: &Desk<'_>, project: &ProjectName, page: &WheelPage, columns: &[&DeviceProfile]) -> Markup {
    let root = desk.root;
    let (first, others) = page.verdicts.split_at(columns.len().min(page.verdicts.len()));
    html! {
        p { "A wheel of " a href={ (root) "projects/" (project) "/" } { (project) } "." }
        @if !page.facts.damage.is_empty() {
            div.note { strong { "It is damaged." } ul { @for damage in page.facts.damage.iter().take(MOST_SHOWN) {
                li { @if let Some(member) = &damage.member { (member) ": " } (damage.text) }
            } } }
        }
        h2 { "On devices" }
        (cells(desk, page, first))
        @if !others.is_empty() {
            details { summary { "On all other devices (" (others.len()) ")" } (cells(desk, page, others)) }
        }
        h2 { "GPU code" }
        @if page.gpu_code.is_empty() { p { "It holds no kernels (" (page.facts.gpu) ")." } } @else { (page.gpu_code.render(columns)) }
        @if !page.facts.compilers.is_empty() {
            h3 { "Compilers in it" }
            ul { @for compiler in page.facts.compilers.iter().take(MOST_SHOWN) { li {
                (compiler.path) @if let Some(cuda) = &compiler.cuda { " of CUDA " (cuda) } " for "
                @for target in compiler.targets.iter().take(MOST_SHOWN) { code { "compute_" (target.0) } " " }
            } } }
        }
        h2 { "Libraries" }
        (libraries(&page.facts))
        h2 { "Where it came from" }
        (provenance(page))
        h2 { "Metadata" }
        (metadata(&page.facts))
        h2 { "Reports" }
        @if page.reports.is_empty() { p { "No device has reported of it." } }
        @else { ul { @for report in &page.reports { li { (report.body.device) ", " (device::reported(report)) } } } }
    }
}

fn cells(desk: &Desk<'_>, page: &WheelPage, cells: &[Cell]) -> Markup {
    let root = desk.root;
    layout::wide(
        "Verdicts by device",
        &html! { table.stack {
            thead { tr { th scope="col" { "Device" } th scope="col" { "Verdict" } th scope="col" { "Why, and what to do" } } }
            tbody { @for cell in cells { tr {
                th scope="row" { a href={ (root) "devices/" (layout::segment(&cell.device)) } { (cell.device) } }
                td { (cell.short()) }
                td {
                    @if cell.listed && page.held {
                        @let path = format!("{root}{}/files/{}/{}", cell.device, page.sha256, layout::segment(&page.file));
                        a href=(path) { "file for " (cell.device) } ", " a href={ (path) ".metadata" } { "its metadata" }
                    }
                    @if cell.has_more() { (cell.long()) }
                }
            } } }
        } },
    )
}

fn libraries(facts: &Facts) -> Markup {
    let members: Vec<&Member> = facts.members.iter().take(MOST_SHOWN).collect();
    html! {
        @if members.is_empty() { p { "None: it is pure Python." } } @else {
            (layout::wide("Libraries", &html! { table {
                thead { tr { th scope="col" { "Member" } th scope="col" { "Size" } th scope="col" { "Machine" } th scope="col" { "glibc" } th scope="col" { "GLIBCXX" } th scope="col" { "Links" } } }
                tbody { @for member in &members { tr {
                    th scope="row" { (member.path) }
                    td.number { (Size(member.size)) }
                    td { (member.machine.as_deref().unwrap_or("–")) }
                    td { (member.glibc.as_deref().unwrap_or("–")) }
                    td { (member.glibcxx.as_deref().unwrap_or("–")) }
                    td { @for soname in member.needed.iter().take(MOST_SHOWN) { code { (soname) } " " } }
                } } }
            } }))
            @if facts.members.len() > members.len() { p { (facts.members.len().saturating_sub(members.len())) " more are not shown." } }
        }
    }
}

fn provenance(page: &WheelPage) -> Markup {
    let Provenance { upstream, url, first_seen, upload_time, yanked, gone_since, replaced_since } =
        &page.provenance;
    html! { dl {
        dt { "Upstream" } dd { (upstream) }
        // Not a link: what an upstream calls an address may be anything.
        @if let Some(url) = url { dt { "Address" } dd { (url) } }
        dt { "First seen" } dd { (layout::time(first_seen)) }
        @if let Some(at) = upload_time { dt { "Uploaded" } dd { (layout::time(at)) } }
        @if let Some(why) = yanked { dt { "Yanked" } dd { @if why.is_empty() { "yes" } @else { (why) } } }
        @if let Some(at) = replaced_since { dt { "Replaced under its name" } dd { (layout::time(at)) } }
        @if let Some(at) = gone_since { dt { "Gone upstream" } dd { (layout::time(at)) } }
        dt { "Held" } dd { @if page.held { "yes" } @else { "no: its facts alone are known" } }
        dt { "Size" } dd { (Size(page.facts.size)) " (" (page.facts.size) " bytes)" }
        dt { "SHA-256" } dd.hash { code { (page.sha256) } }
    } }
}

fn metadata(facts: &Facts) -> Markup {
    let list = |items: &[String]| {
        html! {
            @for item in items.iter().take(MOST_SHOWN) { code { (item) } " " }
            @if items.len() > MOST_SHOWN { "and " (items.len().saturating_sub(MOST_SHOWN)) " more" }
        }
    };
    html! { dl {
        dt { "Version" } dd { (facts.version.as_deref().unwrap_or("–")) }
        dt { "Tags" } dd { (list(&facts.tags)) }
        dt { "Requires-Python" } dd { (facts.requires_python.as_deref().unwrap_or("any")) }
        dt { "Requires-Dist" } dd { @if facts.requires_dist.is_empty() { "nothing" } @else { (list(&facts.requires_dist)) } }
        @if !facts.provides_extra.is_empty() { dt { "Extras" } dd { (list(&facts.provides_extra)) } }
    } }
}
