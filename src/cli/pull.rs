//! What `serve --pull` asks: the upstreams, and how long what they say is good for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};

use super::upstreams::{named_upstream, network_options, own_urls, read_index};
use super::{Context, Usage};
use crate::pull::{Options, Pull};
use crate::store::Store;
use crate::upstream::{Client, Options as Network, Upstream};
use crate::wheel::Size;
use crate::wording::with_causes;

/// How long a connection may take to be made, and how long nothing may come, where a client waits for the answer.
const HASTY_CONNECT: Duration = Duration::from_secs(5);
const HASTY_READ: Duration = Duration::from_secs(20);

/// The setting `pull` of the configuration: a switch, or a table of what differs from the built-in values.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// Whether upstreams are pulled from, unless the command line says so.
    enabled: bool,
    table: Table,
}

/// The table `[pull]`; what is absent is as built in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    /// False leaves it to `--pull`.
    enabled: Option<bool>,
    /// Names or URLs of the upstreams, in place of all that are known.
    upstreams: Option<Vec<String>>,
    /// Names or URLs of general ones; they come last.
    general: Option<Vec<String>>,
    /// Seconds for which a page is good.
    page_lifetime_s: Option<u64>,
    /// Seconds for which a client waits for a page of an upstream, before the copy counts.
    page_wait_s: Option<u64>,
    /// Seconds for which a client waits for a file, before it is told to come again.
    file_wait_s: Option<u64>,
    /// Seconds for which an upstream that failed is not asked.
    failure_s: Option<u64>,
    /// Largest pure-Python wheel that is listed before it was inspected.
    on_the_fly: Option<String>,
    /// Largest wheel that is fetched.
    max_size: Option<String>,
    /// Of how many of the newest versions unknown wheels are inspected in the background.
    versions: Option<usize>,
    /// How many files are fetched at once.
    fetches: Option<usize>,
    /// How many of these in the background; none for none.
    inspections: Option<usize>,
}

impl Setting {
    /// Whether upstreams are pulled from, unless the command line says so.
    pub(super) const fn enabled(&self) -> bool {
        self.enabled
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Setting;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("true, false or a table")
            }
            fn visit_bool<E>(self, enabled: bool) -> Result<Setting, E> {
                Ok(Setting { enabled, table: Table::default() })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Setting, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Setting { enabled: table.enabled.unwrap_or(true), table })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// What the command line says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) pull: bool,
    pub(super) upstreams: &'a [String],
    pub(super) general: &'a [String],
}

/// What pulls, still to be started on a runtime; none where nothing is pulled.
pub(super) struct Prepared {
    upstreams: Vec<Upstream>,
    clients: (Client, Client),
    cache: std::path::PathBuf,
    options: Options,
}

/// Reads what the command line, the configuration and the index files say.
pub(super) fn prepare(asked: Asked<'_>, context: &mut Context) -> anyhow::Result<Option<Prepared>> {
    let Setting { enabled, table } = context.config.pull.clone();
    let on = asked.pull || enabled || !asked.upstreams.is_empty() || !asked.general.is_empty();
    let index = read_index(None, context)?;
    let of_table = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
    let on_command_line = !asked.upstreams.is_empty() || !asked.general.is_empty();
    let (names, general) = if on_command_line {
        (asked.upstreams.to_vec(), asked.general.to_vec())
    } else {
        (of_table(&table.upstreams), of_table(&table.general))
    };
    let mut upstreams: Vec<Upstream> = Vec::new();
    if names.is_empty() && general.is_empty() {
        upstreams.extend(index.upstreams().iter().filter(|known| known.pull.unwrap_or(on)).cloned());
    } else if on {
        for (name, general) in
            names.iter().map(|name| (name, false)).chain(general.iter().map(|name| (name, true)))
        {
            let mut upstream = named_upstream(name, &index)?;
            upstream.general |= general;
            upstreams.push(upstream);
        }
    }
    if upstreams.is_empty() {
        return Ok(None);
    }
    let options = table.options()?;
    let mut network = network_options(context)?;
    for upstream in &mut upstreams {
        upstream.url = network.credentials.take_from(&upstream.url);
    }
    network.own = Some(own_urls(upstreams.iter().map(|upstream| &upstream.url)));
    let hasty = Network {
        connect_timeout: network.connect_timeout.min(HASTY_CONNECT),
        read_timeout: network.read_timeout.min(HASTY_READ),
        retries: 0,
        ..network.clone()
    };
    let client = |options| Client::new(options).map_err(|error| Usage(with_causes(&error)));
    Ok(Some(Prepared {
        upstreams,
        clients: (client(network)?, client(hasty)?),
        cache: context.data.join("cache").join("pages"),
        options,
    }))
}

impl Prepared {
    /// Begins to pull, on the runtime of the caller.
    pub(super) fn start(self, store: Arc<Store>) -> Pull {
        Pull::start(self.upstreams, self.clients, store, &self.cache, self.options)
    }
}

impl Table {
    fn options(&self) -> anyhow::Result<Options> {
        let built_in = Options::default();
        let seconds = |stated: Option<u64>, built_in| stated.map_or(built_in, Duration::from_secs);
        let size = |key: &str, stated: &Option<String>, built_in| match stated {
            None => Ok(built_in),
            Some(text) => match text.parse() {
                Ok(Size(bytes)) => Ok(bytes),
                Err(error) => Err(Usage(format!("pull.{key}: {error}"))),
            },
        };
        Ok(Options {
            lifetime: seconds(self.page_lifetime_s, built_in.lifetime),
            page_patience: seconds(self.page_wait_s, built_in.page_patience),
            patience: seconds(self.file_wait_s, built_in.patience),
            failure: seconds(self.failure_s, built_in.failure),
            on_the_fly: size("on_the_fly", &self.on_the_fly, built_in.on_the_fly)?,
            largest: size("max_size", &self.max_size, built_in.largest)?,
            versions: self.versions.unwrap_or(built_in.versions),
            fetches: self.fetches.unwrap_or(built_in.fetches).max(1),
            inspections: self.inspections.unwrap_or(built_in.inspections).min(64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        pull: Setting,
    }

    fn read(text: &str) -> Result<Setting, String> {
        toml::from_str(text).map(|file: File| file.pull).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn is_a_switch_or_a_table() {
        assert!(read("pull = true").unwrap().enabled && !read("pull = false").unwrap().enabled);
        let table = read("[pull]\nfile_wait_s = 3\non_the_fly = \"1MiB\"\n").unwrap();
        let options = table.table.options().unwrap();
        assert!(table.enabled);
        assert_eq!((options.patience, options.on_the_fly), (Duration::from_secs(3), 1 << 20));
        assert!(!read("[pull]\nenabled = false\n").unwrap().enabled);
        assert!(read("[pull]\nwait = 3\n").unwrap_err().starts_with("unknown field `wait`, expected one of"));
        assert!(read("pull = 3").is_err());
    }
}
