//! What a `postgres://` address means, and how the connection is kept private.
//!
//! Over a network connections are encrypted, and the server's certificate is checked with its name, unless the address says
//! `sslmode=disable`. On this machine (a socket, `localhost`, a loopback address) they are not, unless it says `require` or more.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::Error;
use crate::wording::with_causes;

/// How long a connection may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long sent bytes may stay unacknowledged: a server that lost its power sends no reset.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// The longest statement text of an address that is shown.
const LONGEST_SHOWN: usize = 200;

/// A PostgreSQL database.
#[derive(Clone, Default)]
pub struct Postgres {
    /// Its address: `postgres://user:password@host:port/database?sslmode=…`, where the mode is `disable`, `require`,
    /// `verify-ca` or `verify-full`; the last three all check certificate and name.
    pub url: String,
    /// PEM file with certificate authorities, in place of the system's. `sslrootcert` in the address says the same.
    pub ca: Option<PathBuf>,
    /// Password, where the address has none.
    pub password: Option<String>,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Postgres {{ url: {:?} }}", without_password(&self.url))
    }
}

/// How to connect.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    /// The address for messages.
    pub(super) name: String,
}

impl Postgres {
    pub(super) fn way(&self) -> Result<Way, Error> {
        let name = without_password(&self.url);
        let refuse = |found: String| Error::Address { address: name.clone(), found };
        let mut url = url::Url::parse(&self.url).map_err(|error| refuse(error.to_string()))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(refuse("an address of PostgreSQL begins with postgres://".to_owned()));
        }
        let (mut mode, mut ca, mut rest) = (None, self.ca.clone(), Vec::new());
        for (key, value) in url.query_pairs() {
            match &*key {
                "sslmode" => mode = Some(value.into_owned()),
                "sslrootcert" => ca = Some(PathBuf::from(value.into_owned())),
                _ => rest.push((key.into_owned(), value.into_owned())),
            }
        }
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        let mut config: Config = url.as_str().parse().map_err(|error| refuse(with_causes(&error)))?;
        if config.get_password().is_none()
            && let Some(password) = &self.password
        {
            config.password(password);
        }
        config.ssl_mode(match mode.as_deref() {
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            Some("disable") => SslMode::Disable,
            Some(other) => {
                let text: String = other.chars().take(40).collect();
                return Err(refuse(format!("sslmode is disable, require or verify-full, found {text:?}")));
            }
            None if config.get_hosts().iter().all(is_local) => SslMode::Disable,
            None => SslMode::Require,
        });
        config
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(UNACKNOWLEDGED)
            .keepalives_idle(UNACKNOWLEDGED)
            .application_name("jetwheel");
        let tls = if config.get_ssl_mode() == SslMode::Disable {
            client_config(rustls::RootCertStore::empty())
        } else {
            client_config(roots(ca.as_deref())?)
        };
        let tls = MakeRustlsConnect::new(tls.map_err(|error| refuse(error.to_string()))?);
        Ok(Way { config, tls, name })
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

fn client_config(roots: rustls::RootCertStore) -> Result<rustls::ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The authorities of a PEM file, or else the system's.
fn roots(ca: Option<&Path>) -> Result<rustls::RootCertStore, Error> {
    let mut roots = rustls::RootCertStore::empty();
    let Some(path) = ca else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let text = fs_err::read(path).map_err(Error::io(path))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let added = certificate.map_err(|error| error.to_string());
        let added = added.and_then(|found| roots.add(found).map_err(|error| error.to_string()));
        added.map_err(|found| Error::Damaged { path: path.to_owned(), found })?;
    }
    if roots.is_empty() {
        let found = "holds no certificate in PEM".to_owned();
        return Err(Error::Damaged { path: path.to_owned(), found });
    }
    Ok(roots)
}

/// An address without what must not be seen.
fn without_password(text: &str) -> String {
    let Ok(mut url) = url::Url::parse(text) else {
        return "the address of the catalogue".to_owned();
    };
    if url.set_password(None).is_err() || url.query_pairs().any(|(key, _)| key == "password") {
        return format!("{}://", url.scheme());
    }
    url.set_query(None);
    url.as_str().chars().take(LONGEST_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(url: &str) -> Result<Way, Error> {
        Postgres { url: url.to_owned(), ca: None, password: None }.way()
    }

    #[test]
    fn is_private_over_a_network_unless_told_otherwise() {
        let mode = |url: &str| way(url).unwrap().config.get_ssl_mode();
        assert_eq!(mode("postgres://j@db.example/j"), SslMode::Require);
        assert_eq!(mode("postgres://j@db.example/j?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("postgres://j@127.0.0.1:5432/j"), SslMode::Disable);
        assert_eq!(mode("postgres://j@[::1]/j?sslmode=verify-full"), SslMode::Require);
        assert_eq!(mode("postgres:///j?host=/run/postgresql"), SslMode::Disable);
    }

    #[test]
    fn never_shows_a_password() {
        let text = format!(
            "{:?} {}",
            Postgres { url: "postgres://j:secret@db/j".to_owned(), ..Postgres::default() },
            way("postgres://j:secret@db/j?sslmode=maybe").err().unwrap()
        );
        assert!(!text.contains("secret") && text.contains("sslmode is disable"), "{text}");
    }
}
