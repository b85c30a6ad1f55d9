//! HTTP towards upstreams: time-outs, retries, redirects, credentials. The one file that knows reqwest.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName};
use url::Url;

use super::credentials::Credentials;
use super::error::{Error, shown, without_credentials};
use super::inward::{self, turns_inward};

/// Most redirects in a row; pip follows 30, content networks need two or three.
const MOST_REDIRECTS: usize = 10;

/// The longest time that an upstream can ask us to wait before we give up, as pages say with `Retry-After`.
const LONGEST_WAIT: Duration = Duration::from_mins(2);

/// The longest pause of our own between two tries.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// How many bytes of a body earn it a further second, up to the time that it may pause: else one that comes by the byte would
/// hold up everything behind it for as long as it likes.
const SLOWEST: u32 = 4 << 10;

/// The longest time for the whole of a page, or of a file of metadata: 64 MiB come by 2 Mbit/s meanwhile.
const LONGEST_BODY: Duration = Duration::from_mins(5);

/// How upstreams are asked.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time for a connection to be made.
    pub connect_timeout: Duration,
    /// Time without any byte after which an answer counts as broken; so does one that comes slower than 4 KiB a second for longer.
    pub read_timeout: Duration,
    /// Further tries after the first.
    pub retries: u32,
    /// Pause before the first further try; each later one is twice as long.
    pub backoff: Duration,
    /// PEM file with certificate authorities to trust besides the system's.
    pub ca: Option<PathBuf>,
    /// Logins.
    pub credentials: Credentials,
    /// The URLs that are configured, of which alone the host may be a name for this machine; none where every name may.
    pub own: Option<Vec<Url>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(15),
            read_timeout: Duration::from_mins(1),
            retries: 4,
            backoff: Duration::from_millis(500),
            ca: None,
            credentials: Credentials::default(),
            own: None,
        }
    }
}

/// Asks upstreams. Cheap to clone; connections are shared.
#[derive(Debug, Clone)]
pub struct Client {
    /// Takes compressed answers.
    pages: reqwest::Client,
    /// Takes bytes as they are.
    files: reqwest::Client,
    credentials: Arc<Credentials>,
    retries: u32,
    backoff: Duration,
    read_timeout: Duration,
}

/// Which kind of answer a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An index page, which may be compressed on the way.
    Page,
    /// A file, whose bytes count.
    File,
}

/// The head of an answer, whose body is still to be read.
#[derive(Debug)]
pub(super) struct Answer {
    response: reqwest::Response,
    /// How long the body may still keep us waiting, and the most that this is.
    patience: Duration,
    most: Duration,
    /// Bytes of the body that came.
    received: u64,
}

/// Looks names up. Others than those of `own` do not lead to this machine.
#[derive(Debug)]
struct Names {
    own: Vec<Url>,
}

