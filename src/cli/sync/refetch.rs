//! Fetching a known file again, by where it came from: for `verify --repair`.

use std::io;
use std::sync::Arc;
use std::thread;

use crate::cli::upstreams::network_options;
use crate::cli::{Context, Usage};
use crate::store::Row;
use crate::upstream::{Client, Progress, Wanted, fetch};
use crate::wording::with_causes;

/// A function that fetches a file by what its row says of its origin.
pub(in crate::cli) fn refetch(
    context: &mut Context,
) -> anyhow::Result<impl Fn(&Row, &mut fs_err::File) -> Result<(), String> + use<>> {
    let options = network_options(context)?;
    let client = Client::new(options).map_err(|error| Usage(with_causes(&error)))?;
    Ok(move |row: &Row, file: &mut fs_err::File| {
        let url = row.provenance.url.as_deref().ok_or("it came from no upstream")?;
        let wanted = Wanted {
            url: url.parse().map_err(|error| format!("{url}: {error}"))?,
            sha256: Some(row.facts.sha256),
            size: Some(row.facts.size),
            limit: row.facts.size,
            append_only: false,
        };
        // A thread of its own, since this one may drive a runtime already.
        let (path, client) = (file.path(), &client);
        let nobody: Progress = Arc::new(|_| {});
        let fetching = || -> Result<(), String> {
            let runtime = super::runtime().map_err(|error: io::Error| error.to_string())?;
            let fetched = runtime.block_on(fetch(client, &wanted, path, &nobody));
            fetched.map(drop).map_err(|error| with_causes(&error))
        };
        thread::scope(|scope| scope.spawn(fetching).join())
            .unwrap_or_else(|_| Err("the download ended by a panic".to_owned()))
    })
}
