//! Which upstreams there are, and how they are reached.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use url::Url;

use super::input::read_text;
use super::{Context, Usage};
use crate::upstream::{Index, Options, Upstream};
use crate::wording::with_causes;

/// The built-in upstreams with those of the site over them.
pub(super) fn read_index(dir: Option<PathBuf>, context: &Context) -> anyhow::Result<Index> {
    let mut index = Index::builtin().context("built-in upstreams")?;
    let Some(dir) = dir.or_else(|| context.config.index.clone().map(|dir| context.path(&dir))) else {
        return Ok(index);
    };
    let usage = |error: &dyn std::fmt::Display| Usage(format!("{}: {error}", dir.display()));
    let mut files = Vec::new();
    for entry in fs_err::read_dir(&dir).map_err(|error| Usage(error.to_string()))? {
        let path = entry.map_err(|error| usage(&error))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = read_text(&file).map_err(|error| usage(&error))?;
        index.read(&name, &text).map_err(|error| usage(&error))?;
    }
    Ok(index)
}

/// The upstream of that name, or at that URL; it serves all devices.
pub(super) fn named_upstream(name: &str, index: &Index) -> anyhow::Result<Upstream> {
    let upstream = match index.named(name) {
        Some(upstream) => upstream.clone(),
        None if name.contains("://") => Upstream::at(name).map_err(Usage)?,
        None => {
            let known: Vec<&str> = index.upstreams().iter().map(|upstream| upstream.name.as_str()).collect();
            let known = known.join(", ");
            return Err(Usage(format!("no upstream {name:?}: give a URL, or one of {known}")).into());
        }
    };
    Ok(Upstream { devices: vec!["*".to_owned()], ..upstream })
}

/// The URLs whose hosts may be names of this machine: those of upstreams, and those of proxies.
pub(super) fn own_urls<'a>(upstreams: impl Iterator<Item = &'a Url>) -> Vec<Url> {
    let proxies =
        ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"].map(|name| [name.to_owned(), name.to_lowercase()]);
    let proxies = proxies.iter().flatten().filter_map(|name| std::env::var(name).ok());
    let parsed = |text: String| {
        let text = if text.contains("://") { text } else { format!("http://{text}") };
        text.parse().ok()
    };
    upstreams.cloned().chain(proxies.filter_map(parsed)).collect()
}

/// What the configuration and the environment say about networks.
pub(super) fn network_options(context: &mut Context) -> anyhow::Result<Options> {
    let mut options = context.config.network.options();
    options.ca = context.config.ca.as_deref().map(|file| context.path(file));
    for (host, login) in &context.config.credentials {
        options.credentials.add_host(host, login.clone());
    }
    if let Some(file) = std::env::var_os("NETRC").filter(|file| !file.is_empty()) {
        let file = context.path(Path::new(&file));
        options
            .credentials
            .add_netrc(&file)
            .map_err(|error| Usage(format!("NETRC: {}", with_causes(&error))))?;
    } else if let Some(file) =
        std::env::home_dir().map(|home| home.join(".netrc")).filter(|file| file.is_file())
        && let Err(error) = options.credentials.add_netrc(&file)
    {
        // Nobody asked for that file here, so that it is in disorder stops nothing.
        context.console.say(format_args!("note: {}; it is not used", with_causes(&error)))?;
    }
    Ok(options)
}
