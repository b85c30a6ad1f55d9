//! One connection: counted, watched, in TLS where the mirror has it, and answered request by request.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::Watcher;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::outbox::Outbox;
use super::state::State;
use super::tls::{self, Tls};
use super::watched::{Hold, Watched};
use super::{forwarded, router};

/// A connection that was accepted.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    pub(super) state: Arc<State>,
    pub(super) tls: Option<Arc<Tls>>,
    /// How long TLS may take to begin, and then the first byte of a request.
    pub(super) head: Duration,
    /// How long nothing may move.
    pub(super) stall: Duration,
}

/// Serves a connection to its end. `stopping` ends one that has not begun.
pub(super) async fn serve(
    incoming: Incoming,
    builder: &Builder<TokioExecutor>,
    watcher: Watcher,
    mut stopping: watch::Receiver<()>,
) {
    let Incoming { stream, from, state, tls, head, stall } = incoming;
    let _open = Open::new(Arc::clone(&state));
    // Answers are written whole; waiting for more to send would only delay them.
    let _only_slower_without = stream.set_nodelay(true);
    let (outbox, hold) = (Outbox::default(), Hold::default());
    let in_view = |stream: TcpStream| Watched::new(stream, outbox.clone(), hold.clone(), head, stall);
    let parties = Parties { state, from, outbox: outbox.clone(), hold: hold.clone(), watcher };
    let Some(tls) = tls else {
        return answer(in_view(stream), false, builder, parties).await;
    };
    let begun = tokio::select! {
        _ = stopping.changed() => return,
        begun = tokio::time::timeout(head, begin(&tls, stream, in_view)) => begun,
    };
    match begun {
        Ok(Ok(Some(mut stream))) => {
            stream.get_mut().0.await_first(head);
            answer(stream, true, builder, parties).await;
        }
        Ok(Ok(None)) => tracing::debug!(%from, "a request came without TLS"),
        Ok(Err(error)) => tracing::debug!(%error, %from, "TLS did not begin"),
        Err(_elapsed) => tracing::debug!(%from, "TLS did not begin in time"),
    }
}

/// Begins TLS; none where the client speaks plain HTTP, which it is told.
async fn begin(
    tls: &Tls,
    stream: TcpStream,
    watched: impl FnOnce(TcpStream) -> Watched,
) -> io::Result<Option<TlsStream<Watched>>> {
    if tls::is_begun(&stream).await? {
        return Ok(Some(tls.begin(watched(stream)).await?));
    }
    tls::send_to_https(stream).await?;
    Ok(None)
}

/// Who takes part in a connection.
struct Parties {
    state: Arc<State>,
    from: SocketAddr,
    outbox: Outbox,
    hold: Hold,
    watcher: Watcher,
}

/// Answers the requests of a connection.
async fn answer<I>(io: I, secure: bool, builder: &Builder<TokioExecutor>, parties: Parties)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Parties { state, from, outbox, hold, watcher } = parties;
    let service = service_fn(move |mut request: http::Request<_>| {
        if secure {
            request.extensions_mut().insert(forwarded::Secure);
        }
        let (state, outbox, hold) = (Arc::clone(&state), outbox.clone(), hold.clone());
        async move { Ok::<_, Infallible>(router::respond(state, request, from, &outbox, &hold).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(io), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, %from, "a connection ended badly");
    }
}

/// Counts a connection as long as it is open, also where its task panics.
struct Open(Arc<State>);

impl Open {
    fn new(state: Arc<State>) -> Self {
        state.metrics.connections.inc();
        Self(state)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}
