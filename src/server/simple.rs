//! The simple index of one device.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use flate2::{Compression, GzBuilder};
use http::{StatusCode, header};
use percent_encoding::utf8_percent_encode;

use super::accept::Form;
use super::in_force::InForce;
use super::path::ESCAPED;
use super::pull::{Offer, Offers, Outdated};
use super::pulled;
use super::range;
use super::refusal::Refusal;
use super::reply::Reply;
use super::state::{Page, PageKey, State};
use super::verdicts::{Terms, Together};
use super::view::{Scope, View};
use crate::digest::Sha256;
use crate::simple::{
    CoreMetadata, FileLink, ProjectPage, render_html, render_json, render_list_html, render_list_json,
};
use crate::store::{Listed, Provenance};
use crate::wheel::ProjectName;

/// How long a page may be used without asking again. A new release and a policy edit are seen within it; asking again costs
/// a 304, which takes the mirror no more than a look at two counters.
const PAGE_CACHING: &str = "max-age=60";

/// What the answer depends on.
const VARY: &str = "Accept, Accept-Encoding";

/// Pages below this size in bytes are not compressed: they fit one packet as they are.
const WORTH_COMPRESSING: usize = 1200;

/// What of a request's headers a page goes by.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) form: Form,
    pub(super) gzip: bool,
    pub(super) if_none_match: Option<String>,
}

/// `GET /{device}/simple/`: the projects of which the mirror holds files, whatever their verdicts.
pub(super) async fn projects(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    asked: Asked,
) -> Result<Reply, Refusal> {
    let id = view.scope.key(&in_force.device(&view.device)?.id);
    let projects = view.scope.projects();
    let key = PageKey { device: id, project: None, form: asked.form, gzip: asked.gzip };
    // The list does not depend on the policy, and that of a snapshot on nothing.
    let made_from = if projects.is_some() { (0, 0, 0) } else { (state.store.revision(), 0, 0) };
    let page = page(state, key, made_from, |state| {
        Ok(Made::List(match projects {
            Some(projects) => projects,
            None => state.store.projects(true)?,
        }))
    });
    Ok(reply(&asked, &*page.await?))
}

/// `GET /{device}/simple/{project}/`: the held wheels that the device may install.
///
/// Where every wheel is refused the page is empty but its status is still 200, for the project is known; the reason of its
/// project status says what was refused. Where one file name stands for two digests, the file that was seen first is listed.
pub(super) async fn project(
    state: &Arc<State>,
    in_force: &Arc<InForce>,
    view: &View,
    project: ProjectName,
    asked: Asked,
) -> Result<Reply, Refusal> {
    let device = in_force.device(&view.device)?;
    let scope = view.scope.clone();
    let key = PageKey {
        device: scope.key(&device.id),
        project: Some(project.clone()),
        form: asked.form,
        gzip: asked.gzip,
    };
    let offered = state.offered(in_force, view, &project).await?;
    let offers = offered.as_ref().map(|offered| Arc::clone(&offered.offers)).unwrap_or_default();
    let outdated = offered.and_then(|offered| offered.outdated);
    let fresh = state.verdicts.fresh(&project, Terms { device, in_force, scope: &scope });
    let id = device.id.clone();
    let together = if let Some(together) = fresh {
        together
    } else {
        let (in_force, id, project) = (Arc::clone(in_force), id.clone(), project.clone());
        let (turn, scope) = (key.clone(), scope.clone());
        let (is_offered, outdated) = (!offers.files.is_empty() || offers.waiting > 0, outdated.clone());
        let find = move |state: &State| {
            // As with pages: what several clients ask for at once is made once.
            let _turn = state.turn(&turn);
            if !is_offered && state.store.count(&project)?.0 == 0 {
                return Err(nothing_known(state, &project, &scope, outdated.as_ref())?);
            }
            let device = in_force.device(&id)?;
            Ok(state.verdicts.together(&project, Terms { device, in_force: &in_force, scope: &scope })?)
        };
        state.blocking(find).await?
    };
    let made_from = (together.number, in_force.generation, offers.number);
    let (in_force, known_outdated) = (Arc::clone(in_force), outdated.clone());
    let page = page(state, key, made_from, move |state| {
        let mut files = state.store.listing(&project)?;
        files.retain(|file| scope.offers(file) || scope.knew(file.held, &file.provenance));
        if files.is_empty() && offers.files.is_empty() && offers.waiting == 0 {
            return Err(nothing_known(state, &project, &scope, known_outdated.as_ref())?);
        }
        let terms = Terms { device: in_force.device(&id)?, in_force: &in_force, scope: &scope };
        project_page(state, project, files, (&together, &offers), terms).map(Made::Page)
    });
    let mut reply = reply(&asked, &*page.await?);
    if let Some(outdated) = &outdated {
        pulled::warn(&mut reply, outdated);
    }
    Ok(reply)
}

