//! The configuration file: one TOML file, whose values become options of the modules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{Usage, pull};
use crate::access::{Reading, Rules};
use crate::server::{self, ClientLimits, MOST_CONNECTIONS, Rate};
use crate::store::{Backends, Postgres, S3};
use crate::upstream::{Login, Options};
use crate::wheel::Size;

mod keys;
pub(super) mod show;

/// How long commands wait for a database or a blob store that is away, before they fail.
const PATIENCE: Duration = Duration::from_mins(1);

/// The values of the configuration file; all may be absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Data folder, where neither the command line nor `JETWHEEL_DATA` names one.
    pub data: Option<PathBuf>,
    /// Folder with the site's own policy.
    pub policies: Option<PathBuf>,
    /// Folder with the site's own upstreams, read over the built-in ones.
    pub index: Option<PathBuf>,
    /// PEM file with certificate authorities of upstreams, besides the system's.
    pub ca: Option<PathBuf>,
    /// Logins for upstreams, by host or `host:port`.
    pub credentials: BTreeMap<String, Login>,
    /// Whether, and how, pages and files are fetched from upstreams when somebody asks for them.
    pub pull: pull::Setting,
    /// How upstreams are asked.
    pub network: Network,
    /// Address and port to serve on.
    pub listen: Option<String>,
    /// The certificate that is served with; without it no TLS.
    pub tls: Tls,
    /// Who may read.
    pub access: Access,
    /// What bounds clients.
    pub limits: Limits,
    /// What a device's URL without `@` stands for: `newest` (what is held now), `stable`, `candidate`, or a snapshot.
    pub channel: Option<String>,
    /// Path at which a proxy has the mirror, such as `/mirror`; requests may come with it or without.
    pub prefix: Option<String>,
    /// Public key that must have signed a bundle for `import` to take it.
    pub public_key: Option<PathBuf>,
    /// Database of a catalogue that several servers share, `postgres://user@host/database`; none for one in the data folder.
    pub catalogue: Option<String>,
    /// Bucket of blobs that several servers share, `s3://bucket/prefix`; none for files in the data folder.
    pub blobs: Option<String>,
    /// How that bucket is reached.
    pub s3: Bucket,
    /// How many snapshots are kept, besides those that have a name or are named by a channel.
    pub keep_snapshots: Option<usize>,
}

/// The certificate that is served with: both files or neither.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// PEM file with the certificate and those that lead to its authority.
    pub certificate: Option<PathBuf>,
    /// PEM file with its private key.
    pub key: Option<PathBuf>,
}

/// Who may read; changing the mirror always needs a token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Access {
    /// `open` to anybody, or by `token`.
    pub read: Reading,
    /// The same for devices, by their ids or patterns.
    pub devices: BTreeMap<String, Reading>,
}

/// What bounds clients; what is absent is not bounded, or as built in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections of all clients at once.
    pub connections: Option<usize>,
    /// Connections of one client at once.
    pub connections_per_client: Option<usize>,
    /// Requests of one client in each second, in the long run.
    pub requests_per_second: Option<f64>,
    /// How many of them at once; ten seconds' worth unless it is set.
    pub burst: Option<f64>,
    /// The largest upload.
    pub largest_upload: Option<String>,
    /// Addresses or networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<String>,
}

impl Limits {
    /// The limits of a single client.
    pub fn per_client(&self) -> Result<ClientLimits, Usage> {
        let positive = |key: &str, value: f64| {
            let fits = value.is_finite() && value > 0.0;
            if fits {
                Ok(value)
            } else {
                Err(Usage(format!("[limits] {key} is {value}, expected more than 0")))
            }
        };
        if self.connections_per_client == Some(0) {
            return Err(Usage("[limits] connections_per_client is 0, expected at least 1".to_owned()));
        }
        let requests = match (self.requests_per_second, self.burst) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Usage("[limits] burst says nothing without requests_per_second".to_owned()));
            }
            (Some(per_second), burst) => {
                let per_second = positive("requests_per_second", per_second)?;
                let burst = positive("burst", burst.unwrap_or(per_second * BURST_S))?.max(1.0);
                Some(Rate { per_second, burst })
            }
        };
        let network =
            |text: &String| text.parse().map_err(|error| Usage(format!("[limits] trusted_proxies: {error}")));
        let trusted_proxies = self.trusted_proxies.iter().map(network).collect::<Result<_, _>>()?;
        Ok(ClientLimits { connections: self.connections_per_client, requests, trusted_proxies })
    }

    /// Connections of all clients at once.
    pub fn connections(&self) -> Result<usize, Usage> {
        match self.connections {
            None => Ok(server::Limits::default().connections),
            Some(connections @ 1..=MOST_CONNECTIONS) => Ok(connections),
            Some(other) => Err(Usage(format!(
                "[limits] connections is {other}, expected 1 to {MOST_CONNECTIONS}: each takes memory and two open files"
            ))),
        }
    }

    /// The largest upload in bytes.
    pub fn largest_upload(&self) -> Result<Option<u64>, Usage> {
        let size = self.largest_upload.as_deref().map(str::parse::<Size>).transpose();
        let size = size.map_err(|error| Usage(format!("[limits] largest_upload: {error}")))?;
        Ok(size.map(|size| size.0))
    }
}

/// How many seconds' worth of requests may come at once, unless the configuration says so.
const BURST_S: f64 = 10.0;

