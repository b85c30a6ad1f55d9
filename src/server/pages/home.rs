//! The overview.

use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;

use super::lines::Lines;
use super::{Desk, Sheet, layout};
use crate::access::Scope;
use crate::policy::DeviceProfile;
use crate::server::refusal::Refusal;
use crate::store::{AuditEntry, Incident, Pass};
use crate::wheel::Size;
use crate::wording::counted;

/// How many changes, and how many incidents, are shown.
const MOST_CHANGES: usize = 10;

/// How many devices a matrix has columns for unless it is asked for others.
const MOST_COLUMNS: usize = 8;

/// All of the overview.
#[derive(Serialize)]
struct Overview {
    policy_error: Option<String>,
    devices: Vec<DeviceLine>,
    upstreams: BTreeMap<String, UpstreamLine>,
    syncs: Vec<Pass>,
    held: Held,
    free_bytes: u64,
    channels: Vec<ChannelLine>,
    changes: Vec<Change>,
    incidents: Vec<Incident>,
}

/// A change of the mirror. Who made it, and what was done with tokens, is told to who may administer the mirror.
#[derive(Serialize)]
struct Change {
    time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<String>,
    action: String,
    what: Value,
}

/// The last changes, the newest first.
fn changes(desk: &Desk<'_>) -> Result<Vec<Change>, Refusal> {
    let all = desk.caller.check(Scope::Admin, &[]).is_ok();
    let known = desk.state.store.audit()?.into_iter().rev();
    let shown = known.filter(|entry| all || !entry.action.starts_with("token"));
    let change = |AuditEntry { time, who, action, what }| Change {
        time,
        who: Some(who).filter(|_| all),
        action,
        what,
    };
    Ok(shown.take(MOST_CHANGES).map(change).collect())
}

#[derive(Serialize)]
struct Held {
    wheels: u64,
    bytes: u64,
    projects: usize,
}

#[derive(Serialize)]
struct ChannelLine {
    channel: &'static str,
    snapshot: String,
    moved: String,
}

#[derive(Serialize)]
struct UpstreamLine {
    last_reached: Option<String>,
    failing_since: Option<String>,
    /// Seconds since it last answered.
    age_s: Option<u64>,
}

/// One device in a list.
#[derive(Serialize)]
pub(super) struct DeviceLine {
    device: String,
    jetpack: Option<String>,
    compute_capability: String,
    cuda: String,
    python: String,
    glibc: String,
    /// When its index was asked for last, since the mirror was started.
    last_asked: Option<String>,
    /// When one of it reported last.
    last_report: Option<String>,
    #[serde(skip)]
    pip: String,
}

impl DeviceLine {
    fn is_used(&self) -> bool {
        self.last_asked.is_some() || self.last_report.is_some()
    }
}

/// When each device was asked for, and reported, last.
struct Use {
    asked: BTreeMap<String, Timestamp>,
    reported: BTreeMap<String, String>,
}

impl Use {
    fn of(desk: &Desk<'_>) -> Result<Self, Refusal> {
        let reports = desk.state.store.reports()?;
        let reported = reports.into_iter().map(|report| (report.body.device, report.time)).collect();
        Ok(Self { asked: desk.state.used.all(), reported })
    }

    fn is_used(&self, device: &str) -> bool {
        self.asked.contains_key(device) || self.reported.contains_key(device)
    }
}

/// The devices that the caller may read, those in use first.
fn lines(desk: &Desk<'_>) -> Result<Vec<DeviceLine>, Refusal> {
    let used = Use::of(desk)?;
    let line = |device: &DeviceProfile| DeviceLine {
        device: device.id.clone(),
        jetpack: device.jetpack.clone(),
        compute_capability: device.compute_capability.to_string(),
        cuda: device.driver_cuda.to_string(),
        python: device.python.to_string(),
        glibc: device.glibc.to_string(),
        last_asked: used.asked.get(&device.id).map(ToString::to_string),
        last_report: used.reported.get(&device.id).cloned(),
        pip: Lines::of(device, &desk.asked.base).pip,
    };
    let mut lines: Vec<DeviceLine> = desk.devices().map(line).collect();
    lines.sort_by_key(|line| !line.is_used());
    Ok(lines)
}