/// What to answer for a project of which nothing is known. Blocks.
fn nothing_known(
    state: &State,
    project: &ProjectName,
    scope: &Scope,
    outdated: Option<&Outdated>,
) -> Result<Refusal, Refusal> {
    match outdated {
        Some(outdated) => Ok(pulled::unreached(outdated)),
        None => state.no_such_project(project, scope),
    }
}

/// What a page is rendered from.
enum Made {
    List(Vec<ProjectName>),
    Page(ProjectPage),
}

/// The page of that key: the one that is kept if nothing changed since, else a new one.
async fn page(
    state: &Arc<State>,
    key: PageKey,
    made_from: (u64, u64, u64),
    make: impl FnOnce(&State) -> Result<Made, Refusal> + Send + 'static,
) -> Result<Arc<Page>, Refusal> {
    let fresh = move |page: &Arc<Page>| page.made_from == made_from;
    if let Some(page) = state.pages.find(&key).filter(fresh) {
        return Ok(page);
    }
    state
        .blocking(move |state| {
            // Clients that ask for one new page at once wait for the first of them to make it.
            let _turn = state.turn(&key);
            if let Some(page) = state.pages.find(&key).filter(fresh) {
                return Ok(page);
            }
            let keep = |key: PageKey, etag: String, body: Bytes| {
                let weight = body.len().saturating_add(512);
                let page = Arc::new(Page { made_from, etag, body });
                state.pages.keep(key, Arc::clone(&page), weight);
                page
            };
            // The other form of it is not kept along: clients of one site ask for one of both.
            let other = state.pages.find(&PageKey { gzip: !key.gzip, ..key.clone() }).filter(fresh);
            let (etag, body) = match other {
                Some(other) if other.is_compressed() => (other.plain_etag(), inflate(&other.body)?),
                Some(other) => (other.etag.clone(), other.body.clone()),
                None => {
                    let body = Bytes::from(render(make(state)?, key.form));
                    let digest = Sha256::of(&body).to_string();
                    (format!("\"{}\"", digest.get(..32).unwrap_or_default()), body)
                }
            };
            if !key.gzip || body.len() < WORTH_COMPRESSING {
                return Ok(keep(key, etag, body));
            }
            let page = Page { made_from, etag, body };
            let (etag, body) = (page.compressed_etag(), compress(&page.body)?);
            Ok(keep(key, etag, body))
        })
        .await
}

fn render(made: Made, form: Form) -> String {
    match (made, form) {
        (Made::List(names), Form::Json) => render_list_json(&names),
        (Made::List(names), Form::Html | Form::HtmlV1) => render_list_html(&names),
        (Made::Page(page), Form::Json) => render_json(&page),
        (Made::Page(page), Form::Html | Form::HtmlV1) => render_html(&page),
    }
}

fn compress(bytes: &[u8]) -> Result<Bytes, Refusal> {
    let buffer = Vec::with_capacity(bytes.len() / 3);
    // Without a time in its header the same page gives the same bytes.
    let mut encoder = GzBuilder::new().mtime(0).write(buffer, Compression::default());
    std::io::Write::write_all(&mut encoder, bytes)?;
    Ok(Bytes::from(encoder.finish()?))
}

/// The page that [`compress`] made these bytes of.
fn inflate(bytes: &[u8]) -> Result<Bytes, Refusal> {
    let mut page = Vec::with_capacity(bytes.len().saturating_mul(5));
    std::io::Read::read_to_end(&mut GzDecoder::new(bytes), &mut page)?;
    Ok(Bytes::from(page))
}

fn reply(asked: &Asked, page: &Page) -> Reply {
    let mut reply = if range::names(asked.if_none_match.as_deref(), &page.etag) {
        Reply::empty(StatusCode::NOT_MODIFIED)
    } else {
        let mut reply = Reply::bytes(asked.form.content_type(), page.body.clone());
        if page.is_compressed() {
            reply.set(header::CONTENT_ENCODING, "gzip");
        }
        reply
    };
    reply.set(header::ETAG, &page.etag);
    reply.set(header::CACHE_CONTROL, PAGE_CACHING);
    reply.set(header::VARY, VARY);
    reply
}