impl reqwest::dns::Resolve for Names {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let may_be_here = inward::may_be_here(name.as_str(), &self.own);
        Box::pin(async move {
            let addresses = inward::look_up(name.as_str(), may_be_here).await?;
            Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

impl Client {
    /// Makes a client. Proxies are those of the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`).
    pub fn new(options: Options) -> Result<Self, Error> {
        let mut certificates = Vec::new();
        if let Some(file) = &options.ca {
            let io = |source| Error::Io { path: file.clone(), source };
            let pem = fs_err::read(file).map_err(io)?;
            certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|source| Error::Setup {
                what: format!("{}: not a PEM file", file.display()),
                source,
            })?;
            if certificates.is_empty() {
                return Err(io(std::io::Error::other("holds no certificate")));
            }
        }
        let names = options.own.map(|own| Arc::new(Names { own }));
        let builder = || {
            let builder = reqwest::Client::builder();
            let builder = match &names {
                Some(names) => builder.dns_resolver(Arc::clone(names)),
                None => builder,
            };
            builder
                .user_agent(concat!("jetwheel/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(options.connect_timeout)
                .read_timeout(options.read_timeout)
                .redirect(reqwest::redirect::Policy::none())
                .retry(reqwest::retry::never())
                .referer(false)
        };
        let build = |compressed: bool| {
            let with = || if compressed { builder() } else { builder().no_gzip() };
            with().tls_certs_merge(certificates.clone()).build().or_else(|error| {
                // A machine without any certificate authority can still reach plain http, and hosts of the given authority.
                tracing::warn!(%error, "the system's certificate authorities cannot be used");
                with().tls_certs_only(certificates.clone()).build()
            })
        };
        let setup = |source| Error::Setup { what: "HTTP client".to_owned(), source };
        Ok(Self {
            pages: build(true).map_err(setup)?,
            files: build(false).map_err(setup)?,
            credentials: Arc::new(options.credentials),
            retries: options.retries,
            backoff: options.backoff,
            read_timeout: options.read_timeout,
        })
    }

    /// Asks once, following redirects.
    ///
    /// Each host receives its own login alone. A redirect from https to http is not followed, nor one to another scheme.
    pub(super) async fn get(
        &self,
        purpose: Purpose,
        url: &Url,
        headers: &[(HeaderName, String)],
    ) -> Result<Answer, Error> {
        self.ask(Method::GET, purpose, url, headers).await
    }

    /// Asks for the head of a file's answer alone.
    pub(super) async fn head(&self, url: &Url) -> Result<Answer, Error> {
        self.ask(Method::HEAD, Purpose::File, url, &[]).await
    }

    async fn ask(
        &self,
        method: Method,
        purpose: Purpose,
        url: &Url,
        headers: &[(HeaderName, String)],
    ) -> Result<Answer, Error> {
        let http = match purpose {
            Purpose::Page => &self.pages,
            Purpose::File => &self.files,
        };
        let mut at = without_credentials(url);
        at.set_fragment(None);
        check_scheme(&at)?;
        for _hop in 0..=MOST_REDIRECTS {
            let mut request = http.request(method.clone(), at.clone());
            for (name, value) in headers {
                request = request.header(name, value);
            }
            if purpose == Purpose::File {
                request = request.header(header::ACCEPT_ENCODING, "identity");
            }
            if let Some(login) = self.credentials.for_url(&at) {
                request = request.basic_auth(&login.username, Some(&login.password));
            }
            let response = request.send().await.map_err(|error| broken(&at, error))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(self.answer(response));
            }
            let to = redirect_target(&at, response.headers())?;
            tracing::debug!(from = shown(&at), to = shown(&to), "redirect");
            at = to;
        }
        Err(Error::Redirect { url: shown(url), to: shown(&at), why: "there are too many of them" })
    }

    /// Asks the API of a mirror once: with a token, or else with the login of its host. No redirect is followed, since it would
    /// take the token elsewhere. Yields the status and the body.
    pub async fn call(
        &self,
        method: Method,
        url: &Url,
        token: Option<&str>,
        body: Option<Vec<u8>>,
        limit: u64,
    ) -> Result<(u16, Vec<u8>), Error> {
        let url = without_credentials(url);
        check_scheme(&url)?;
        let mut request = self.pages.request(method, url.clone()).header(header::ACCEPT, "application/json");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        } else if let Some(login) = self.credentials.for_url(&url) {
            request = request.basic_auth(&login.username, Some(&login.password));
        }
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| broken(&url, error))?;
        let answer = self.answer(response);
        Ok((answer.status(), answer.body(limit).await?))
    }

    const fn answer(&self, response: reqwest::Response) -> Answer {
        Answer { response, patience: self.read_timeout, most: self.read_timeout, received: 0 }
    }

    /// Does something until it succeeds, fails for good, or has failed too often.
    pub(super) async fn retrying<T, Doing>(&self, mut once: impl FnMut() -> Doing) -> Result<T, Error>
    where
        Doing: Future<Output = Result<T, Error>>,
    {
        let mut failures = 0;
        loop {
            match once().await {
                Ok(value) => return Ok(value),
                Err(error) => {
                    self.pause(error, failures).await?;
                    failures = failures.saturating_add(1);
                }
            }
        }
    }

    /// Waits before the next try, or gives the error back if there shall be none.
    pub(super) async fn pause(&self, error: Error, failures: u32) -> Result<(), Error> {
        if failures >= self.retries || !error.is_transient() {
            return Err(error);
        }
        let wait = match &error {
            Error::Status { retry_after: Some(wait), .. } if *wait > LONGEST_WAIT => return Err(error),
            Error::Status { retry_after: Some(wait), .. } => (*wait).max(jittered(self.backoff)),
            _ => {
                let doubled = self.backoff.saturating_mul(2_u32.saturating_pow(failures));
                jittered(doubled.min(LONGEST_BACKOFF))
            }
        };
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(error = &error as &dyn std::error::Error, wait_ms, "trying again");
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

impl Answer {
    /// The status.
    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// A header's value, where it is text.
    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Where the answer came from, after redirects.
    pub(super) fn url(&self) -> &Url {
        self.response.url()
    }

    /// The error that an unexpected status is.
    pub(super) fn status_error(&self) -> Error {
        let retry_after = self.header(&header::RETRY_AFTER).and_then(retry_after);
        Error::Status { url: shown(self.url()), status: self.status(), retry_after }
    }

    /// The next piece of the body. The time between two calls does not count against the upstream.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let began = Instant::now();
        let Ok(chunk) = tokio::time::timeout(self.patience, self.response.chunk()).await else {
            return Err(self.slow());
        };
        let chunk = chunk.map_err(|error| Error::Connection {
            url: shown(self.response.url()),
            what: "the answer broke off",
            source: error.without_url(),
        })?;
        let length = chunk.as_ref().map_or(0, Bytes::len) as u64;
        self.received = self.received.saturating_add(length);
        let left = self.patience.saturating_sub(began.elapsed());
        self.patience = left.saturating_add(Duration::from_secs(length) / SLOWEST).min(self.most);
        Ok(chunk)
    }

    fn slow(&self) -> Error {
        Error::Slow { url: shown(self.url()), received: self.received }
    }

    /// The whole body, up to a limit.
    pub(super) async fn body(mut self, limit: u64) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        let end = tokio::time::Instant::now() + LONGEST_BODY;
        loop {
            let Ok(chunk) = tokio::time::timeout_at(end, self.chunk()).await else { return Err(self.slow()) };
            let Some(chunk) = chunk? else { return Ok(body) };
            if (body.len() as u64).saturating_add(chunk.len() as u64) > limit {
                return Err(Error::TooLarge { url: shown(self.url()), limit });
            }
            body.extend_from_slice(&chunk);
        }
    }
}

fn broken(url: &Url, error: reqwest::Error) -> Error {
    let what = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "cannot connect"
    } else {
        "no answer"
    };
    Error::Connection { url: shown(url), what, source: error.without_url() }
}

