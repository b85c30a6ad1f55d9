//! Pages for people. Each is made of the same data as its JSON, which comes to who asks for `application/json`.
//!
//! Templates escape every value (`maud`), and the Content-Security-Policy allows no style and no script but those of
//! `/static/`, so that no wheel can add to a page. All works without the script.

use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, header};
use maud::Markup;
use serde::Serialize;

use super::in_force::InForce;
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::State;
use crate::access::Caller;
use crate::digest::Sha256;
use crate::policy::DeviceProfile;
use crate::wheel::ProjectName;

mod cell;
mod detect;
mod device;
mod home;
mod layout;
mod lines;
mod picture;
mod project;
mod search;
mod snapshots;
mod sync;
mod wheel;

/// The largest form that is taken, in bytes: what is pasted, each letter of which may be three in a form.
pub(super) const LARGEST_FORM: usize = 256 << 10;

/// What a page may load and do: its own style, script and data, and forms to the mirror itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("live.js");

/// How long a browser may keep style and script, in seconds; their addresses do not change with the mirror's version.
const KEPT: &str = "max-age=300";

/// A page for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// `/`
    Home,
    /// `/devices/`
    Devices,
    /// `/devices/{id}`
    Device { id: String },
    /// `/projects/`
    Projects,
    /// `/projects/{project}/`
    Project { project: ProjectName },
    /// `/wheels/{sha256}/{filename}`
    Wheel { sha256: Sha256, filename: String },
    /// `/search?q=`
    Search,
    /// `/detect`
    Detect,
    /// `/snapshots/`
    Snapshots,
    /// `/snapshots/{id, name or channel}`
    Snapshot { selector: String },
    /// `/snapshots/{from}..{to}`
    Diff { from: String, to: String },
    /// `/sync`
    Sync,
    /// `/static/{name}`
    Static { name: String },
}

impl Place {
    /// Its name in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Devices => "devices-page",
            Self::Device { .. } => "device-page",
            Self::Projects => "projects-page",
            Self::Project { .. } => "project-page",
            Self::Wheel { .. } => "wheel-page",
            Self::Search => "search",
            Self::Detect => "detect",
            Self::Snapshots | Self::Snapshot { .. } | Self::Diff { .. } => "snapshots-page",
            Self::Sync => "sync-page",
            Self::Static { .. } => "static",
        }
    }

    /// From there to the mirror's root: links are relative, so that a proxy may have it anywhere.
    const fn root(&self) -> &'static str {
        match self {
            Self::Home | Self::Search | Self::Detect | Self::Sync => "./",
            Self::Project { .. } | Self::Wheel { .. } => "../../",
            _ => "../",
        }
    }
}

/// What a request says besides its path.
#[derive(Debug)]
pub(super) struct Asked {
    /// How the client reached the mirror: `https://mirror.example/prefix`.
    pub(super) base: String,
    /// Whether JSON is wanted.
    pub(super) json: bool,
    /// The query, as it came.
    pub(super) query: String,
    /// A form that was posted.
    pub(super) posted: Option<Bytes>,
}

/// All that a page is made from.
struct Desk<'a> {
    state: &'a State,
    in_force: &'a InForce,
    caller: &'a Caller,
    asked: &'a Asked,
    root: &'static str,
}

/// A page before it is sent.
struct Sheet {
    status: StatusCode,
    body: Vec<u8>,
}

