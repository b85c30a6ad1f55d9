//! One connection: counted, watched, in TLS where the mirror has it, and answered request by request.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::outbox::{self, Outbox};
use super::pace::{Duty, Pace};
use super::state::State;
use super::tls::{self, Tls};
use super::watched::Watched;
use super::{forwarded, router};

/// A connection that was accepted.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) stream: TcpStream,
    pub(super) from: SocketAddr,
    pub(super) state: Arc<State>,
    pub(super) tls: Option<Arc<Tls>>,
    /// Whether more than half of the places are taken, so that others may soon wait for one.
    pub(super) crowded: bool,
    /// How long TLS may take to begin, and then the first byte of a request.
    pub(super) head: Duration,
    /// How long nothing may move.
    pub(super) stall: Duration,
}

/// Serves a connection to its end. `called` tells that others wait for its place, and, when nobody is left to tell, that the
/// server stops.
pub(super) async fn serve(
    incoming: Incoming,
    builder: &Builder<TokioExecutor>,
    mut called: watch::Receiver<()>,
) {
    let Incoming { stream, from, state, tls, crowded, head, stall } = incoming;
    let _open = Open::new(Arc::clone(&state));
    // Answers are written whole; waiting for more to send would only delay them.
    let _only_slower_without = stream.set_nodelay(true);
    let bounded = crowded && outbox::bound_unsent(&stream).is_ok();
    let (outbox, pace) = (Outbox::default(), Pace::new(bounded));
    let in_view = |stream: TcpStream| Watched::new(stream, outbox.clone(), pace.clone(), head, stall);
    let Some(tls) = tls else {
        let parties = Parties { state, from, outbox: outbox.clone(), pace: pace.clone(), called };
        return answer(in_view(stream), false, builder, parties).await;
    };
    let begun = tokio::select! {
        () = until_gone(&mut called, &pace) => return,
        begun = tokio::time::timeout(head, begin(&tls, stream, in_view)) => begun,
    };
    match begun {
        Ok(Ok(Some(mut stream))) => {
            stream.get_mut().0.await_first(head);
            pace.begin();
            let parties = Parties { state, from, outbox, pace, called };
            answer(stream, true, builder, parties).await;
        }
        Ok(Ok(None)) => tracing::debug!(%from, "a request came without TLS"),
        Ok(Err(error)) => tracing::debug!(%error, %from, "TLS did not begin"),
        Err(_elapsed) => tracing::debug!(%from, "TLS did not begin in time"),
    }
}

/// Waits until a connection without a request has to go.
async fn until_gone(called: &mut watch::Receiver<()>, pace: &Pace) {
    while called.changed().await.is_ok() && pace.duty() != Duty::Go {}
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
    pace: Pace,
    called: watch::Receiver<()>,
}

/// Answers the requests of a connection.
async fn answer<I>(io: I, secure: bool, builder: &Builder<TokioExecutor>, parties: Parties)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Parties { state, from, outbox, pace, mut called } = parties;
    let of_requests = pace.clone();
    let service = service_fn(move |mut request: http::Request<_>| {
        if secure {
            request.extensions_mut().insert(forwarded::Secure);
        }
        let (state, outbox, pace) = (Arc::clone(&state), outbox.clone(), of_requests.clone());
        async move { Ok::<_, Infallible>(router::respond(state, request, from, &outbox, &pace).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service).into_owned());
    let mut stops = false;
    let ended = loop {
        let duty = tokio::select! {
            ended = connection.as_mut() => break ended,
            call = called.changed(), if !stops => {
                stops = call.is_err();
                if stops { Duty::Finish } else { pace.duty() }
            }
        };
        match duty {
            Duty::Stay => {}
            Duty::Finish => connection.as_mut().graceful_shutdown(),
            Duty::Go => {
                tracing::debug!(%from, "a client that kept the mirror waiting gave up its place");
                return;
            }
        }
    };
    if let Err(error) = ended {
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
