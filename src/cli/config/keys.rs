//! Every key of the configuration file, in the order of `docs/CONFIGURATION.md`, with its built-in value.

use serde_json::{Value, json};

use super::super::context::DEFAULT_DATA;
use super::super::serve::DEFAULT_LISTEN;
use crate::server::{LARGEST_UPLOAD, Limits};
use crate::{pull, upstream};

/// A key of the configuration file.
#[derive(Debug)]
pub(super) struct Key {
    /// Its name, with its table's before it. `*` stands for a name of the site's own.
    pub(super) name: &'static str,
    /// Its value where nothing says otherwise; null for none.
    pub(super) built_in: Value,
    /// Whether it is a path, relative to the file's folder.
    pub(super) is_path: bool,
}

/// All keys.
pub(super) fn keys() -> Vec<Key> {
    let key = |name, built_in| Key { name, built_in, is_path: false };
    let path = |name| Key { name, built_in: Value::Null, is_path: true };
    let (of_pull, of_network) = (pull::Options::default(), upstream::Options::default());
    let size = |bytes: u64| {
        [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1, "B")]
            .into_iter()
            .find(|(unit, _)| bytes.is_multiple_of(*unit))
            .map(|(unit, name)| json!(format!("{}{name}", bytes / unit)))
            .unwrap_or_default()
    };
    vec![
        Key { name: "data", built_in: json!(DEFAULT_DATA), is_path: true },
        path("policies"),
        path("index"),
        key("listen", json!(DEFAULT_LISTEN)),
        key("prefix", Value::Null),
        key("channel", json!("newest")),
        key("keep_snapshots", json!(crate::store::KEEP_SNAPSHOTS)),
        path("public_key"),
        key("catalogue", Value::Null),
        key("blobs", Value::Null),
        key("s3.endpoint", Value::Null),
        key("s3.public_endpoint", Value::Null),
        key("s3.region", Value::Null),
        key("s3.path_style", json!(false)),
        path("s3.ca"),
        key("s3.stream", json!(false)),
        path("tls.certificate"),
        path("tls.key"),
        key("access.read", json!("open")),
        key("access.devices.*", Value::Null),
        key("limits.connections", json!(Limits::default().connections)),
        key("limits.connections_per_client", Value::Null),
        key("limits.requests_per_second", Value::Null),
        key("limits.burst", Value::Null),
        key("limits.largest_upload", size(LARGEST_UPLOAD)),
        key("limits.trusted_proxies", json!([])),
        path("ca"),
        key("credentials.*.username", Value::Null),
        key("credentials.*.password", Value::Null),
        key("network.connect_timeout_s", json!(of_network.connect_timeout.as_secs())),
        key("network.read_timeout_s", json!(of_network.read_timeout.as_secs())),
        key("network.retries", json!(of_network.retries)),
        key("network.backoff_ms", json!(u64::try_from(of_network.backoff.as_millis()).unwrap_or(u64::MAX))),
        key("pull.enabled", json!(false)),
        key("pull.upstreams", Value::Null),
        key("pull.general", json!([])),
        key("pull.page_lifetime_s", json!(of_pull.lifetime.as_secs())),
        key("pull.page_wait_s", json!(of_pull.page_patience.as_secs())),
        key("pull.file_wait_s", json!(of_pull.patience.as_secs())),
        key("pull.failure_s", json!(of_pull.failure.as_secs())),
        key("pull.on_the_fly", size(of_pull.on_the_fly)),
        key("pull.max_size", size(of_pull.largest)),
        key("pull.versions", json!(of_pull.versions)),
        key("pull.fetches", json!(of_pull.fetches)),
        key("pull.inspections", json!(of_pull.inspections)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use std::collections::BTreeSet;

    /// The names that serde knows of a table, out of what it says about one that it does not know.
    fn known(table: &str) -> Vec<String> {
        let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        let error = toml::from_str::<Config>(&format!("{header}no-such-key = 1\n")).unwrap_err();
        let (_, names) = error.message().split_once("expected ").expect("a table without names of its own");
        names.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// Whoever adds a key to the configuration adds it here, and to the reference.
    #[test]
    fn are_all_that_the_configuration_knows() {
        let tables = ["", "s3", "tls", "access", "limits", "credentials.x", "network", "pull"];
        let mut found = BTreeSet::new();
        for table in tables {
            for name in known(table) {
                let path = if table.is_empty() { name } else { format!("{table}.{name}") };
                let is_table = tables.iter().any(|table| table.split('.').next() == Some(path.as_str()));
                let path = match path.as_str() {
                    "access.devices" => "access.devices.*".to_owned(),
                    path => path.replace("credentials.x.", "credentials.*."),
                };
                if !is_table {
                    found.insert(path);
                }
            }
        }
        let listed: BTreeSet<String> = keys().iter().map(|key| key.name.to_owned()).collect();
        assert_eq!(listed, found);
    }
}
