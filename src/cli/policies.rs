//! Policy folders: which one counts, and what is in it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Usage;
use super::input::read_text;
use crate::policy::Policy;

/// Folder in the data folder with the policy that came in the newest bundle; used where the site has none of its own.
pub(super) const BUNDLE_POLICIES: &str = "policies";

/// Whose policy is in force besides the built-in tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoliciesFrom {
    /// The folder that the command line or the configuration names.
    Site,
    /// The folder that an import made.
    Bundles,
    /// There is none.
    Nowhere,
}

/// Where a folder is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    OnCommandLine,
    InConfiguration,
}

/// Which policy folder counts, beside the site's own: that of bundles may come, and go, while a server runs.
pub(super) fn in_force(own: Option<PathBuf>, data: &Path) -> (Option<PathBuf>, PoliciesFrom) {
    let of_bundles = data.join(BUNDLE_POLICIES);
    match own {
        Some(own) => (Some(own), PoliciesFrom::Site),
        None if of_bundles.is_dir() => (Some(of_bundles), PoliciesFrom::Bundles),
        None => (None, PoliciesFrom::Nowhere),
    }
}

/// Reads a site's policy folder over the built-in tables.
pub fn load(dir: &Path) -> anyhow::Result<Policy> {
    let files = read(dir)?;
    Policy::with_site(&files).map_err(|error| Usage(format!("{}/{error}", dir.display())).into())
}

/// The files of a policy folder: names relative to it, and texts.
pub(super) fn read(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for (folder, prefix) in [(dir.to_owned(), ""), (dir.join("advisories"), "advisories/")] {
        if !folder.is_dir() {
            if prefix.is_empty() {
                return Err(Usage(format!(
                    "{}: no such folder; --policies names a folder",
                    folder.display()
                ))
                .into());
            }
            continue;
        }
        let mut names = Vec::new();
        for entry in fs_err::read_dir(&folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if Path::new(&name).extension().is_some_and(|extension| extension == "toml") {
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            let path = folder.join(&name);
            // A server reads the folder anew while it runs: a pipe would stop it, and a device fill its memory.
            if !fs_err::metadata(&path).context("policy file")?.is_file() {
                return Err(Usage(format!("policy file: {}: not a regular file", path.display())).into());
            }
            let text = read_text(&path)
                .map_err(|error| Usage(format!("policy file: {}: {error}", path.display())))?;
            files.push((format!("{prefix}{name}"), text));
        }
    }
    Ok(files)
}
