//! The projects, and of each the matrix of its wheels and the devices.

use maud::{Markup, html};
use serde::Serialize;

use super::cell::Cell;
use super::{Desk, Sheet, home, layout};
use crate::policy::DeviceProfile;
use crate::server::refusal::Refusal;
use crate::server::verdicts::{Terms, judgement};
use crate::server::view::Scope;
use crate::store::Provenance;
use crate::wheel::{ProjectName, Size};

/// How many projects one page lists.
const MOST_PROJECTS: usize = 200;

/// How many wheels one page of a matrix has. Each is judged for each column.
const MOST_WHEELS: usize = 25;

#[derive(Serialize)]
struct Projects {
    total: usize,
    from: usize,
    #[serde(rename = "projects")]
    lines: Vec<ProjectLine>,
}

#[derive(Serialize)]
struct ProjectLine {
    project: ProjectName,
    files: u64,
    held: u64,
}

/// `GET /projects/`.
pub(super) fn projects(desk: &Desk<'_>) -> Result<Sheet, Refusal> {
    let names = desk.state.names()?;
    let from = desk.from(names.len());
    let mut projects = Vec::new();
    for project in names.iter().skip(from).take(MOST_PROJECTS) {
        let (files, held) = desk.state.store.count(project)?;
        projects.push(ProjectLine { project: project.clone(), files, held });
    }
    let page = Projects { total: names.len(), from, lines: projects };
    let devices = query(desk);
    desk.sheet("Projects", &page, || {
        html! {
            @if page.total == 0 { p { "Nothing is known yet: " code { "jetwheel sync" } " or " code { "jetwheel add" } " changes that." } }
            @else {
                (layout::wide("Projects", &html! { table {
                    thead { tr { th scope="col" { "Project" } th scope="col" { "Files known" } th scope="col" { "Held" } } }
                    tbody { @for line in &page.lines { tr {
                        th scope="row" { a href={ (line.project) "/" (if devices.is_empty() { "" } else { "?" }) (devices.trim_end_matches('&')) } { (line.project) } }
                        td.number { (line.files) } td.number { (line.held) }
                    } } }
                } }))
                (layout::pieces(&devices, page.from, MOST_PROJECTS, page.total))
            }
        }
    })
}

/// The devices of the query, to go on with them.
fn query(desk: &Desk<'_>) -> String {
    let devices = desk.fields("device").filter(|id| !id.is_empty());
    devices.fold(String::new(), |query, id| query + "device=" + &layout::segment(&id) + "&")
}

#[derive(Serialize)]
struct Matrix {
    project: ProjectName,
    total: usize,
    from: usize,
    devices: Vec<String>,
    files: Vec<FileLine>,
}

#[derive(Serialize)]
struct FileLine {
    file: String,
    sha256: String,
    version: Option<String>,
    size: u64,
    held: bool,
    provenance: Provenance,
    verdicts: Vec<Cell>,
}

/// `GET /projects/{project}/`.
pub(super) fn project(desk: &Desk<'_>, project: &ProjectName) -> Result<Sheet, Refusal> {
    let store = &desk.state.store;
    let files = store.listing(project)?;
    if files.is_empty() {
        return Err(desk.state.no_such_project(project, &Scope::Live)?);
    }
    let devices = home::columns(desk)?;
    let from = desk.from(files.len());
    let shown = files.get(from..).unwrap_or_default();
    let shown = shown.get(..MOST_WHEELS).unwrap_or(shown);
    let mut lines: Vec<FileLine> = shown
        .iter()
        .map(|file| FileLine {
            file: file.file.clone(),
            sha256: file.sha256.to_string(),
            version: file.version.clone(),
            size: file.size,
            held: file.held,
            provenance: file.provenance.clone(),
            verdicts: Vec::with_capacity(devices.len()),
        })
        .collect();
    let mut facts = Vec::with_capacity(shown.len());
    for row in store.rows_of(shown) {
        facts.push(row?.map(|row| row.facts));
    }
    for device in &devices {
        let terms = Terms { device, in_force: desk.in_force, scope: &Scope::Live };
        let verdicts = &desk.state.verdicts;
        let together = verdicts.together(project, terms)?;
        let newest = verdicts.newest_listed(&files, &together, terms)?.map(|file| file.file);
        for ((line, file), facts) in lines.iter_mut().zip(shown).zip(&facts) {
            // A sidecar that is lost refuses the file, and `verify` says more.
            let Some(facts) = facts else { continue };
            let judgement = judgement(facts, &together, terms);
            let listed = verdicts.refusal(file, &together, terms)?.is_none();
            line.verdicts.push(Cell::new(&device.id, judgement, listed, newest.as_deref()));
        }
    }
    let ids = devices.iter().map(|device| device.id.clone()).collect();
    let matrix = Matrix { project: project.clone(), total: files.len(), from, devices: ids, files: lines };
    desk.sheet(project.as_str(), &matrix, || render(desk, &matrix, &devices))
}

fn render(desk: &Desk<'_>, matrix: &Matrix, devices: &[&DeviceProfile]) -> Markup {
    let root = desk.root;
    html! {
        p { "Every known file, newest version first, and what it is for each device: "
            span.cell.good { span aria-hidden="true" { "✓ " } "runs" } ", "
            span.cell.fair { span aria-hidden="true" { "◐ " } "runs with a reservation" } " or "
            span.cell.bad { span aria-hidden="true" { "✗ " } "refused" } ". The reasons and what to do are below." }
        (choose(desk))
        (layout::wide(&format!("Wheels of {} and devices", matrix.project), &html! { table.matrix {
            thead { tr {
                th scope="col" { "Wheel" }
                @for device in devices { th scope="col" { a href={ (root) "devices/" (layout::segment(&device.id)) } { (device.id) } } }
            } }
            tbody { @for line in &matrix.files { tr {
                th scope="row" {
                    a href={ (root) (layout::wheel_path(&line.sha256, &line.file)) } { (line.file) }
                    div.dim { (Size(line.size)) (standing(line)) }
                }
                @for cell in &line.verdicts { td { (cell.short()) } }
            } } }
        } }))
        (layout::pieces(&query(desk), matrix.from, MOST_WHEELS, matrix.total))
        h2 #why { "Why, and what to do" }
        @for line in matrix.files.iter().filter(|line| line.verdicts.iter().any(Cell::has_more)) {
            h3 { (line.file) }
            @for cell in line.verdicts.iter().filter(|cell| cell.has_more()) {
                details open[devices.len() == 1] {
                    summary { (cell.device) ": " (cell.short())  }
                    (cell.long())
                }
            }
        }
        @if matrix.files.iter().all(|line| !line.verdicts.iter().any(Cell::has_more)) { p { "Nothing: all that is shown here runs." } }
    }
}

/// How a file stands, where that is not the usual.
fn standing(line: &FileLine) -> Markup {
    html! {
        @if !line.held { ", not held" }
        @if line.provenance.yanked.is_some() { ", yanked" }
        @if line.provenance.gone_since.is_some() { ", gone upstream" }
    }
}

/// The choice of one device.
fn choose(desk: &Desk<'_>) -> Markup {
    let chosen = desk.field("device").unwrap_or_default();
    html! {
        form method="get" {
            label { span { "Show" } select name="device" {
                option value="" { "devices in use, or the newest of each chip" }
                @for device in desk.devices() { option value=(device.id) selected[device.id == chosen] { (device.id) } }
            } }
            " " button type="submit" { "Show" }
        }
    }
}
