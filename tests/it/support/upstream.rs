//! An upstream in this process: an index and its files, with faults on request. Plain HTTP/1.1 over a socket, so that an
//! answer can break off at any byte, which server libraries take care not to do.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use jetwheel::digest::Sha256;

/// What goes wrong once.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// A status without a body.
    Status(u16),
    /// The head promises all bytes, then the connection ends after so many.
    BreakAfter(usize),
    /// Status 200 with no bytes.
    Empty,
    /// A redirect.
    Redirect(String),
    /// The bytes after so many wait for a gate to be opened.
    Hold(usize, Gate),
}

/// What an upstream waits for, closed at first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let closed = |open: &mut bool| !*open;
        drop(self.0.1.wait_timeout_while(self.0.0.lock().unwrap(), HOLD_LIMIT, closed).unwrap());
    }
}

/// How long a gate stays closed at most.
const HOLD_LIMIT: Duration = Duration::from_mins(2);

/// A file that the upstream has.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// What the page says of its digest; none for nothing.
    pub(crate) sha256: Option<Sha256>,
    /// What goes wrong with the next requests, in order.
    pub(crate) faults: VecDeque<Fault>,
    /// Whether ranges are answered.
    pub(crate) ranges: bool,
    /// Attributes of its anchor.
    pub(crate) attributes: String,
    /// What stands behind the file name in its link, such as a query string.
    pub(crate) query: String,
    /// What is served beside it.
    pub(crate) metadata: Option<Vec<u8>>,
    /// Validator, changed with the bytes.
    pub(crate) etag: String,
}

/// A request that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Method.
    pub(crate) method: String,
    /// Path as it was on the wire.
    pub(crate) path: String,
    /// Headers, names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Served>,
    page_faults: VecDeque<Fault>,
    login: Option<String>,
    prefix: String,
    flat: bool,
    seen: Vec<Seen>,
    stopped: bool,
}

/// The upstream; it ends with its value.
#[derive(Debug)]
pub(crate) struct Upstream {
    scheme: &'static str,
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Upstream {
    /// Serves the wheels of a folder at `/simple/`.
    pub(crate) fn serving(folder: &Path) -> Self {
        let upstream = Self::start(None);
        upstream.add_all(folder);
        upstream
    }

    /// Serves the wheels of a folder over TLS, with the certificate of `tests/data/tls`.
    pub(crate) fn serving_tls(folder: &Path) -> Self {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let chain = CertificateDer::pem_file_iter(super::data("tls/server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(super::data("tls/server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        let upstream = Self::start(Some(Arc::new(config)));
        upstream.add_all(folder);
        upstream
    }

    fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { prefix: "/simple/".to_owned(), ..State::default() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.lock().unwrap().stopped {
                    break;
                }
                let shared = Arc::clone(&shared);
                let tls = tls.clone();
                thread::spawn(move || match tls {
                    None => answer(stream, &shared),
                    Some(config) => {
                        let connection = rustls::ServerConnection::new(config).unwrap();
                        answer(rustls::StreamOwned::new(connection, stream), &shared);
                    }
                });
            }
        });
        Self { scheme, port, state }
    }

