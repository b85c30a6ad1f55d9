//! Whether an upstream has lost most of what was known from it: then its sync stops before anything changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::pages::Pages;
use super::report::Loss;
use super::{Error, Means};
use crate::store::{Listed, Store};
use crate::wheel::ProjectName;

/// Most projects of one upstream whose pages are looked at; of more, as many are taken from all over the alphabet.
const MOST_PROJECTS: usize = 500;

/// Most files that the report names.
const MOST_NAMED: usize = 100;

/// Pages that are waited for at the same time.
const AT_ONCE: usize = 16;

/// Files that one upstream no longer lists, and how many it listed.
#[derive(Debug, Default)]
struct Count {
    projects: u64,
    lost_projects: u64,
    files: u64,
    lost: Vec<Listed>,
}

/// Compares what the upstreams list with what is known from them. Yields the losses, and the places of their upstreams.
///
/// With `accept`, what is lost is marked as gone instead, and the yield names it without any place.
pub(super) async fn losses(
    pages: &Pages,
    means: &Means,
    accept: bool,
    now: &str,
) -> Result<(Vec<Loss>, BTreeSet<usize>), Error> {
    let store = Arc::clone(&means.store);
    let known = tokio::task::spawn_blocking(move || known(&store)).await??;
    let (mut losses, mut places) = (Vec::new(), BTreeSet::new());
    for (order, (source, devices)) in pages.sources.iter().enumerate() {
        let upstream = source.upstream.name.clone();
        let Some(projects) = known.get(&upstream) else { continue };
        let files = projects.values().map(Vec::len).sum::<usize>() as u64;
        // Where even the loss of everything would be none, no page is asked for.
        if !means.policy.is_loss(files, files) {
            continue;
        }
        let count = count(pages, order, projects).await;
        if !means.policy.is_loss(count.lost.len() as u64, count.files) {
            continue;
        }
        losses.push(Loss {
            upstream,
            devices: devices.clone(),
            projects: count.projects,
            lost_projects: count.lost_projects,
            files: count.files,
            lost_files: count.lost.len() as u64,
            lost: count.lost.iter().take(MOST_NAMED).map(|listed| listed.file.clone()).collect(),
            accepted: accept,
        });
        if accept {
            let (store, now) = (Arc::clone(&means.store), now.to_owned());
            tokio::task::spawn_blocking(move || mark(&store, count.lost, &now)).await??;
        } else {
            places.insert(order);
        }
    }
    Ok((losses, places))
}

type Projects = BTreeMap<ProjectName, Vec<Listed>>;

/// Files by the upstream that they are from, less those that are known to be gone.
fn known(store: &Store) -> Result<BTreeMap<String, Projects>, crate::store::Error> {
    let mut known: BTreeMap<String, Projects> = BTreeMap::new();
    for project in store.projects(false)? {
        for listed in store.listing(&project)? {
            if listed.provenance.gone_since.is_none() {
                let of_upstream = known.entry(listed.provenance.upstream.clone()).or_default();
                of_upstream.entry(project.clone()).or_default().push(listed);
            }
        }
    }
    Ok(known)
}

async fn count(pages: &Pages, order: usize, projects: &Projects) -> Count {
    let step = projects.len().div_ceil(MOST_PROJECTS).max(1);
    let asked = projects
        .iter()
        .step_by(step)
        .map(|(project, files)| async move { (pages.ask(order, project).await, files) });
    let mut answers = stream::iter(asked).buffered(AT_ONCE);
    let mut count = Count::default();
    while let Some((answer, files)) = answers.next().await {
        // An outage is no loss.
        let Ok(listing) = &*answer else { continue };
        let links = listing.iter().flat_map(|listing| &listing.files);
        let listed: BTreeSet<&str> = links.map(|link| link.file.filename.as_str()).collect();
        let lost: Vec<&Listed> = files.iter().filter(|file| !listed.contains(file.file.as_str())).collect();
        count.projects = count.projects.saturating_add(1);
        count.files = count.files.saturating_add(files.len() as u64);
        count.lost_projects = count.lost_projects.saturating_add((lost.len() == files.len()).into());
        count.lost.extend(lost.into_iter().cloned());
    }
    count
}

fn mark(store: &Store, lost: Vec<Listed>, now: &str) -> Result<(), crate::store::Error> {
    for listed in lost {
        let mut provenance = listed.provenance;
        provenance.gone_since = Some(now.to_owned());
        store.put_provenance(&listed.sha256, &provenance)?;
    }
    Ok(())
}
