//! `jetwheel serve`.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use super::hands::Commands;
use super::pull::Asked;
use super::{Answer, Context, Usage, forward, log, policies, pull, snapshot};
use crate::server::forwarded::is_mount;
use crate::server::{AfterChange, Limits, PolicySource, Server, Tls, connections_that_fit};
use crate::store::Store;

/// Where the mirror listens unless it is told otherwise: only this machine reaches it.
pub(super) const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// The fewest threads that serve connections: sending a file may wait for the disk, and others should be served meanwhile.
const LEAST_THREADS: usize = 4;

/// The most threads that read the store at once; more would only compete for the disk.
const BLOCKING_THREADS: usize = 32;

/// How long work that no request waits for any more may hold up the end of the process.
const LAST_WAIT: std::time::Duration = std::time::Duration::from_secs(2);

/// Arguments of `jetwheel serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  jetwheel serve
  jetwheel serve --listen 0.0.0.0:8080
  pip install --index-url http://127.0.0.1:8080/orin-jp6.2/simple/ torch
  jetwheel serve --pull
      what is not held is fetched from the upstreams that serve the device when somebody asks for it, and kept
  jetwheel serve --pull --upstream http://devpi.example:3141/site/prod --general http://devpi.example:3141/root/public
      from these upstreams; anybody may put projects into the second, so it comes last
  jetwheel serve --listen 0.0.0.0:8443 --tls-cert mirror.pem --tls-key mirror.key
      over TLS; a renewed certificate is taken up within seconds, connections stay

SIGTERM and SIGINT stop it: requests in flight may end, for 30 seconds at most. A change in the policy \
folder takes effect at the next request; one that cannot be used is logged, and shown by /readyz.")]
pub struct Arguments {
    /// Address and port to listen on [default: 127.0.0.1:8080]; port 0 takes any free one
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// PEM file with the certificate to serve with, and those that lead to its authority; nothing is served without TLS then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Fetch from upstreams what is asked for and not held; nobody gets a wheel that was not inspected and admitted
    #[arg(long)]
    pull: bool,
    /// Name or URL of an upstream to pull from, in place of all that are known; may be repeated, the first counts most
    #[arg(long = "upstream", short = 'u', value_name = "NAME-or-URL", requires = "pull")]
    upstreams: Vec<String>,
    /// Name or URL of a general upstream to pull from: it comes last, since anybody may put projects into it
    #[arg(long, value_name = "NAME-or-URL", requires = "pull")]
    general: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let text = arguments.listen.as_ref().or(context.config.listen.as_ref());
    let listen = address(text.map_or(DEFAULT_LISTEN, String::as_str))?;
    if let Some(prefix) = &context.config.prefix
        && !is_mount(prefix.trim_end_matches('/'))
    {
        return Err(Usage(format!("prefix is {prefix:?}, expected a path such as /mirror")).into());
    }
    let tls = tls(arguments, context)?;
    let per_client = context.config.limits.per_client()?;
    let connections = context.config.limits.connections()?;
    let largest_upload = context.config.limits.largest_upload()?;
    let load = Box::new(|dir: &Path| policies::load(dir).map_err(|error| format!("{error:#}")));
    let policies = match context.site_policies() {
        // A folder that the command line names is there, or its name is wrong; one of the configuration may be mounted later.
        Some((dir, policies::Named::InConfiguration)) if !dir.exists() => {
            PolicySource::awaited_folder(dir, load)
        }
        Some((dir, _)) => PolicySource::folder(dir, load).map_err(Usage)?,
        None => PolicySource::optional_folder(context.bundle_policies(), load).map_err(Usage)?,
    };
    let asked = Asked { pull: arguments.pull, upstreams: &arguments.upstreams, general: &arguments.general };
    let pull = pull::prepare(asked, context)?;
    let store = context.store()?;
    // A client asks again sooner than a request would be worth waiting for.
    store.set_patience(std::time::Duration::ZERO);
    let store_for_commands = Arc::clone(&store);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(
            std::thread::available_parallelism()
                .map_or(LEAST_THREADS, |cores| cores.get().max(LEAST_THREADS)),
        )
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()?;
    let log = log::aside()?;
    let served = runtime.block_on(async {
        // Before the address is announced: a signal that comes at once must stop it as well.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let limits = Limits { connections: connections_that_fit(connections), ..Limits::default() };
        let server = Server::bind(listen, store, policies, limits)
            .await
            .with_context(|| format!("cannot listen on {listen}"))?;
        let server = server.with_rules(context.config.access.rules());
        let commands = Arc::new(Commands::new(context));
        let server =
            server.with_after_change(after_change(Arc::clone(&store_for_commands), Arc::clone(&commands)));
        let server = server.with_hands(commands);
        let server = match &context.config.channel {
            Some(channel) => server.with_channel(channel.clone()),
            None => server,
        };
        let server = match &context.config.prefix {
            Some(prefix) => server.with_prefix(prefix.trim_end_matches('/').to_owned()),
            None => server,
        };
        let server = match pull {
            Some(pull) => server.with_pull(Arc::new(pull.start(Arc::clone(&store_for_commands)))),
            None => server,
        };
        let server = server.with_client_limits(per_client);
        let server = match largest_upload {
            Some(bytes) => server.with_largest_upload(bytes),
            None => server,
        };
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server = match tls {
            Some(tls) => server.with_tls(tls),
            None => server,
        };
        // The mirror serves all the same: other commands then find the store in use.
        if !store_for_commands.is_shared()
            && let Err(error) = forward::listen(&context.data, &store_for_commands)
        {
            tracing::warn!(%error, "commands beside this server cannot be run in it");
        }
        context.console.say(format_args!("listening on {scheme}://{}/", server.address()?))?;
        context.console.flush()?;
        announce(NotifyState::Ready);
        server
            .run(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                announce(NotifyState::Stopping);
            })
            .await;
        Ok(Answer::Yes)
    });
    // What still blocks a thread has had the time that requests in flight have; dropping the runtime would wait for ever.
    runtime.shutdown_timeout(LAST_WAIT);
    drop(log);
    served
}

/// The certificate to serve with, where one is named.
fn tls(arguments: &Arguments, context: &Context) -> anyhow::Result<Option<Tls>> {
    let configured = &context.config.tls;
    let (certificate, key) = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => (Some(certificate), Some(key)),
        _ => (configured.certificate.as_ref(), configured.key.as_ref()),
    };
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => {
            let tls = Tls::load(context.path(certificate), context.path(key));
            Ok(Some(tls.map_err(|error| Usage(error.to_string()))?))
        }
        _ => Err(Usage("[tls] takes certificate and key, both or neither".to_owned()).into()),
    }
}

/// Makes a snapshot after an upload, as the commands do after a change.
fn after_change(store: Arc<Store>, commands: Arc<Commands>) -> AfterChange {
    Box::new(move |reason| {
        snapshot::freeze(&store, &commands.snapshot(reason)?).map_err(|error| error.to_string())
    })
}

/// Tells systemd, where it started this process, how far the server is.
fn announce(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd could not be told");
    }
}

/// Reads `ADDR:PORT`, where the address may be a name.
fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text.to_socket_addrs().map_err(|error| {
        Usage(format!("--listen takes ADDR:PORT, such as {DEFAULT_LISTEN}; {text:?}: {error}"))
    })?;
    found.next().ok_or_else(|| Usage(format!("--listen {text:?}: the name has no address")).into())
}