    /// Adds the wheels of a folder.
    pub(crate) fn add_all(&self, folder: &Path) {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.extension().is_some_and(|extension| extension == "whl") {
                self.add(&name, fs_err::read(&path).unwrap());
            }
        }
    }

    /// Adds a file, or replaces its bytes.
    pub(crate) fn add(&self, name: &str, bytes: Vec<u8>) {
        let sha256 = Sha256::of(&bytes);
        let served = Served {
            sha256: Some(sha256),
            faults: VecDeque::new(),
            ranges: true,
            attributes: String::new(),
            query: String::new(),
            metadata: None,
            etag: format!("\"{sha256}\""),
            bytes,
        };
        self.state.lock().unwrap().files.insert(name.to_owned(), served);
    }

    /// Takes a file away.
    pub(crate) fn remove(&self, name: &str) {
        self.state.lock().unwrap().files.remove(name).unwrap();
    }

    /// Changes what is served of a file.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Served)) {
        change(self.state.lock().unwrap().files.get_mut(name).unwrap());
    }

    /// Lets the next requests for pages go wrong.
    pub(crate) fn page_faults(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().unwrap().page_faults.extend(faults);
    }

    /// Asks for a login (`user:password`) from now on.
    pub(crate) fn require(&self, login: &str) {
        self.state.lock().unwrap().login = Some(login.to_owned());
    }

    /// Puts project pages below another path, with slashes around it.
    pub(crate) fn move_to(&self, prefix: &str) {
        prefix.clone_into(&mut self.state.lock().unwrap().prefix);
    }

    /// Makes it a plain listing of files at that path, without digests.
    pub(crate) fn make_flat(&self, prefix: &str) {
        self.move_to(prefix);
        self.state.lock().unwrap().flat = true;
    }

    /// The URL of a path that begins with a slash.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://127.0.0.1:{}{path}", self.scheme, self.port)
    }

    /// All requests since the last call.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }

    /// Whether that path was asked for since requests were last taken.
    pub(crate) fn has_seen(&self, path: &str) -> bool {
        self.state.lock().unwrap().seen.iter().any(|seen| seen.path == path)
    }

    /// Takes no more connections: they are refused.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap().stopped = true;
        // Wakes the listener, so that it sees that; it is closed when it refuses.
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            thread::yield_now();
        }
    }

    /// Paths of the files that were asked for since the last call, in order, whole or from a place to their end.
    pub(crate) fn fetched(&self) -> Vec<String> {
        let seen = self.seen().into_iter();
        let part = |seen: &Seen| {
            let range = seen.headers.get("range").and_then(|range| range.strip_prefix("bytes="));
            range.is_some_and(|range| !range.ends_with('-'))
        };
        let files = seen.filter(|seen| seen.method == "GET" && seen.path.starts_with("/f/") && !part(seen));
        files.map(|seen| seen.path).filter(|path| !path.contains(".metadata")).collect()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.lock().unwrap().stopped = true;
        // Wakes the listener, so that it sees that.
        let _ended = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// One answer to be written.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    break_after: Option<usize>,
    hold: Option<(usize, Gate)>,
    /// What even the head waits for.
    silent: Option<Gate>,
}

impl Answer {
    fn of(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), break_after: None, hold: None, silent: None }
    }
}

fn answer(mut stream: impl Read + Write, state: &Mutex<State>) {
    let Some(seen) = receive(&mut stream) else { return };
    let answer = {
        let mut state = state.lock().unwrap();
        state.seen.push(seen.clone());
        choose(&mut state, &seen)
    };
    if let Some(gate) = &answer.silent {
        gate.wait();
    }
    let mut head = format!("HTTP/1.1 {} x\r\nConnection: close\r\n", answer.status);
    write!(head, "Content-Length: {}\r\n", answer.body.len()).unwrap();
    for (name, value) in &answer.headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    head.push_str("\r\n");
    let body = if seen.method == "HEAD" { &[][..] } else { &answer.body };
    let body = body.get(..answer.break_after.unwrap_or(body.len())).unwrap_or(body);
    let (first, gate) = match &answer.hold {
        Some((after, gate)) => (*after, Some(gate)),
        None => (body.len(), None),
    };
    let (first, rest) = body.split_at(first.min(body.len()));
    let mut write = |bytes: &[u8]| stream.write_all(bytes).and_then(|()| stream.flush());
    // A client may leave early.
    if write(&[head.as_bytes(), first].concat()).is_err() {
        return;
    }
    if let Some(gate) = gate {
        gate.wait();
        let _left = write(rest);
    }
}

fn receive(stream: &mut impl Read) -> Option<Seen> {
    let mut lines = BufReader::new(stream.take(1 << 20)).lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    // A proxy is asked with the whole URL.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.get(rest.find('/')?..)?.to_owned(),
        None => target.to_owned(),
    };
    let mut headers = BTreeMap::new();
    for line in lines {
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Some(Seen { method, path, headers })
}