/// The devices that a matrix shows: those that the query names, else those in use, else the newest release of each chip.
pub(super) fn columns<'d>(desk: &'d Desk<'_>) -> Result<Vec<&'d DeviceProfile>, Refusal> {
    let mut named = Vec::new();
    for id in desk.fields("device").filter(|id| !id.is_empty()).take(MOST_COLUMNS) {
        let device = desk.in_force.device(&id)?;
        if desk.state.may_read(desk.caller, &device.id) {
            named.push(device);
        }
    }
    if !named.is_empty() {
        return Ok(named);
    }
    let used = Use::of(desk)?;
    let in_use: Vec<&DeviceProfile> =
        desk.devices().filter(|device| used.is_used(&device.id)).take(MOST_COLUMNS).collect();
    if !in_use.is_empty() {
        return Ok(in_use);
    }
    let mut newest: BTreeMap<&str, (usize, &DeviceProfile)> = BTreeMap::new();
    for (at, device) in desk.devices().enumerate().filter(|(_, device)| device.jetpack.is_some()) {
        newest.insert(&device.soc, (at, device));
    }
    let mut newest: Vec<(usize, &DeviceProfile)> = newest.into_values().collect();
    newest.sort_by_key(|(at, _)| *at);
    newest.reverse();
    Ok(newest.into_iter().map(|(_, device)| device).take(MOST_COLUMNS).collect())
}

/// `GET /`.
pub(super) fn home(desk: &Desk<'_>) -> Result<Sheet, Refusal> {
    let store = &desk.state.store;
    let now = Timestamp::now();
    let age = |text: &String| Some(layout::seconds_since(text.parse().ok()?, now));
    let upstreams = store.reached()?.into_iter().map(|(name, reached)| {
        let age_s = reached.last_reached.as_ref().and_then(age);
        (
            name,
            UpstreamLine { last_reached: reached.last_reached, failing_since: reached.failing_since, age_s },
        )
    });
    let held = desk.state.held()?;
    let overview = Overview {
        policy_error: desk.in_force.broken.clone(),
        devices: lines(desk)?,
        upstreams: upstreams.collect(),
        syncs: store.passes(),
        held: Held { wheels: held.wheels, bytes: held.bytes, projects: store.projects(true)?.len() },
        free_bytes: store.free_bytes()?,
        channels: store
            .channels()
            .into_iter()
            .map(|(channel, to)| ChannelLine { channel, snapshot: to.current.to_string(), moved: to.moved })
            .collect(),
        changes: changes(desk)?,
        incidents: store.incidents()?.into_iter().rev().take(MOST_CHANGES).collect(),
    };
    desk.sheet("Overview", &overview, || render(desk, &overview))
}

