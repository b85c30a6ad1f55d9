//! The mirror over HTTP: accept, time out, shut down.
//!
//! `docs/HTTP.md` says what each route answers. Only `router` sees a request; handlers take parsed values and return a
//! `reply::Reply` or a `refusal::Refusal`.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Rules;
use crate::store::Store;
use connection::Incoming;

mod accept;
pub(crate) mod api;
mod arriving;
mod body;
mod clients;
mod connection;
mod device;
mod explain;
mod files;
mod folder_watch;
pub(crate) mod forwarded;
mod gate;
mod health;
mod id;
pub(crate) mod in_force;
mod log;
pub(crate) mod lru;
mod metrics;
mod opened;
mod outbox;
mod pace;
mod pages;
pub(crate) mod path;
mod places;
mod process;
pub mod pull;
mod pulled;
mod range;
mod refusal;
mod reply;
mod request_body;
mod resolve;
mod router;
mod simple;
pub(crate) mod state;
mod tls;
mod upload;
mod used;
pub(crate) mod verdicts;
pub(crate) mod view;
mod watched;

pub use api::{Hands, Say, SyncEnd, SyncOrder};
pub use clients::{ClientLimits, Network, Rate};
pub use in_force::{Load, PolicySource};
pub use places::{MOST_CONNECTIONS, connections_that_fit};
pub use tls::{Tls, TlsError};
pub use upload::{AfterChange, LARGEST as LARGEST_UPLOAD};

/// What bounds the clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once. Further ones wait in the kernel's queue.
    pub connections: usize,
    /// How long a request's head may take, the start of TLS, and how long a connection may wait for the next request.
    pub head: Duration,
    /// How long nothing may move on a connection, in either direction, whatever it is waiting for.
    pub stall: Duration,
    /// How long requests in flight may take to end after the server was told to stop.
    pub stop: Duration,
}

impl Default for Limits {
    /// 400 connections fit the usual limit of 1,024 open files (`places.rs`). pip and uv keep a connection for seconds; a stall of
    /// a minute is past what a slow disk on a device causes.
    fn default() -> Self {
        Self {
            connections: 400,
            head: Duration::from_secs(30),
            stall: Duration::from_mins(1),
            stop: Duration::from_secs(30),
        }
    }
}

/// The most bytes of a request's head; the longest of a real client has below 1 KiB. hyper takes no less than 8 KiB.
const HEAD_SIZE: usize = 32 << 10;

/// The most fields of a request's head.
const HEAD_FIELDS: usize = 64;

/// The most requests at once on one HTTP/2 connection. Each that its client does not read from holds pieces of a file in
/// memory (`body.rs`) and the file open, so that 64 of them on each connection would be a gigabyte. pip speaks HTTP/1 alone, and uv too
/// where no TLS is; with TLS uv lets further requests wait.
const STREAMS: u32 = 8;

/// How often the connections are told that others wait for their places, while they do.
const CALL_EVERY: Duration = Duration::from_millis(500);

/// How long accepting pauses after it failed, which it does when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that is bound to its address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    state: Arc<state::State>,
    limits: Limits,
    tls: Option<Arc<Tls>>,
}

impl Server {
    /// Binds an address. Nothing of the store is read before the first request needs it.
    pub async fn bind(
        listen: SocketAddr,
        store: Arc<Store>,
        policies: PolicySource,
        limits: Limits,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        Ok(Self { listener, state: Arc::new(state::State::new(store, policies)), limits, tls: None })
    }

    /// Sets what a device's URL without `@` stands for: a channel, or the name or id of a snapshot. Unless this is called, it
    /// is what the store holds now.
    #[must_use]
    pub fn with_channel(self, channel: String) -> Self {
        self.state.views.set_channel(channel);
        self
    }

    /// Sets the path at which a proxy has the mirror, such as `/mirror`: requests may come with it or without.
    #[must_use]
    pub fn with_prefix(self, prefix: String) -> Self {
        let _set_before = self.state.prefix.set(prefix);
        self
    }