/// The page of a project for a device. Blocks.
///
/// Facts are read for those files alone that were not judged before, one at a time: those of a large project weigh more than
/// all else that the mirror has in memory.
fn project_page(
    state: &State,
    project: ProjectName,
    files: Vec<Listed>,
    (together, offers): (&Together, &Offers),
    terms: Terms<'_>,
) -> Result<ProjectPage, Refusal> {
    let Terms { device, scope, .. } = terms;
    let count = files.len();
    let mut looked_at: HashSet<(Sha256, String)> = HashSet::new();
    let mut listed: Vec<Listed> = Vec::with_capacity(count);
    let mut by_name: HashMap<String, usize> = HashMap::with_capacity(count);
    let mut refused: Vec<String> = Vec::new();
    let mut hidden: Vec<String> = Vec::new();
    for file in files {
        if !offers.files.is_empty() {
            looked_at.insert((file.sha256, file.file.clone()));
        }
        let frozen = scope.offers(&file);
        if let Some(reason) = state.verdicts.refusal(&file, together, terms)? {
            let why = format!("{}: {}", file.file, reason.text);
            if frozen { &mut hidden } else { &mut refused }.push(why);
            continue;
        }
        if !frozen {
            continue;
        }
        // Without METADATA no `.metadata` could be served, and no installer can use the wheel.
        let can_be_had = file.held || offers.find(&file.sha256, &file.file).is_some();
        if !can_be_had || file.metadata_sha256.is_none() {
            continue;
        }
        match by_name.get(&file.file).and_then(|place| listed.get_mut(*place)) {
            Some(other) if file.provenance.first_seen < other.provenance.first_seen => *other = file,
            Some(_) => {}
            None => {
                by_name.insert(file.file.clone(), listed.len());
                listed.push(file);
            }
        }
    }
    let unseen = offers.files.iter().filter(|offer| {
        let file = &offer.name.text;
        offer.listed && !by_name.contains_key(file) && !looked_at.contains(&(offer.sha256, file.clone()))
    });
    let unseen: Vec<FileLink> = unseen.map(link_of_offer).collect();
    let status = match scope.note(&hidden) {
        _ if listed.is_empty() && unseen.is_empty() => {
            let why = hidden.into_iter().chain(refused).next();
            Some(why_empty(count, &device.id, why, offers.waiting))
        }
        note => note,
    };
    let status = status.map(|why| ("active".to_owned(), Some(why)));
    let files = listed.into_iter().map(link).chain(unseen).collect();
    Ok(ProjectPage { name: Some(project), files, status })
}

/// Why a page lists nothing: the first reason of the newest refused file.
fn why_empty(count: usize, device: &str, refused: Option<String>, waiting: usize) -> String {
    let why = match refused {
        Some(why) if count == 1 => format!("the one known file does not run on {device}; {why}"),
        Some(why) => format!("none of the {count} known files is held here and runs on {device}; {why}"),
        None => format!("no file that runs on {device} is held here yet"),
    };
    match waiting {
        0 => why,
        1 => format!("{why}; 1 file is being fetched and inspected: ask again later"),
        more => format!("{why}; {more} files are being fetched and inspected: ask again later"),
    }
}

/// A file that is inspected when it is asked for.
fn link_of_offer(offer: &Offer) -> FileLink {
    let text = &offer.name.text;
    let time = offer.file.upload_time.as_deref().and_then(|time| time.parse().ok());
    FileLink {
        url: format!("../../files/{}/{}", offer.sha256, utf8_percent_encode(text, ESCAPED)),
        filename: text.clone(),
        hashes: BTreeMap::from([("sha256".to_owned(), offer.sha256.to_string())]),
        requires_python: offer.file.requires_python.clone().filter(|text| !text.trim().is_empty()),
        size: offer.file.size,
        upload_time: time.map(written),
        yanked: offer.file.yanked.clone(),
        core_metadata: match offer.file.core_metadata {
            CoreMetadata::Hashed(sha256) => CoreMetadata::Hashed(sha256),
            // Where the upstream has none, it is read at the wheel's end, or from the whole wheel.
            CoreMetadata::Offered | CoreMetadata::Absent => CoreMetadata::Offered,
        },
    }
}

fn link(file: Listed) -> FileLink {
    let upload_time = upload_time(&file.provenance);
    FileLink {
        url: format!("../../files/{}/{}", file.sha256, utf8_percent_encode(&file.file, ESCAPED)),
        filename: file.file,
        hashes: BTreeMap::from([("sha256".to_owned(), file.sha256.to_string())]),
        requires_python: file.requires_python.filter(|text| !text.trim().is_empty()),
        size: Some(file.size),
        upload_time,
        yanked: file.provenance.yanked,
        core_metadata: file.metadata_sha256.map_or(CoreMetadata::Absent, CoreMetadata::Hashed),
    }
}

/// When the file was uploaded, in the one form that PEP 700 allows. A file that was added by hand was uploaded when it was
/// added; of a mirrored one whose upstream does not say, nothing is said.
fn upload_time(provenance: &Provenance) -> Option<String> {
    let added = (provenance.upstream == "local").then_some(&provenance.first_seen);
    Some(written(provenance.upload_time.as_ref().or(added)?.parse().ok()?))
}

fn written(time: jiff::Timestamp) -> String {
    let form = if time.subsec_nanosecond() == 0 { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
    time.strftime(form).to_string()
}