impl Access {
    /// The rules of the server.
    pub fn rules(&self) -> Rules {
        Rules { read: self.read, devices: self.devices.clone() }
    }
}

/// The name of the configuration file below `$XDG_CONFIG_HOME` (XDG Base Directory Specification 0.8) and `/etc`.
const FILE: &str = "jetwheel/jetwheel.toml";

/// The configuration file that is read where none is named: the user's, or else the machine's; none where neither is there.
pub(super) fn default_file() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
    // The specification has relative paths ignored.
    let user =
        std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute()).or(home);
    let machine = PathBuf::from("/etc");
    let file = user.into_iter().chain([machine]).map(|dir| dir.join(FILE)).find(|file| file.is_file())?;
    // The machine's may hold secrets and be for the service's user alone; others can still inspect a file.
    if let Err(error) = fs_err::File::open(&file) {
        tracing::warn!(%error, "the configuration is not read; built-in values are used");
        return None;
    }
    Some(file)
}

/// How a bucket is reached; credentials come from the environment and files, as for Amazon's own tools.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bucket {
    /// The server, such as `https://s3.site.example`; none for Amazon's.
    pub endpoint: Option<String>,
    /// The server as devices reach it, where that is another address.
    pub public_endpoint: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Whether the bucket is a part of the path, not of the host.
    pub path_style: bool,
    /// PEM file with certificate authorities, besides the system's.
    pub ca: Option<PathBuf>,
    /// Whether files are sent through the mirror, instead of by a redirect to a signed address.
    pub stream: bool,
}

/// The `AWS_…` variables of the environment, and below them the profile of the credentials file.
fn aws_variables() -> Vec<(String, String)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let home = variable("HOME").map(|home| Path::new(&home).join(".aws/credentials"));
    let file = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or(home);
    let text = file.and_then(|file| fs_err::read_to_string(file).ok()).unwrap_or_default();
    let profile = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
    let mut variables = credentials(&text, &profile);
    variables.extend(std::env::vars().filter(|(name, value)| name.starts_with("AWS_") && !value.is_empty()));
    variables
}

/// The values of one profile of a credentials file, as variables.
fn credentials(text: &str, profile: &str) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut ours = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            ours = name.trim() == profile;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| ours) {
            variables.push((name.trim().to_ascii_uppercase(), value.trim().to_owned()));
        }
    }
    variables
}

/// How upstreams are asked; what is absent is as built in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Seconds for a connection to be made.
    pub connect_timeout_s: Option<u64>,
    /// Seconds without any byte after which an answer counts as broken.
    pub read_timeout_s: Option<u64>,
    /// Further tries after the first.
    pub retries: Option<u32>,
    /// Milliseconds before the first further try; each later pause is twice as long.
    pub backoff_ms: Option<u64>,
}

impl Network {
    /// The options of the client, without certificates and logins.
    pub fn options(&self) -> Options {
        let built_in = Options::default();
        Options {
            connect_timeout: self.connect_timeout_s.map_or(built_in.connect_timeout, Duration::from_secs),
            read_timeout: self.read_timeout_s.map_or(built_in.read_timeout, Duration::from_secs),
            retries: self.retries.unwrap_or(built_in.retries),
            backoff: self.backoff_ms.map_or(built_in.backoff, Duration::from_millis),
            ..built_in
        }
    }
}

impl Config {
    /// Where the store keeps what is not in the data folder.
    ///
    /// The password of the database may stand in `PGPASSWORD`, as for PostgreSQL's own tools.
    pub(super) fn backends(&self) -> Backends {
        let database = |url: &String| Postgres {
            url: url.clone(),
            ca: None,
            password: std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty()),
        };
        let bucket = |url: &String| S3 {
            url: url.clone(),
            endpoint: self.s3.endpoint.clone(),
            public_endpoint: self.s3.public_endpoint.clone(),
            region: self.s3.region.clone(),
            path_style: self.s3.path_style,
            ca: self.s3.ca.clone(),
            stream: self.s3.stream,
            variables: aws_variables(),
        };
        Backends {
            catalogue: self.catalogue.as_ref().map(database),
            blobs: self.blobs.as_ref().map(bucket),
            patience: PATIENCE,
        }
    }

    /// Reads a configuration file; paths in it are relative to its folder.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs_err::read_to_string(file).map_err(|error| Usage(error.to_string()))?;
        let mut config: Self = toml::from_str(&text).map_err(|error| {
            // Without the text of the line, which may hold a password.
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map(|before| format!(":{}", before.matches('\n').count().saturating_add(1)));
            Usage(format!("{}{}: {}", file.display(), line.unwrap_or_default(), error.message()))
        })?;
        let folder = file.parent().unwrap_or(Path::new(""));
        for path in [
            &mut config.data,
            &mut config.policies,
            &mut config.index,
            &mut config.ca,
            &mut config.public_key,
            &mut config.s3.ca,
            &mut config.tls.certificate,
            &mut config.tls.key,
        ]
        .into_iter()
        .flatten()
        {
            *path = folder.join(&*path);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_a_credentials_file_is_read_alone() {
        let text = "[default]\naws_access_key_id = one\n# no\n[site]\naws_access_key_id=two\naws_secret_access_key = a=b\n";
        let found = credentials(text, "site");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found, [pair("AWS_ACCESS_KEY_ID", "two"), pair("AWS_SECRET_ACCESS_KEY", "a=b")]);
        assert_eq!(credentials(text, "other"), []);
    }
}
