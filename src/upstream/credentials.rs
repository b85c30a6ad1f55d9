//! User names and passwords for upstreams: from URLs, from the configuration, from a netrc file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use percent_encoding::percent_decode_str;
use url::Url;

use super::error::{Error, without_credentials};

/// A user name and a password. Its debug form shows neither.
#[derive(Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// User name; `__token__` for most tokens.
    pub username: String,
    /// Password or token.
    #[serde(default)]
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Login { .. }")
    }
}

/// Which login goes to which host, and to no other.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// By scheme, host and port, out of URLs.
    origins: BTreeMap<String, Login>,
    /// By host, or host and port, out of the configuration.
    hosts: BTreeMap<String, Login>,
    /// By host, out of a netrc file.
    netrc: BTreeMap<String, Login>,
}

impl Credentials {
    /// Adds a login for a host, or for `host:port`.
    pub fn add_host(&mut self, host: &str, login: Login) {
        self.hosts.insert(host.to_ascii_lowercase(), login);
    }

    /// Reads a netrc file.
    pub fn add_netrc(&mut self, file: &Path) -> Result<(), Error> {
        let netrc = netrc::Netrc::from_file(file).map_err(|error| match error {
            netrc::Error::Io(source) => Error::Io { path: file.to_owned(), source },
            netrc::Error::Parsing { .. } => Error::Netrc { path: file.to_owned() },
        })?;
        for (host, entry) in netrc.hosts {
            let login = Login { username: entry.login, password: entry.password };
            self.netrc.insert(host.to_ascii_lowercase(), login);
        }
        Ok(())
    }

    /// Takes the credentials out of a URL, and remembers them for its scheme, host and port.
    pub fn take_from(&mut self, url: &Url) -> Url {
        if !url.username().is_empty() || url.password().is_some() {
            let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
            let login = Login {
                username: decoded(url.username()),
                password: decoded(url.password().unwrap_or_default()),
            };
            self.origins.insert(url.origin().ascii_serialization(), login);
        }
        without_credentials(url)
    }

    /// The login for a URL.
    pub fn for_url(&self, url: &Url) -> Option<&Login> {
        if let Some(login) = self.origins.get(&url.origin().ascii_serialization()) {
            return Some(login);
        }
        let host = url.host_str()?.to_ascii_lowercase();
        let with_port = url.port_or_known_default().map(|port| format!("{host}:{port}"));
        with_port
            .and_then(|host| self.hosts.get(&host))
            .or_else(|| self.hosts.get(&host))
            .or_else(|| self.netrc.get(&host))
        // netrc's `default` entry would hand a password to any host that a page links to: it is not used.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn credentials_of_a_url_go_to_its_origin_alone() {
        let mut credentials = Credentials::default();
        let plain = credentials.take_from(&url("https://me:p%40ss@a.test/simple/"));
        assert_eq!(plain.as_str(), "https://a.test/simple/");
        assert_eq!(credentials.for_url(&url("https://a.test/x")).unwrap().password, "p@ss");
        for other in ["http://a.test/", "https://a.test:8443/", "https://b.test/", "https://a.test.evil/"] {
            assert_eq!(credentials.for_url(&url(other)), None, "{other}");
        }
        assert!(!format!("{credentials:?}").contains("p@ss"));
    }

    #[test]
    fn netrc_goes_by_host_and_its_default_is_not_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(
            file.path(),
            "machine a.test login me password secret\ndefault login any password other\n",
        )
        .unwrap();
        let mut credentials = Credentials::default();
        credentials.add_netrc(file.path()).unwrap();
        assert_eq!(credentials.for_url(&url("https://a.test:8443/")).unwrap().password, "secret");
        assert_eq!(credentials.for_url(&url("https://b.test/")), None);
    }
}
