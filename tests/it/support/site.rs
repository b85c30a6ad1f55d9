//! A site: a data folder with what a store can be kept in besides.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jetwheel::digest::Sha256;
use jetwheel::store::{Backends, Postgres, Store};

/// The site. Its folder goes with it.
pub(crate) struct Site {
    dir: tempfile::TempDir,
    catalogue: Option<String>,
}

impl Site {
    /// All in the data folder.
    pub(crate) fn embedded() -> Self {
        Self::new(None)
    }

    /// The catalogue in a database.
    pub(crate) fn with_postgres(url: &str) -> Self {
        Self::new(Some(url.to_owned()))
    }

    fn new(catalogue: Option<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = catalogue.as_ref().map_or_else(String::new, |url| format!("catalogue = \"{url}\"\n"));
        fs_err::write(dir.path().join("site.toml"), text).unwrap();
        Self { dir, catalogue }
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
        let mut command = super::jetwheel(&self.data());
        command.arg("--config").arg(self.config());
        command
    }

    /// Opens the store.
    pub(crate) fn open(&self) -> Store {
        let catalogue = self.catalogue.clone().map(|url| Postgres { url, ca: None, password: None });
        let backends = Backends { catalogue, patience: Duration::from_secs(30) };
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

    /// Takes the bytes of a wheel away behind the store's back.
    pub(crate) fn remove_blob(&self, sha256: &Sha256) {
        fs_err::remove_file(self.blob(sha256)).unwrap();
    }

    /// Leaves bytes as a crash does: without a sidecar.
    pub(crate) fn add_blob(&self, sha256: &Sha256, bytes: &[u8]) {
        let path = self.blob(sha256);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, bytes).unwrap();
    }
}