fn check_scheme(url: &Url) -> Result<(), Error> {
    match url.scheme() {
        "http" | "https" => Ok(()),
        scheme => {
            Err(Error::Url { text: shown(url), why: format!("scheme is {scheme}, expected http or https") })
        }
    }
}

fn redirect_target(from: &Url, headers: &HeaderMap) -> Result<Url, Error> {
    let location = headers.get(header::LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let refused = |to: String, why| Error::Redirect { url: shown(from), to, why };
    let Some(location) = location else { return Err(refused(String::new(), "it names no place")) };
    let Ok(to) = from.join(location) else {
        return Err(refused("a place that cannot be read".to_owned(), "it is no URL"));
    };
    let to = without_credentials(&to);
    if turns_inward(from, &to) {
        return Err(refused(shown(&to), "it leads to the mirror's own machine"));
    }
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Ok(to),
        ("https", "http") => Err(refused(shown(&to), "it leads from https to http")),
        _ => Err(refused(shown(&to), "its scheme is neither http nor https")),
    }
}

/// Reads `Retry-After`: seconds, or a date.
fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(value.trim()).ok()?.timestamp();
    Some(Duration::try_from(at.duration_since(jiff::Timestamp::now())).unwrap_or_default())
}

/// Between half and all of a duration, so that many clients do not come back at once.
fn jittered(longest: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    let half = longest / 2;
    let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
    half.saturating_add(Duration::from_micros(random.checked_rem(micros).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_keep_to_safe_schemes() {
        let lead = |from: &str, to: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, to.parse().unwrap());
            redirect_target(&from.parse().unwrap(), &headers)
                .map(String::from)
                .map_err(|error| error.to_string())
        };
        assert_eq!(lead("https://a.test/x/", "../y").unwrap(), "https://a.test/y");
        assert_eq!(lead("http://a.test/", "https://me:secret@b.test/").unwrap(), "https://b.test/");
        insta::assert_snapshot!(
            lead("https://a.test/?sig=secret", "http://a.test/z").unwrap_err(),
            @"https://a.test/?…: a redirect to http://a.test/z is not followed: it leads from https to http"
        );
        assert!(lead("http://a.test/", "file:///etc/passwd").is_err());
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(retry_after("Wed, 21 Oct 2065 07:28:00 GMT").unwrap() > LONGEST_WAIT);
        assert_eq!(retry_after("soon"), None);
    }
}