fn choose(state: &mut State, seen: &Seen) -> Answer {
    if let Some(login) = &state.login {
        use base64::Engine as _;
        let wanted = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(login));
        if seen.headers.get("authorization") != Some(&wanted) {
            return Answer::of(401);
        }
    }
    if let Some(name) = seen.path.strip_prefix("/f/") {
        return file(state, name, seen);
    }
    let Some(place) = seen.path.strip_prefix(state.prefix.as_str()) else { return Answer::of(404) };
    match state.page_faults.pop_front() {
        Some(Fault::Status(status)) => {
            let mut answer = Answer::of(status);
            answer.headers.push(("Retry-After", "0".to_owned()));
            return answer;
        }
        Some(Fault::Redirect(to)) => {
            let mut answer = Answer::of(302);
            answer.headers.push(("Location", to));
            return answer;
        }
        Some(Fault::Hold(_, gate)) => {
            let mut answer = Answer::of(503);
            answer.silent = Some(gate);
            return answer;
        }
        _ => {}
    }
    let project = match (state.flat, place.strip_suffix('/')) {
        (true, _) if place.is_empty() => None,
        (false, Some(project)) if !project.contains('/') => Some(project),
        (false, _) if place.is_empty() => return list(state),
        _ => return Answer::of(404),
    };
    let depth = state.prefix.matches('/').count();
    let up = "../".repeat(if project.is_some() { depth } else { depth - 1 });
    let body = page(state, project, &up);
    if body.is_empty() {
        return Answer::of(404);
    }
    let etag = format!("\"{}\"", Sha256::of(body.as_bytes()));
    if seen.headers.get("if-none-match") == Some(&etag) {
        return Answer::of(304);
    }
    Answer {
        status: 200,
        headers: vec![("Content-Type", "text/html; charset=utf-8".to_owned()), ("ETag", etag)],
        body: body.into_bytes(),
        break_after: None,
        hold: None,
        silent: None,
    }
}

/// The list of all projects.
fn list(state: &State) -> Answer {
    let names = state.files.keys().map(|name| format!("<a href=\"{0}/\">{0}</a>", project_of(name)));
    let mut answer = Answer::of(200);
    answer.headers.push(("Content-Type", "text/html".to_owned()));
    answer.body = names.collect::<String>().into_bytes();
    answer
}

fn project_of(file: &str) -> String {
    file.split('-').next().unwrap().replace(['_', '.'], "-").to_lowercase()
}

/// The page of a project, or of all; `+` is encoded, as many indexes do.
fn page(state: &State, project: Option<&str>, up: &str) -> String {
    let mut body = String::new();
    for (name, served) in &state.files {
        if project.is_some_and(|project| project != project_of(name)) {
            continue;
        }
        let digest = match served.sha256.filter(|_| !state.flat) {
            Some(digest) => format!("#sha256={digest}"),
            None => String::new(),
        };
        let link = name.replace('+', "%2B");
        writeln!(body, "<a href=\"{up}f/{link}{}{digest}\" {}>{name}</a>", served.query, served.attributes)
            .unwrap();
    }
    body
}

fn file(state: &mut State, path: &str, seen: &Seen) -> Answer {
    let path = path.split('?').next().unwrap();
    let name = path.replace("%2B", "+");
    if let Some(name) = name.strip_suffix(".metadata") {
        let metadata = state.files.get(name).and_then(|served| served.metadata.clone());
        return metadata.map_or(Answer::of(404), |body| Answer { body, ..Answer::of(200) });
    }
    let Some(served) = state.files.get_mut(&name) else { return Answer::of(404) };
    let fault = if seen.method == "GET" { served.faults.pop_front() } else { None };
    let mut answer = Answer::of(200);
    match fault {
        Some(Fault::Status(status)) => return Answer::of(status),
        Some(Fault::Redirect(to)) => {
            answer.status = 302;
            answer.headers.push(("Location", to));
            return answer;
        }
        Some(Fault::Empty) => return answer,
        Some(Fault::BreakAfter(bytes)) => answer.break_after = Some(bytes),
        Some(Fault::Hold(bytes, gate)) => answer.hold = Some((bytes, gate)),
        None => {}
    }
    answer.headers.push(("ETag", served.etag.clone()));
    answer.body.clone_from(&served.bytes);
    let total = served.bytes.len();
    let confirmed = seen.headers.get("if-range").is_none_or(|tag| *tag == served.etag);
    let range = seen.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    if let Some((first, last)) = range.filter(|_| served.ranges && confirmed) {
        let (first, last) = match first {
            "" => (total.saturating_sub(last.parse().unwrap()), total - 1),
            first => (first.parse().unwrap(), last.parse().unwrap_or(total - 1).min(total - 1)),
        };
        answer.status = 206;
        answer.body = served.bytes[first..=last].to_vec();
        answer.headers.push(("Content-Range", format!("bytes {first}-{last}/{total}")));
    }
    answer
}