impl Desk<'_> {
    /// Makes a page of its data, in the form that is wanted.
    fn sheet(
        &self,
        title: &str,
        data: &impl Serialize,
        body: impl FnOnce() -> Markup,
    ) -> Result<Sheet, Refusal> {
        self.sheet_of(StatusCode::OK, title, data, layout::Live::No, body)
    }

    fn sheet_of(
        &self,
        status: StatusCode,
        title: &str,
        data: &impl Serialize,
        live: layout::Live,
        body: impl FnOnce() -> Markup,
    ) -> Result<Sheet, Refusal> {
        let body = if self.asked.json {
            serde_json::to_vec(data).map_err(|error| Refusal::Defect(error.to_string()))?
        } else {
            layout::page(self.root, title, live, &body()).into_string().into_bytes()
        };
        Ok(Sheet { status, body })
    }

    /// The first value of a field in the query.
    fn field(&self, name: &str) -> Option<String> {
        self.fields(name).next()
    }

    /// All values of a field in the query.
    fn fields<'d>(&'d self, name: &'d str) -> impl Iterator<Item = String> + 'd {
        url::form_urlencoded::parse(self.asked.query.as_bytes())
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    /// Where a list of so many begins, as the query says; never behind its end.
    fn from(&self, total: usize) -> usize {
        let from: usize = self.field("from").and_then(|text| text.parse().ok()).unwrap_or(0);
        from.min(total.saturating_sub(1))
    }

    /// The devices that the caller may read, in the policy's order.
    fn devices(&self) -> impl Iterator<Item = &DeviceProfile> {
        self.in_force.policy.devices().filter(|device| self.state.may_read(self.caller, &device.id))
    }
}

/// Answers with a page.
pub(super) async fn answer(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    caller: Caller,
    place: Place,
    asked: Asked,
) -> Result<Reply, Refusal> {
    if let Place::Static { name } = &place {
        return fixed(name);
    }
    let in_force = Arc::clone(in_force);
    let json = asked.json;
    let sheet = state
        .blocking(move |state| {
            let desk =
                Desk { state, in_force: &in_force, caller: &caller, asked: &asked, root: place.root() };
            match desk.make(&place) {
                Err(refusal) if refusal.status() == StatusCode::NOT_FOUND => desk.nothing(&refusal),
                made => made,
            }
        })
        .await?;
    let kind = if json { "application/json" } else { "text/html; charset=utf-8" };
    let mut reply = Reply::bytes(kind, Bytes::from(sheet.body));
    reply.status = sheet.status;
    reply.set(header::CACHE_CONTROL, "no-cache");
    reply.set(header::VARY, "Accept");
    harden(&mut reply);
    Ok(reply)
}

impl Desk<'_> {
    fn make(&self, place: &Place) -> Result<Sheet, Refusal> {
        match place {
            Place::Home => home::home(self),
            Place::Devices => home::devices(self),
            Place::Device { id } => device::device(self, id),
            Place::Projects => project::projects(self),
            Place::Project { project } => project::project(self, project),
            Place::Wheel { sha256, filename } => wheel::wheel(self, sha256, filename),
            Place::Search => search::search(self),
            Place::Detect => detect::detect(self),
            Place::Snapshots => snapshots::snapshots(self),
            Place::Snapshot { selector } => snapshots::snapshot(self, selector),
            Place::Diff { from, to } => snapshots::diff(self, from, to),
            Place::Sync => sync::sync(self),
            Place::Static { .. } => Err(Refusal::NoSuchPage),
        }
    }

    /// The page of what is not there.
    fn nothing(&self, refusal: &Refusal) -> Result<Sheet, Refusal> {
        let text = refusal.to_string();
        let data = serde_json::json!({ "error": text });
        self.sheet_of(StatusCode::NOT_FOUND, "Not here", &data, layout::Live::No, || {
            maud::html! { p { (text) } (layout::search(self.root, "")) }
        })
    }
}

/// Style and script.
fn fixed(name: &str) -> Result<Reply, Refusal> {
    let (kind, text) = match name {
        "style.css" => ("text/css; charset=utf-8", STYLE),
        "live.js" => ("text/javascript; charset=utf-8", SCRIPT),
        _ => return Err(Refusal::NoSuchPage),
    };
    let mut reply = Reply::bytes(kind, Bytes::from_static(text.as_bytes()));
    reply.set(header::CACHE_CONTROL, KEPT);
    harden(&mut reply);
    Ok(reply)
}

fn harden(reply: &mut Reply) {
    reply.set(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    reply.set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    reply.set(header::REFERRER_POLICY, "no-referrer");
}