fn render(desk: &Desk<'_>, overview: &Overview) -> Markup {
    let root = desk.root;
    let running = overview.syncs.iter().find(|pass| pass.ended.is_none());
    let Overview { policy_error, devices, upstreams, held, free_bytes, channels, changes, incidents, .. } =
        overview;
    let used: Vec<&DeviceLine> = devices.iter().filter(|line| line.is_used()).collect();
    html! {
        @if let Some(error) = policy_error {
            p.note { strong { "The policy folder cannot be used; the last good policy is in force. " } (error) }
        }
        p { "Each device has an index of its own, which lists only wheels that run on it." }
        h2 { "Devices in use" }
        @if used.is_empty() {
            p { "None has asked since the mirror was started. Choose yours below, or "
                a href={ (root) "detect" } { "paste what jetson_release says" } "." }
        } @else {
            ul.cards {
                @for line in used {
                    li {
                        h3 { a href={ (root) "devices/" (layout::segment(&line.device)) } { (line.device) } }
                        p { "compute capability " (line.compute_capability) ", CUDA " (line.cuda) ", Python " (line.python) }
                        @if let Some(at) = &line.last_asked { p.dim { "asked " (layout::time(at)) } }
                        @if let Some(at) = &line.last_report { p.dim { "reported " (layout::time(at)) } }
                    }
                }
            }
        }
        h2 { "State" }
        dl {
            dt { "Sync" } dd {
                @match running {
                    Some(pass) => { a href={ (root) "sync" } { "running" } " since " (layout::time(&pass.started)) },
                    None => { a href={ (root) "sync" } { "none is running" } }
                }
            }
            dt { "Held" } dd {
                (counted(held.wheels, "wheel")) " of " a href={ (root) "projects/" } { (counted(held.projects, "project")) } ", " (Size(held.bytes))
            }
            dt { "Free on the disk" } dd { (Size(*free_bytes)) }
            @for line in channels {
                dt { "Channel " (line.channel) }
                dd { a href={ (root) "snapshots/" (line.snapshot) } { (line.snapshot) } ", since " (layout::time(&line.moved)) }
            }
        }
        h2 { "Upstreams" }
        @if upstreams.is_empty() { p { "No sync has asked any yet." } } @else {
            (layout::wide("Upstreams", &html! { table {
                thead { tr { th scope="col" { "Upstream" } th scope="col" { "State" } th scope="col" { "Last answered all" } } }
                tbody { @for (name, line) in upstreams { tr {
                    th scope="row" { (name) }
                    td { @match &line.failing_since {
                        Some(since) => { span.cell.bad { span aria-hidden="true" { "✗ " } "failing" } " since " (layout::time(since)) },
                        None => { span.cell.good { span aria-hidden="true" { "✓ " } "answers" } }
                    } }
                    td { @match &line.last_reached { Some(at) => (layout::time(at)), None => "never" } }
                } } }
            } }))
        }
        @if !incidents.is_empty() {
            h2 { "Incidents" }
            ul { @for incident in incidents { li { (layout::time(&incident.time)) ": " (incident.text) } } }
        }
        h2 { "Last changes" }
        @if changes.is_empty() { p { "None yet." } } @else {
            (layout::wide("Last changes", &html! { table {
                thead { tr { th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "What" } th scope="col" { "Of" } } }
                tbody { @for change in changes { tr {
                    td { (layout::time(&change.time)) } td { (change.who.as_deref().unwrap_or("–")) } td { (change.action) } td.hash { (short(&change.what)) }
                } } }
            } }))
        }
        h2 #devices { "All devices" }
        details open[overview.devices.iter().all(|line| !line.is_used())] {
            summary { (devices.len()) " profiles" }
            (table(root, devices))
        }
    }
}

/// A value of the audit log in one line.
fn short(what: &Value) -> String {
    let text = match what {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match value {
                Value::String(text) => format!("{key} {text}"),
                other => format!("{key} {other}"),
            };
            fields.iter().filter(|(_, value)| !value.is_null()).map(field).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    text.chars().take(200).collect()
}

fn table(root: &str, devices: &[DeviceLine]) -> Markup {
    layout::wide(
        "Devices",
        &html! { table {
            thead { tr {
                th scope="col" { "Device" } th scope="col" { "JetPack" } th scope="col" { "Compute capability" } th scope="col" { "CUDA" }
                th scope="col" { "Python" } th scope="col" { "glibc" } th scope="col" { "Index" }
            } }
            tbody { @for line in devices { tr {
                th scope="row" { a href={ (root) "devices/" (layout::segment(&line.device)) } { (line.device) } }
                td { (line.jetpack.as_deref().unwrap_or("–")) } td { (line.compute_capability) } td { (line.cuda) } td { (line.python) }
                td { (line.glibc) }
                td {
                    // The one on this page is relative to the root without a dot.
                    a href={ (root.trim_start_matches("./")) (layout::segment(&line.device)) "/simple/" } { "index of " (line.device) }
                    details { summary { "pip, for " (line.device) } (layout::copy(&format!("pip, for {}", line.device), &line.pip)) }
                }
            } } }
        } },
    )
}

/// `GET /devices/`.
pub(super) fn devices(desk: &Desk<'_>) -> Result<Sheet, Refusal> {
    let devices = lines(desk)?;
    let data = serde_json::json!({ "devices": devices });
    desk.sheet("Devices", &data, || table(desk.root, &devices))
}
