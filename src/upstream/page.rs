//! Project pages and project lists of an upstream, whatever form its URL has.
//!
//! People write down an index's URL in several ways: the simple index itself (`…/simple/`), a devpi index whose pages lie below
//! `+simple/` (`…/jp6/cu126`), a folder with a page per project (`…/whl/cu126/`), a plain listing of files. For a URL that does
//! not end in `simple/` the forms are tried in this order, and the one that answers is kept for the pass.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::SystemTime;

use http::header;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use url::Url;

use super::client::{Client, Purpose};
use super::error::{Error, shown, without_credentials};
use super::index::{Kind, Upstream};
use super::inward::turns_inward;
use crate::digest::Sha256;
use crate::simple::{self, FileLink, ParsedPage};
use crate::wheel::ProjectName;

/// Largest index page that is read, uncompressed; the largest of the public index has some 30 MiB.
const LARGEST_PAGE: u64 = 64 * 1024 * 1024;

/// Largest list of projects; that of the public index has some 40 MiB.
const LARGEST_LIST: u64 = 256 * 1024 * 1024;

/// JSON where the index has it; devpi answers 415 to a request without one of these.
const ACCEPT: &str =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// Statuses that say "not in this place", rather than "not now" or "not for you".
const ELSEWHERE: [u16; 6] = [400, 404, 405, 406, 410, 415];

/// A file that an upstream lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// What the page says.
    pub file: FileLink,
    /// Where the file is, absolute, with its query string.
    pub url: Url,
}

impl Link {
    /// The URL under which the file is remembered: without credentials, and without a query, which may be signed anew each time.
    pub fn stable_url(&self) -> String {
        let mut url = without_credentials(&self.url);
        url.set_query(None);
        url.set_fragment(None);
        url.into()
    }
}

/// What an upstream lists for a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Files, in page order.
    pub files: Vec<Link>,
    /// Number of links on the page that lead to no distribution file.
    pub dropped: u64,
}

/// Where project pages lie below an upstream's URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Direct,
    PlusSimple,
    Simple,
    Flat,
}

impl Form {
    fn below(self, base: &Url) -> Result<Url, Error> {
        let folder = match self {
            Self::Direct | Self::Flat => "",
            Self::PlusSimple => "+simple/",
            Self::Simple => "simple/",
        };
        join(base, folder)
    }
}

/// An upstream that is asked during one pass.
#[derive(Debug)]
pub struct Source {
    /// Which upstream.
    pub upstream: Upstream,
    client: Client,
    cache: Option<PathBuf>,
    form: Mutex<Option<Form>>,
    flat: OnceCell<Option<Listing>>,
}

impl Source {
    /// An upstream, asked through a client; pages are cached in a folder, if one is given.
    pub fn new(upstream: Upstream, client: Client, cache: Option<PathBuf>) -> Self {
        let path = upstream.url.path();
        let form = match upstream.kind {
            Kind::Flat => Some(Form::Flat),
            Kind::Simple if path.trim_end_matches('/').ends_with("simple") => Some(Form::Direct),
            Kind::Simple => None,
        };
        Self { upstream, client, cache, form: Mutex::new(form), flat: OnceCell::new() }
    }

    /// What the upstream lists for a project; none if it does not know it.
    pub async fn project(&self, name: &ProjectName) -> Result<Option<Listing>, Error> {
        match self.known_form() {
            Some(Form::Flat) => self.project_of_flat(name).await,
            Some(form) => self.project_at(form, name).await,
            None => self.project_at_any(name).await,
        }
    }

    /// All projects that the upstream lists.
    pub async fn projects(&self) -> Result<Vec<ProjectName>, Error> {
        let forms: &[Form] = match self.known_form() {
            Some(Form::Flat) => {
                let listing = self.flat().await?;
                let mut names: Vec<_> =
                    listing.iter().flat_map(|listing| &listing.files).filter_map(project_of).collect();
                names.sort();
                names.dedup();
                return Ok(names);
            }
            Some(Form::Direct) => &[Form::Direct],
            Some(Form::PlusSimple) => &[Form::PlusSimple],
            Some(Form::Simple) => &[Form::Simple],
            None => &[Form::PlusSimple, Form::Simple, Form::Direct],
        };
        let mut missing = None;
        for form in forms {
            let url = form.below(&self.upstream.url)?;
            match self.client.retrying(|| self.body(&url, LARGEST_LIST)).await {
                Ok(page) => {
                    let names = if page.is_json {
                        simple::parse_list_json(&page.body)
                            .map_err(|source| Error::Page { url: shown(&url), source })?
                    } else {
                        simple::parse_list_html(&String::from_utf8_lossy(&page.body))
                    };
                    return Ok(names);
                }
                Err(Error::Status { status, .. }) if ELSEWHERE.contains(&status) => {
                    missing = Some((shown(&url), status));
                }
                Err(error) => return Err(error),
            }
        }
        let (url, status) = missing.unwrap_or_else(|| (shown(&self.upstream.url), 404));
        Err(Error::NoListing { upstream: self.upstream.name.clone(), url, status })
    }

