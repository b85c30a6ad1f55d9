//! A small HTTP/1.1 client that sends what it is told, byte for byte, and a store filled for the server to serve.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jetwheel::digest::Sha256;
use jetwheel::policy::Policy;
use jetwheel::server::{Limits, PolicySource, Server};
use jetwheel::store::{Provenance, Store};
use jetwheel::wheel::{InspectOptions, inspect_wheel};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// An answer, as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) phrase: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a header, which the answer has once at most.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice in {self:?}");
        value
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends bytes and reads until the server closes the connection; whatever came, even if it is nothing.
pub(crate) fn exchange(base: &str, request: &[u8]) -> io::Result<Vec<u8>> {
    let address = base.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Sends a request with a raw target and raw header lines.
pub(crate) fn send(base: &str, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: mirror.test\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.extend([*name, ": ", *value, "\r\n"]);
    }
    if !body.is_empty() {
        request.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
    }
    request.push_str("\r\n");
    let bytes = exchange(base, &[request.as_bytes(), body].concat()).unwrap();
    let answer = parse(&bytes);
    if let Some(length) = answer.header("content-length")
        && method != "HEAD"
        && answer.status != 304
    {
        assert_eq!(length.parse::<usize>().unwrap(), answer.body.len(), "{method} {target}: {answer:?}");
    }
    answer
}

pub(crate) fn get(base: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    send(base, "GET", target, headers, b"")
}

pub(crate) fn head(base: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    let answer = send(base, "HEAD", target, headers, b"");
    assert!(answer.body.is_empty(), "{answer:?}");
    answer
}

fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
    let text = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap().splitn(3, ' ');
    assert_eq!(first.next(), Some("HTTP/1.1"));
    let status = first.next().unwrap().parse().unwrap();
    let phrase = first.next().unwrap_or_default().to_owned();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let headers = lines.map(|line| header(line).unwrap()).collect();
    Answer { status, phrase, headers, body: bytes[end + 4..].to_vec() }
}

/// Takes all wheels of a folder into a store, as `add` does.
pub(crate) fn stock(store: &Store, folder: &Path) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            take(store, &path, &local());
        }
    }
}

/// The provenance of a file that was added by hand.
pub(crate) fn local() -> Provenance {
    Provenance {
        upstream: "local".to_owned(),
        first_seen: "2026-11-30T08:09:10Z".to_owned(),
        ..Provenance::default()
    }
}

/// Takes one wheel into a store; yields its digest.
pub(crate) fn take(store: &Store, path: &Path, provenance: &Provenance) -> Sha256 {
    let inspection = inspect_wheel(path, &InspectOptions::default()).unwrap();
    let mut spooled = store.spool().unwrap();
    io::copy(&mut fs_err::File::open(path).unwrap(), &mut spooled).unwrap();
    store.put(spooled, &inspection.facts, &inspection.metadata, provenance).unwrap();
    inspection.facts.sha256
}

/// A server inside the test's process, so that the test can change the store that it serves.
#[derive(Debug)]
pub(crate) struct InProcess {
    pub(crate) base: String,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl InProcess {
    /// Serves a store by the built-in policy.
    pub(crate) fn serving(store: Arc<Store>) -> Self {
        Self::with(store, PolicySource::fixed(Policy::builtin()), Limits::default())
    }

    /// Serves a store by a policy, within limits.
    pub(crate) fn with(store: Arc<Store>, policies: PolicySource, limits: Limits) -> Self {
        Self::set_up(store, policies, limits, |server| server)
    }

    /// As `with`, by a server that was set up further.
    pub(crate) fn set_up(
        store: Arc<Store>,
        policies: PolicySource,
        limits: Limits,
        further: impl FnOnce(Server) -> Server + Send + 'static,
    ) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let any = "127.0.0.1:0".parse().unwrap();
                let server = further(Server::bind(any, store, policies, limits).await.unwrap());
                tell.send(server.address().unwrap()).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
        });
        let base = format!("http://{}", told.recv().unwrap());
        Self { base, stop: Some(stop), thread: Some(thread) }
    }

    /// Tells the server to stop, without waiting.
    pub(crate) fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits for the end of the server.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.stop();
        if !std::thread::panicking() {
            self.join();
        }
    }
}