    /// Lets pages and files come from upstreams as well, by whoever asks them.
    #[must_use]
    pub fn with_pull(self, source: Arc<dyn pull::Source>) -> Self {
        let _set_before = self.state.pull.set(source);
        self
    }

    /// Sets who may read what.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.settings(|state| state.rules = rules);
        self
    }

    /// Serves over TLS, and nothing without it.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(Arc::new(tls));
        self
    }

    /// Sets what is done after an upload.
    #[must_use]
    pub fn with_after_change(mut self, after: AfterChange) -> Self {
        self.settings(|state| state.uploads.after_change = Some(after));
        self
    }

    /// Sets what bounds a single client.
    #[must_use]
    pub fn with_client_limits(mut self, limits: ClientLimits) -> Self {
        self.settings(|state| state.clients = clients::Clients::new(limits));
        self
    }

    /// Sets who does what the admin API asks for and the server itself cannot.
    #[must_use]
    pub fn with_hands(mut self, hands: Arc<dyn Hands>) -> Self {
        self.settings(|state| state.api.hands = Some(hands));
        self
    }

    /// Sets the most bytes of an upload.
    #[must_use]
    pub fn with_largest_upload(mut self, bytes: u64) -> Self {
        self.settings(|state| state.uploads.largest = bytes);
        self
    }

    /// Changes what requests share, of which there are none yet.
    fn settings(&mut self, change: impl FnOnce(&mut state::State)) {
        if let Some(state) = Arc::get_mut(&mut self.state) {
            change(state);
        }
    }

    /// The address, with the real port where 0 was asked for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is ready; then takes no more connections and lets requests in flight end, for a bounded time.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, state, limits, tls } = self;
        let builder = Arc::new(builder(limits.head));
        let places = Arc::new(Semaphore::new(limits.connections));
        let of_files = Arc::clone(&state);
        let (call, called) = watch::channel(());
        let follow = tls.clone().map_or_else(|| pending().boxed(), |tls| tls.follow().boxed());
        let accept = async {
            loop {
                let (stream, from) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                let Some(counted) = state.clients.connect(from.ip()) else {
                    // TLS would cost more than it is worth.
                    if let (None, Ok(place)) = (&tls, Arc::clone(&places).try_acquire_owned()) {
                        tokio::spawn(async move {
                            clients::turn_away(stream).await;
                            drop(place);
                        });
                    }
                    continue;
                };
                let Some(place) = take_place(&places, &call).await else { return };
                let (state, tls) = (Arc::clone(&state), tls.clone());
                let crowded = places.available_permits() < limits.connections / 2;
                let (head, stall) = (limits.head, limits.stall);
                let incoming = Incoming { stream, from, state, tls, crowded, head, stall };
                let (builder, called) = (Arc::clone(&builder), called.clone());
                tokio::spawn(async move {
                    connection::serve(incoming, &builder, called).await;
                    drop((counted, place));
                });
            }
        };
        tokio::select! {
            () = accept => {}
            () = of_files.opened.close_idle() => {}
            () = follow => {}
            () = stop => {}
        }
        drop((listener, call));
        let open = limits.connections.saturating_sub(places.available_permits());
        tracing::info!(open_connections = open, "stopping");
        let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        if tokio::time::timeout(limits.stop, places.acquire_many(all)).await.is_err() {
            tracing::warn!(limit_s = limits.stop.as_secs(), "requests in flight did not end in time");
        }
    }
}

/// Takes a place for a connection that was accepted; where all are taken the others are told that it waits.
async fn take_place(places: &Arc<Semaphore>, call: &watch::Sender<()>) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Some(place);
    }
    loop {
        call.send_replace(());
        if let Ok(place) = tokio::time::timeout(CALL_EVERY, Arc::clone(places).acquire_owned()).await {
            return place.ok();
        }
    }
}

fn builder(head: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(head)
        .writev(true) // the outbox needs a body's buffers as they are
        .max_buf_size(HEAD_SIZE)
        .max_headers(HEAD_FIELDS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD_SIZE).unwrap_or(u32::MAX));
    builder
}
