//! Which wheels of the sets are fetched next, and when they go into the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;

use super::Sets;
use super::goal::{Goal, Outcome};
use crate::sync::Error;
use crate::sync::plan::Knowledge;
use crate::sync::report::Report;
use crate::sync::take::{Keeping, Taken};
use crate::sync::view::Place;
use crate::wheel::Facts;
use crate::wording::with_causes;

/// Wheels up to this size are fetched together, whatever their order: waiting for each costs more than a few of them.
const SMALL: u64 = 32 << 20;

/// How many times larger than the smallest a wheel may be to be inspected with it.
const LARGER: u64 = 4;

/// Heads of files that are asked for at the same time.
const HEADS_AT_ONCE: usize = 8;

impl Sets {
    /// Asks for the sizes that pages do not state.
    pub(super) async fn ask_sizes(&self, places: impl IntoIterator<Item = &Place>) {
        let asked = places.into_iter().filter_map(|(project, index)| {
            let entry = self.shelf.seen(project)?;
            let gathered = entry.gathered();
            if gathered.size(*index).is_some() || gathered.sizes.contains_key(index) {
                return None;
            }
            let origin = gathered.origins.get(*index)?.clone()?;
            Some((Arc::clone(&entry), *index, origin))
        });
        let asked: Vec<_> = asked.collect();
        let asking = asked.into_iter().map(|(entry, index, origin)| async move {
            let size = self.shelf.taker.size(&origin).await;
            entry.gathered().sizes.insert(index, size);
        });
        stream::iter(asking).buffer_unordered(HEADS_AT_ONCE).collect::<Vec<()>>().await;
    }

    /// The smallest of some files, and others that do not much delay what they tell.
    pub(super) async fn smallest(&self, places: &BTreeSet<Place>) -> Vec<Place> {
        self.ask_sizes(places).await;
        let size = |place: &Place| {
            let entry = self.shelf.seen(&place.0)?;
            entry.gathered().size(place.1)
        };
        let mut sized: Vec<(u64, Place)> =
            places.iter().map(|place| (size(place).unwrap_or(u64::MAX), place.clone())).collect();
        sized.sort();
        let limit = sized.first().map_or(0, |(size, _)| size.saturating_mul(LARGER).max(SMALL));
        let batch = sized.into_iter().take(self.jobs).filter(|(size, _)| *size <= limit);
        batch.map(|(_, place)| place).collect()
    }

    /// Fetches a batch, at most as much at once as the pass may, and notes what is known of it then.
    pub(super) async fn take(&mut self, batch: &[Place], report: &mut Report) -> Result<(), Error> {
        let fetcher = &self.shelf.taker;
        let work = batch.iter().filter_map(|place| {
            let entry = self.shelf.seen(&place.0)?;
            let (candidate, origin) = entry.candidate(place.1)?;
            let size = entry.gathered().size(place.1);
            Some(async move {
                let taken = match &origin {
                    Some(origin) => Some(fetcher.take(&candidate, origin, size, Keeping::Later).await?),
                    None => None,
                };
                Ok::<_, Error>((entry, place.1, taken))
            })
        });
        // Where one fails, those that are under way still come to their end.
        let mut failure = None;
        for outcome in join_all(work).await {
            let (entry, index, taken) = match outcome {
                Ok(taken) => taken,
                Err(error) => {
                    failure = failure.or(Some(error));
                    continue;
                }
            };
            // A file that the store lost and no upstream lists any more cannot be had.
            let mut taken = taken.unwrap_or_else(|| Taken::without_download(Knowledge::Unreachable));
            taken.tell(report);
            if let Some(pending) = taken.pending {
                self.pending.insert(pending.facts.sha256, pending);
            }
            if let Some(candidate) = entry.gathered().candidates.get_mut(index) {
                candidate.knowledge = taken.knowledge;
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Takes a whole set into the store.
    pub(super) async fn store(&mut self, goal: &mut Goal) -> Result<(), Error> {
        let has_all = goal.picks().iter().all(|pick| self.facts(&pick.place).is_some());
        if !has_all || self.dry_run {
            return Ok(());
        }
        self.put(goal).await?;
        if let Outcome::Set(picks) = std::mem::replace(&mut goal.outcome, Outcome::Open) {
            goal.outcome = Outcome::Whole(picks);
        }
        Ok(())
    }

    /// Takes what is there of a set into the store.
    pub(super) async fn put(&mut self, goal: &Goal) -> Result<(), Error> {
        let facts: Vec<Arc<Facts>> = goal.picks().iter().filter_map(|pick| self.facts(&pick.place)).collect();
        for facts in facts {
            let Some(pending) = self.pending.remove(&facts.sha256) else { continue };
            let store = Arc::clone(&self.shelf.taker.means.store);
            let putting =
                move || store.put(pending.spool, &pending.facts, &pending.metadata, &pending.provenance);
            tokio::task::spawn_blocking(putting).await??;
        }
        Ok(())
    }

    /// Keeps what was fetched before an error of our own, and says what is still to be fetched.
    pub(super) async fn broken_off(&mut self, goals: &[Goal], error: Error) -> Error {
        for goal in goals {
            if let Err(second) = self.put(goal).await {
                tracing::warn!("not all that was fetched could be kept: {}", with_causes(&second));
                break;
            }
        }
        if !error.is_full() {
            return error;
        }
        let places: BTreeSet<&Place> = goals.iter().flat_map(Goal::picks).map(|pick| &pick.place).collect();
        let left = places.into_iter().filter_map(|(project, index)| {
            let entry = self.shelf.seen(project)?;
            let gathered = entry.gathered();
            match gathered.candidates.get(*index)?.knowledge {
                Knowledge::Unknown => Some(gathered.size(*index).unwrap_or(0)),
                _ => None,
            }
        });
        let (mut files, mut bytes) = (0_usize, 0_u64);
        for size in left {
            (files, bytes) = (files.saturating_add(1), bytes.saturating_add(size));
        }
        Error::Full { files, bytes, source: Box::new(error) }
    }
}
