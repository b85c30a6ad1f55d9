//! What the mirror tells Prometheus: `GET /metrics` in the OpenMetrics text format, version 1.0.0.
//!
//! What happens at each request is counted as it happens. All else (the store, upstreams, caches, the process) is read when
//! somebody asks. Labels take values from lists of our own alone, so that no client can make series.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

mod pulled;

use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::in_force::InForce;
use super::process;
use super::refusal::Refusal;
use super::state::State;

/// The `Content-Type` of the page.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the histogram of durations, in seconds: from a page that is cached to a wheel over a slow line.
const DURATIONS: [f64; 10] = [0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0];

/// What is counted while the mirror runs.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    sent: Family<RouteLabel, Counter>,
    durations: Family<RouteLabel, Histogram>,
    refused: Family<CodeLabel, Counter>,
    uploads: Family<ResultLabel, Counter>,
    uploaded: Counter,
    /// Connections that are open now.
    pub(super) connections: Gauge,
    /// What the store held at the revision that is named.
    held: Mutex<Option<(u64, Held)>>,
}

/// A kind of request. All labels of one are of its route, method and status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: String,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabel {
    upstream: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    cache: &'static str,
    result: &'static str,
}

/// What the store holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) wheels: u64,
    pub(super) bytes: u64,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(DURATIONS);
        let metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            sent: Family::default(),
            durations: Family::new_with_constructor(histogram),
            refused: Family::default(),
            uploads: Family::default(),
            uploaded: Counter::default(),
            connections: Gauge::default(),
            held: Mutex::new(None),
        };
        let mut registry = Registry::with_prefix("jetwheel");
        registry.register("http_requests", "Requests that were answered", metrics.requests.clone());
        registry.register_with_unit("http_sent", "Bytes of bodies sent", Unit::Bytes, metrics.sent.clone());
        registry.register_with_unit(
            "http_request_duration",
            "From a request's head to the end of its answer",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register(
            "files_refused",
            "Files asked for that do not run on the device",
            metrics.refused.clone(),
        );
        registry.register("uploads", "Uploads, by what became of them", metrics.uploads.clone());
        registry.register_with_unit(
            "uploaded",
            "Bytes of wheels that uploads brought",
            Unit::Bytes,
            metrics.uploaded.clone(),
        );
        registry.register("http_connections", "Connections that are open", metrics.connections.clone());
        Self { registry, ..metrics }
    }

    /// Counts an answer at its end.
    pub(super) fn answered(
        &self,
        route: &'static str,
        method: &Method,
        status: StatusCode,
        sent: u64,
        elapsed: Duration,
    ) {
        let labels = RequestLabels { route, method: known_method(method), status: status.as_u16() };
        self.requests.get_or_create(&labels).inc();
        let route = RouteLabel { route };
        self.sent.get_or_create(&route).inc_by(sent);
        self.durations.get_or_create(&route).observe(elapsed.as_secs_f64());
    }

    /// Counts a file that was asked for and does not run on the device, by the code of the first reason.
    pub(super) fn refused(&self, code: String) {
        self.refused.get_or_create(&CodeLabel { code }).inc();
    }

    /// Counts an upload by what became of it, and its bytes where the store did not have them.
    pub(super) fn uploaded(&self, result: &'static str, bytes: u64) {
        self.uploads.get_or_create(&ResultLabel { result }).inc();
        self.uploaded.inc_by(bytes);
    }
}

/// One of the methods that clients use; whatever else they send is one series.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// The whole page. Blocks.
pub(super) fn render(state: &State, in_force: &InForce) -> Result<String, Refusal> {
    let defect = |error: fmt::Error| Refusal::Defect(format!("metrics: {error}"));
    let mut text = String::new();
    encode_registry(&mut text, &state.metrics.registry).map_err(defect)?;
    encode_registry(&mut text, &now(state, in_force)?).map_err(defect)?;
    encode_registry(&mut text, &process()).map_err(defect)?;
    encode_eof(&mut text).map_err(defect)?;
    Ok(text)
}