    fn known_form(&self) -> Option<Form> {
        *self.form.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn learn(&self, form: Form) {
        *self.form.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(form);
    }

    async fn project_at_any(&self, name: &ProjectName) -> Result<Option<Listing>, Error> {
        let mut empty = None;
        for form in [Form::Direct, Form::PlusSimple, Form::Simple] {
            match self.project_at(form, name).await {
                Ok(Some(listing)) if listing.files.is_empty() => empty = Some(listing),
                Ok(Some(listing)) => {
                    self.learn(form);
                    return Ok(Some(listing));
                }
                // A page for people, not an index page: look on.
                Ok(None) | Err(Error::ContentType { .. } | Error::Page { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if let Some(listing) = self.flat().await?
            && !listing.files.is_empty()
        {
            self.learn(Form::Flat);
            return self.project_of_flat(name).await;
        }
        Ok(empty)
    }

    async fn project_at(&self, form: Form, name: &ProjectName) -> Result<Option<Listing>, Error> {
        let url = join(&form.below(&self.upstream.url)?, &format!("{name}/"))?;
        self.listing(&url).await
    }

    /// The page at a URL; none where there is none.
    async fn listing(&self, url: &Url) -> Result<Option<Listing>, Error> {
        match self.client.retrying(|| self.body(url, LARGEST_PAGE)).await {
            Ok(page) => parse(&page).map(Some),
            Err(Error::Status { status, .. }) if ELSEWHERE.contains(&status) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn project_of_flat(&self, name: &ProjectName) -> Result<Option<Listing>, Error> {
        let Some(listing) = self.flat().await? else { return Ok(None) };
        let files: Vec<Link> =
            listing.files.iter().filter(|link| project_of(link).as_ref() == Some(name)).cloned().collect();
        Ok((!files.is_empty()).then_some(Listing { files, dropped: listing.dropped }))
    }

    /// The files of all folders of a flat upstream, fetched once.
    async fn flat(&self) -> Result<Option<&Listing>, Error> {
        let listing = self
            .flat
            .get_or_try_init(|| async {
                let mut all: Option<Listing> = None;
                for folder in &self.upstream.folders {
                    match self.listing(&join(&self.upstream.url, folder)?).await {
                        Ok(Some(listing)) => {
                            let all = all.get_or_insert_default();
                            all.files.extend(listing.files);
                            all.dropped = all.dropped.saturating_add(listing.dropped);
                        }
                        Ok(None) | Err(Error::ContentType { .. } | Error::Page { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(all)
            })
            .await?;
        Ok(listing.as_ref())
    }

    /// Asks for a page, with the validator of the cached one.
    async fn body(&self, url: &Url, limit: u64) -> Result<CachedPage, Error> {
        let cached = self.cached(url);
        let mut headers = vec![(header::ACCEPT, ACCEPT.to_owned())];
        if let Some(CachedPage { head, .. }) = &cached {
            if !head.etag.is_empty() {
                headers.push((header::IF_NONE_MATCH, head.etag.clone()));
            }
            if !head.last_modified.is_empty() {
                headers.push((header::IF_MODIFIED_SINCE, head.last_modified.clone()));
            }
        }
        let answer = self.client.get(Purpose::Page, url, &headers).await?;
        match (answer.status(), cached) {
            (200, _) => {}
            (304, Some(cached)) => {
                self.touch(url);
                return Ok(cached);
            }
            _ => return Err(answer.status_error()),
        }
        let content_type = answer.header(&header::CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        let is_json = match media_type {
            "application/vnd.pypi.simple.v1+json" => true,
            "application/vnd.pypi.simple.v1+html" | "text/html" | "application/xhtml+xml" => false,
            found => {
                return Err(Error::ContentType { url: shown(url), found: found.chars().take(80).collect() });
            }
        };
        let text = |name| answer.header(name).unwrap_or_default().to_owned();
        let (etag, last_modified) = (text(&header::ETAG), text(&header::LAST_MODIFIED));
        let from = answer.url().clone();
        let body = answer.body(limit).await?;
        let page = CachedPage {
            head: CacheHead { etag, last_modified, from, is_json, sha256: Sha256::of(&body) },
            is_json,
            body,
        };
        if let Err(error) = self.cache(url, &page) {
            tracing::warn!(%error, "an index page cannot be cached");
        }
        Ok(page)
    }

    /// The copy of a project's page, and when it was last known to be that of the upstream. Blocks.
    pub fn copy(&self, name: &ProjectName) -> Option<(Listing, SystemTime)> {
        let forms = match self.known_form() {
            // The copies of its listings are not told apart by project.
            Some(Form::Flat) => return self.copy_of_flat(name),
            Some(form) => vec![form],
            None => vec![Form::Direct, Form::PlusSimple, Form::Simple],
        };
        let copy = |form: Form| {
            let url = join(&form.below(&self.upstream.url).ok()?, &format!("{name}/")).ok()?;
            let (page, time) = self.copied(&url)?;
            Some((parse(&page).ok()?, time))
        };
        forms.into_iter().filter_map(copy).find(|(listing, _)| !listing.files.is_empty())
    }

    fn copy_of_flat(&self, name: &ProjectName) -> Option<(Listing, SystemTime)> {
        let (mut all, mut oldest) = (Listing::default(), None::<SystemTime>);
        for folder in &self.upstream.folders {
            let Some((page, time)) = self.copied(&join(&self.upstream.url, folder).ok()?) else { continue };
            let files = parse(&page).ok()?.files.into_iter();
            all.files.extend(files.filter(|link| project_of(link).as_ref() == Some(name)));
            oldest = Some(oldest.map_or(time, |oldest| oldest.min(time)));
        }
        oldest.filter(|_| !all.files.is_empty()).map(|time| (all, time))
    }

    fn copied(&self, url: &Url) -> Option<(CachedPage, SystemTime)> {
        let time = fs_err::metadata(self.cache_file(url)?).ok()?.modified().ok()?;
        Some((self.cached(url)?, time))
    }

    /// Whether all that it lists is fetched at once, and kept for as long as this value is.
    pub fn is_flat(&self) -> bool {
        self.known_form() == Some(Form::Flat)
    }

    /// Notes that a copy was found to be that of the upstream now.
    fn touch(&self, url: &Url) {
        let Some(file) = self.cache_file(url) else { return };
        let touched = fs_err::OpenOptions::new()
            .append(true)
            .open(file)
            .and_then(|file| file.into_parts().0.set_modified(SystemTime::now()));
        if let Err(error) = touched {
            tracing::debug!(%error, "a copy of an index page keeps its old time");
        }
    }

    fn cache_file(&self, url: &Url) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join(Sha256::of(url.as_str().as_bytes()).to_string()))
    }

    /// The cached page of a URL, if it is whole.
    fn cached(&self, url: &Url) -> Option<CachedPage> {
        let bytes = fs_err::read(self.cache_file(url)?).ok()?;
        let end = memchr::memchr(b'\n', &bytes)?;
        let head: CacheHead = serde_json::from_slice(bytes.get(..end)?).ok()?;
        let body = bytes.get(end.checked_add(1)?..)?.to_vec();
        (Sha256::of(&body) == head.sha256).then_some(CachedPage { is_json: head.is_json, head, body })
    }

    fn cache(&self, url: &Url, page: &CachedPage) -> std::io::Result<()> {
        let (Some(dir), Some(file)) = (&self.cache, self.cache_file(url)) else { return Ok(()) };
        fs_err::create_dir_all(dir)?;
        let mut bytes = serde_json::to_vec(&page.head)?;
        bytes.push(b'\n');
        bytes.extend_from_slice(&page.body);
        // Not synced: a page that a power cut leaves torn fails its digest, and is fetched anew.
        let temporary = tempfile::NamedTempFile::new_in(dir)?;
        fs_err::write(temporary.path(), &bytes)?;
        temporary.persist(file).map_err(|error| error.error)?;
        Ok(())
    }
}

/// A page, as it came.
struct CachedPage {
    head: CacheHead,
    is_json: bool,
    body: Vec<u8>,
}

/// First line of a cached page.
#[derive(Serialize, Deserialize)]
struct CacheHead {
    /// Validators; empty where the upstream gave none.
    etag: String,
    #[serde(default)]
    last_modified: String,
    /// Where the page came from, after redirects: links are relative to it.
    from: Url,
    is_json: bool,
    sha256: Sha256,
}

fn parse(page: &CachedPage) -> Result<Listing, Error> {
    let from = &page.head.from;
    let ParsedPage { page, base, dropped } = if page.is_json {
        simple::parse_json(&page.body).map_err(|source| Error::Page { url: shown(from), source })?
    } else {
        simple::parse_html(&String::from_utf8_lossy(&page.body))
    };
    let base = base.and_then(|base| from.join(&base).ok()).unwrap_or_else(|| from.clone());
    let total = page.files.len() as u64;
    let files: Vec<Link> = page
        .files
        .into_iter()
        .filter_map(|file| {
            let url = base.join(&file.url).ok()?;
            // Without a digest the bytes would be whoever's is on the way.
            let is_open = from.scheme() == "https" && url.scheme() == "http" && file.sha256().is_none();
            let usable = matches!(url.scheme(), "http" | "https") && !is_open && !turns_inward(from, &url);
            usable.then(|| Link { url: without_credentials(&url), file })
        })
        .collect();
    let unusable = total.saturating_sub(files.len() as u64);
    Ok(Listing { files, dropped: dropped.saturating_add(unusable) })
}

/// The project that a file's name states.
fn project_of(link: &Link) -> Option<ProjectName> {
    let name = &link.file.filename;
    match name.strip_suffix(".whl") {
        Some(stem) => stem.split('-').next()?.parse().ok(),
        None => name.rsplit_once('-')?.0.parse().ok(),
    }
}

fn join(base: &Url, path: &str) -> Result<Url, Error> {
    base.join(path)
        .map_err(|error| Error::Url { text: format!("{}{path}", shown(base)), why: error.to_string() })
}
