//! What pull-through did, as metrics.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::server::pull::Snapshot;

/// Registers what was done so far. Where nothing is pulled there are no such series.
pub(super) fn register(registry: &mut Registry, did: Snapshot) {
    let counters = [
        ("pull_page_hits", "Pages of upstreams that were answered from a copy", did.page_hits),
        ("pull_page_fetches", "Pages that upstreams were asked for", did.page_fetches),
        ("pull_page_failures", "Pages that upstreams failed to give", did.page_failures),
        ("pull_stale_answers", "Pages answered while an upstream could not be asked", did.stale_answers),
        ("pull_file_hits", "Requests for files that the store had", did.file_hits),
        ("pull_file_misses", "Requests for files that upstreams alone had", did.file_misses),
        ("pull_file_joins", "Of these the ones that joined a fetch under way", did.file_joins),
        ("pull_file_fetches", "Files that upstreams were asked for", did.file_fetches),
        ("pull_file_failures", "Files that upstreams failed to give", did.file_failures),
        ("pull_file_lies", "Files that were not what the upstream's page promises", did.file_lies),
        ("pull_put_off", "Requests that were told to come again", did.put_off),
        ("pull_queue_full", "Files that were not put on the full queue", did.queue_full),
    ];
    for (name, help, count) in counters {
        registry.register(name, help, ConstCounter::new(count));
    }
    registry.register_with_unit(
        "pull_fetched",
        "Bytes of files that upstreams sent",
        Unit::Bytes,
        ConstCounter::new(did.fetched_bytes),
    );
    registry.register("pull_in_flight", "Files that are being fetched", ConstGauge::new(did.in_flight));
    let waiting = ConstGauge::new(did.queue_length);
    registry.register("pull_queue_length", "Files that wait to be fetched and inspected", waiting);
}