/// What is read when somebody asks.
fn now(state: &State, in_force: &InForce) -> Result<Registry, Refusal> {
    let mut registry = Registry::with_prefix("jetwheel");
    registry.register("build", "The program", Info::new([("version", env!("CARGO_PKG_VERSION"))]));

    let held = state.held()?;
    registry.register("store_wheels", "Wheels that are held", ConstGauge::new(held.wheels));
    registry.register_with_unit(
        "store_size",
        "Size of the wheels that are held",
        Unit::Bytes,
        ConstGauge::new(held.bytes),
    );
    registry.register_with_unit(
        "store_free",
        "Free space where the store lies",
        Unit::Bytes,
        ConstGauge::new(state.store.free_bytes()?),
    );
    let snapshots = state.store.snapshots().len() as u64;
    registry.register("store_snapshots", "Snapshots that are kept", ConstGauge::new(snapshots));
    let recovered = u64::from(state.store.recovery().is_some());
    registry.register(
        "store_recovered",
        "Whether the catalogue had to be made anew since the start",
        ConstGauge::new(recovered),
    );

    registry.register(
        "policy_generation",
        "Grows with each change of the policy",
        ConstGauge::new(in_force.generation),
    );
    let broken = u64::from(in_force.broken.is_some());
    registry.register(
        "policy_broken",
        "Whether the policy folder cannot be used as it is",
        ConstGauge::new(broken),
    );

    let (last_reached, failing) = upstreams(state)?;
    registry.register_with_unit(
        "upstream_last_reached_timestamp",
        "When an upstream last answered all that it was asked",
        Unit::Seconds,
        last_reached,
    );
    registry.register("upstream_failing", "Whether an upstream failed in the last pass", failing);

    let verdicts = Family::<VerdictLabels, Counter>::default();
    for ((verdict, code), count) in state.verdicts.counts() {
        verdicts.get_or_create(&VerdictLabels { verdict, code }).inc_by(count);
    }
    registry.register("verdicts", "Files that were judged, by verdict and first reason", verdicts);

    let caches = Family::<CacheLabels, Counter>::default();
    let [pages, files, metadata] = [state.pages.counts(), state.files.counts(), state.metadata.counts()];
    let judged = state.verdicts.cache_counts();
    for (cache, counts) in [("pages", pages), ("files", files), ("metadata", metadata), ("verdicts", judged)]
    {
        for (result, count) in [("hit", counts.hits), ("miss", counts.misses)] {
            caches.get_or_create(&CacheLabels { cache, result }).inc_by(count);
        }
    }
    registry.register("cache_requests", "Look-ups in caches", caches);
    if let Some(pull) = state.pull.get() {
        pulled::register(&mut registry, pull.counters().snapshot());
    }
    Ok(registry)
}

type Seconds = Family<UpstreamLabel, Gauge<f64, AtomicU64>>;
type Failing = Family<UpstreamLabel, Gauge>;

fn upstreams(state: &State) -> Result<(Seconds, Failing), Refusal> {
    let (last_reached, failing) = (Seconds::default(), Failing::default());
    for (upstream, reached) in state.store.reached()? {
        let label = UpstreamLabel { upstream };
        let at = reached.last_reached.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        last_reached.get_or_create(&label).set(at.map_or(0.0, |at| at.as_duration().as_secs_f64()));
        failing.get_or_create(&label).set(i64::from(reached.failing_since.is_some()));
    }
    Ok((last_reached, failing))
}

impl State {
    /// What the store holds; counted again only after a change. Blocks.
    pub(super) fn held(&self) -> Result<Held, Refusal> {
        let revision = self.store.revision();
        let kept = *self.metrics.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, held)) = kept.filter(|(of, _)| *of == revision) {
            return Ok(held);
        }
        let files = self.store.held_files()?;
        let bytes = files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.size));
        let held = Held { wheels: files.len() as u64, bytes };
        *self.metrics.held.lock().unwrap_or_else(PoisonError::into_inner) = Some((revision, held));
        Ok(held)
    }
}

/// The metrics that every client library of Prometheus gives of its process, by their customary names.
fn process() -> Registry {
    let mut registry = Registry::with_prefix("process");
    let process::Usage { cpu_seconds, resident_bytes, open_files, most_files, started } = process::usage();
    registry.register_with_unit("cpu", "User and system time", Unit::Seconds, ConstCounter::new(cpu_seconds));
    registry.register_with_unit(
        "resident_memory",
        "Resident memory",
        Unit::Bytes,
        ConstGauge::new(resident_bytes),
    );
    registry.register("open_fds", "Open file descriptors", ConstGauge::new(open_files));
    registry.register("max_fds", "The most file descriptors that may be open", ConstGauge::new(most_files));
    registry.register_with_unit(
        "start_time",
        "Start of the process",
        Unit::Seconds,
        ConstGauge::new(started),
    );
    registry
}
