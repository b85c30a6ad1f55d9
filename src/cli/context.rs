//! What every command has at hand.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Cli, Config, Console, Format, audit, config, policies, remote};
use crate::policy::Policy;
use crate::store::Store;

/// Data folder where neither the command line nor `JETWHEEL_DATA` names one.
pub(super) const DEFAULT_DATA: &str = "jetwheel-data";

/// What every command has at hand.
#[derive(Debug)]
pub struct Context {
    /// Where the command was given; relative paths start here.
    pub cwd: PathBuf,
    /// Data folder.
    pub data: PathBuf,
    /// The configuration file's values.
    pub config: Config,
    /// Form of the answer.
    pub format: Format,
    /// Where to write.
    pub console: Console,
    /// Who gave the command, as the audit log names them.
    pub who: String,
    pub(super) policies: Option<PathBuf>,
    pub(super) policies_from: policies::PoliciesFrom,
    pub(super) named: config::show::Named,
    store: Option<Arc<Store>>,
    pub(super) remote: Option<Arc<remote::Remote>>,
}

impl Context {
    /// Reads the configuration that a command line names.
    ///
    /// Where it cannot, the console comes back with the error, so that this can be said.
    pub fn new(
        cli: &Cli,
        cwd: PathBuf,
        console: Console,
        store: Option<Arc<Store>>,
    ) -> Result<Self, (anyhow::Error, Console)> {
        let file = cli.config.as_ref().map(|file| cwd.join(file)).or_else(config::default_file);
        let config = match file.as_deref().map(Config::read).transpose() {
            Ok(config) => config.unwrap_or_default(),
            Err(error) => return Err((error, console)),
        };
        let named = cli.data.as_ref().or(config.data.as_ref());
        let data = cwd.join(named.map_or(Path::new(DEFAULT_DATA), PathBuf::as_path));
        let own = cli.policies.clone().or_else(|| config.policies.clone()).map(|dir| cwd.join(dir));
        let (policies, policies_from) = policies::in_force(own, &data);
        let named = config::show::Named {
            file,
            file_by: config::show::Named::by(cli.config.as_ref(), "--config", "JETWHEEL_CONFIG"),
            data_by: config::show::Named::by(cli.data.as_ref(), "--data", "JETWHEEL_DATA"),
            policies_by: cli.policies.as_ref().map(|_| "--policies"),
        };
        let who = audit::user(rustix::process::getuid().as_raw());
        let format = cli.format;
        let remote = None;
        Ok(Self { cwd, data, config, format, console, who, policies, policies_from, named, store, remote })
    }

    /// The store, opened at the first call.
    pub fn store(&mut self) -> anyhow::Result<Arc<Store>> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let store = Arc::new(Store::open_with(&self.data, &self.config.backends())?);
        if let Some(keep) = self.config.keep_snapshots {
            store.set_keep_snapshots(keep);
        }
        self.store = Some(Arc::clone(&store));
        Ok(store)
    }

    /// The mirror elsewhere that is to do it, where there is one.
    pub(super) fn remote(&self) -> Option<Arc<remote::Remote>> {
        self.remote.as_ref().map(Arc::clone)
    }

    /// Whether a mirror elsewhere does it.
    pub(super) const fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The same for another command on the same store, which writes elsewhere and is given by somebody else.
    pub(super) fn twin(&self, console: Console, who: String) -> Self {
        let own = self.policies.clone().filter(|_| self.policies_from == policies::PoliciesFrom::Site);
        let (policies, policies_from) = policies::in_force(own, &self.data);
        Self {
            cwd: self.cwd.clone(),
            data: self.data.clone(),
            config: self.config.clone(),
            format: self.format,
            console,
            who,
            policies,
            policies_from,
            named: self.named.clone(),
            store: self.store.clone(),
            remote: None,
        }
    }

    /// Gives the store back, so that another process can open it.
    pub fn close_store(&mut self) {
        self.store = None;
    }

    /// The policy in force: the built-in tables with the site's folder over them.
    pub fn policy(&self) -> anyhow::Result<Policy> {
        match &self.policies {
            Some(dir) => policies::load(dir),
            None => Ok(Policy::builtin()),
        }
    }

    /// The site's policy folder, where there is one.
    pub fn policies(&self) -> Option<&Path> {
        self.policies.as_deref()
    }

    /// The policy folder that the command line or the configuration names, and which of them does.
    pub(super) fn site_policies(&self) -> Option<(PathBuf, policies::Named)> {
        let dir = self.policies.clone().filter(|_| self.policies_from == policies::PoliciesFrom::Site)?;
        let of_configuration = self.config.policies.as_ref().map(|folder| self.cwd.join(folder));
        let named = if of_configuration.as_ref() == Some(&dir) {
            policies::Named::InConfiguration
        } else {
            policies::Named::OnCommandLine
        };
        Some((dir, named))
    }

    /// Where an import puts the policy of a bundle.
    pub(super) fn bundle_policies(&self) -> PathBuf {
        self.data.join(policies::BUNDLE_POLICIES)
    }

    /// A path of the command line, made absolute.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.cwd.join(path)
    }
}
