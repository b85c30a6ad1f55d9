//! The configuration file: one TOML file, whose values become options of the modules.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Usage;

/// The values of the configuration file; all may be absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Folder with the site's own policy.
    pub policies: Option<PathBuf>,
    /// Folder with the site's own upstreams, read over the built-in ones.
    pub index: Option<PathBuf>,
    /// Address and port to serve on.
    pub listen: Option<String>,
}

impl Config {
    /// Reads a configuration file; paths in it are relative to its folder.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs_err::read_to_string(file).map_err(|error| Usage(error.to_string()))?;
        let mut config: Self =
            toml::from_str(&text).map_err(|error| Usage(format!("{}: {error}", file.display())))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        for path in [&mut config.policies, &mut config.index].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        Ok(config)
    }
}
