//! A site: a data folder with what a store can be kept in besides.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jetwheel::digest::Sha256;
use jetwheel::store::{Backends, Postgres, S3, Store};

/// What the server of tests takes for credentials.
pub(crate) const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "secret")];

/// The site. Its folder goes with it.
pub(crate) struct Site {
    dir: tempfile::TempDir,
    catalogue: Option<String>,
    /// Endpoint and bucket.
    blobs: Option<(String, String)>,
}

impl Site {
    /// All in the data folder.
    pub(crate) fn embedded() -> Self {
        Self::new(None, None)
    }

    /// The catalogue in a database, the blobs in the data folder.
    pub(crate) fn with_postgres(url: &str) -> Self {
        Self::new(Some(url.to_owned()), None)
    }

    /// The blobs in a new bucket; and the catalogue in a database, if there is one.
    pub(crate) fn with_s3(server: &super::s3::Server, bucket: &str, catalogue: Option<String>) -> Self {
        server.bucket(bucket);
        Self::new(catalogue, Some((server.endpoint(), bucket.to_owned())))
    }

    /// The catalogue in a database; the blobs in a bucket that is there, at this endpoint.
    pub(crate) fn at_endpoint(endpoint: String, bucket: &str, catalogue: String) -> Self {
        Self::new(Some(catalogue), Some((endpoint, bucket.to_owned())))
    }

    fn new(catalogue: Option<String>, blobs: Option<(String, String)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bucket = blobs.as_ref().map(|(endpoint, bucket)| (endpoint.as_str(), bucket.as_str()));
        fs_err::write(dir.path().join("site.toml"), settings(catalogue.as_deref(), bucket)).unwrap();
        Self { dir, catalogue, blobs }
    }

    /// The data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("site.toml")
    }

    /// The binary with the options of this site.
    pub(crate) fn command(&self) -> Command {
        self.command_in(&self.data())
    }

    /// The same with another data folder, as on another machine.
    pub(crate) fn command_in(&self, data: &Path) -> Command {
        let mut command = super::jetwheel(data);
        command.arg("--config").arg(self.config());
        command
    }

    /// Opens the store.
    pub(crate) fn open(&self) -> Store {
        let catalogue = self.catalogue.clone().map(|url| Postgres { url, ca: None, password: None });
        let blobs = self.blobs.as_ref().map(|(endpoint, bucket)| S3 {
            url: format!("s3://{bucket}/site"),
            endpoint: Some(endpoint.clone()),
            path_style: true,
            variables: CREDENTIALS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            ..S3::default()
        });
        let backends = Backends { catalogue, blobs, patience: Duration::from_secs(30) };
        Store::open_with(&self.data(), &backends).unwrap()
    }

    /// Takes the catalogue away, and has it made anew.
    pub(crate) fn lose_catalogue(&self) {
        let folder = self.data().join("catalogue");
        if folder.exists() {
            fs_err::remove_dir_all(folder).unwrap();
        } else {
            self.open().rebuild().unwrap();
        }
    }

    fn blob(&self, sha256: &Sha256) -> PathBuf {
        let sha256 = sha256.to_string();
        self.data().join(Path::new("blobs/sha256")).join(&sha256[..2]).join(format!("{sha256}.whl"))
    }

    /// Asks the bucket for a wheel behind the store's back.
    fn object(&self, method: &str, sha256: &Sha256, body: Option<&str>) -> bool {
        let Some((endpoint, bucket)) = &self.blobs else { return false };
        let sha256 = sha256.to_string();
        let path = format!("{bucket}/site/whl/{}/{sha256}.whl", &sha256[..2]);
        assert!(super::s3::ask(endpoint, method, &path, body), "{method} {path}");
        true
    }

    /// Takes the bytes of a wheel away behind the store's back.
    pub(crate) fn remove_blob(&self, sha256: &Sha256) {
        if !self.object("DELETE", sha256, None) {
            fs_err::remove_file(self.blob(sha256)).unwrap();
        }
    }

    /// Leaves bytes as a crash does: without a sidecar.
    pub(crate) fn add_blob(&self, sha256: &Sha256, text: &str) {
        if !self.object("PUT", sha256, Some(text)) {
            let path = self.blob(sha256);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        }
    }
}

/// The lines of a configuration that say what a store is kept in; of the bucket, its endpoint and name.
fn settings(catalogue: Option<&str>, bucket: Option<(&str, &str)>) -> String {
    let catalogue = catalogue.map_or_else(String::new, |url| format!("catalogue = \"{url}\"\n"));
    let blobs = bucket.map_or_else(String::new, |(endpoint, bucket)| {
        format!("blobs = \"s3://{bucket}/site\"\n[s3]\nendpoint = \"{endpoint}\"\npath_style = true\n")
    });
    catalogue + &blobs
}

/// Servers for stores of every kind.
pub(crate) struct Servers {
    postgres: super::postgres::Server,
    s3: super::s3::Server,
}

impl Servers {
    pub(crate) fn start() -> Self {
        Self { postgres: super::postgres::Server::start(), s3: super::s3::Server::start() }
    }

    /// For each pair of what a store can be kept in, its name, and the settings of one that is new. Files pass through the mirror.
    pub(crate) fn pairs(&self) -> [(&'static str, String); 4] {
        let (endpoint, database) = (self.s3.endpoint(), |name| self.postgres.database(name));
        let bucket = |name| {
            self.s3.bucket(name);
            Some((endpoint.as_str(), name))
        };
        let streamed = |settings: String| format!("{settings}stream = true\n");
        [
            ("sled and disk", settings(None, None)),
            ("sled and S3", streamed(settings(None, bucket("bucket1")))),
            ("PostgreSQL and disk", settings(Some(&database("site1")), None)),
            ("PostgreSQL and S3", streamed(settings(Some(&database("site2")), bucket("bucket2")))),
        ]
    }
}
