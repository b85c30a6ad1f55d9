//! The syncs that run in this server, while they run.

use http::StatusCode;
use maud::{Markup, html};

use super::layout::{self, Live};
use super::{Desk, Sheet};
use crate::server::refusal::Refusal;
use crate::store::{OpenFile, Pass};
use crate::wheel::Size;

/// `GET /sync`, and with `?paused` as it was at that moment.
pub(super) fn sync(desk: &Desk<'_>) -> Result<Sheet, Refusal> {
    let passes = desk.state.store.passes();
    let data = serde_json::json!({ "syncs": passes });
    let live = if desk.field("paused").is_some() { Live::No } else { Live::Yes };
    desk.sheet_of(StatusCode::OK, "Sync", &data, live, || {
        let running = passes.iter().filter(|pass| pass.ended.is_none()).count();
        html! {
            p {
                @if live == Live::Yes { "This page follows what happens. " a href="?paused=yes" { "Hold it still" } }
                @else { "This page is held still. " a href="?" { "Follow what happens" } }
            }
            p #state role="status" { @match running { 0 => "No sync is running.", 1 => "A sync is running.", _ => { (running) " syncs are running." } } }
            div #live {
                @if passes.is_empty() {
                    p { "None has run in this server since it was started. A sync on the same data folder runs inside it and is shown here:" }
                    pre { code { "jetwheel sync --device orin-jp6.2 torch" } }
                }
                @for pass in &passes { (one(pass)) }
            }
        }
    })
}

fn one(pass: &Pass) -> Markup {
    let Pass {
        devices,
        requirements,
        asked,
        started,
        ended,
        outcome,
        project,
        projects,
        open,
        done,
        files,
        bytes,
    } = pass;
    html! {
        section {
            h2 { @if ended.is_some() { "Sync, ended" } @else { "Sync, running" } }
            dl {
                dt { "For" } dd { (devices.join(", ")) }
                dt { "Asked for" } dd { (requirements.join(", ")) @if *asked > requirements.len() { " and " (asked.saturating_sub(requirements.len())) " more" } }
                dt { "Began" } dd { (layout::time(started)) }
                @if let Some(at) = ended { dt { "Ended" } dd { (layout::time(at)) @if let Some(how) = outcome { ": " (how) } } }
                dt { "Pages asked for" } dd { (projects) @if let (Some(name), None) = (project, ended) { ", now of " (name) } }
                dt { "Files done" } dd { (files) ", " (Size(*bytes)) }
            }
            @if !open.is_empty() {
                h3 { "Now" }
                ul { @for file in open { li { (now(file)) } } }
            }
            @if !done.is_empty() {
                h3 { "Done, newest first" }
                ul { @for file in done.iter().rev() { li { (file.file) ": " (file.outcome) } } }
            }
        }
    }
}

fn now(open: &OpenFile) -> Markup {
    let OpenFile { file, size, bytes, inspecting } = open;
    html! {
        (file) ": "
        @if *inspecting { "inspecting" } @else {
            "fetching, " (Size(*bytes))
            @if let Some(size) = size {
                " of " (Size(*size)) " "
                progress max=(size) value=(bytes) aria-label={ "fetched of " (file) } {}
            }
        }
    }
}
