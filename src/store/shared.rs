//! Writing to a catalogue that several processes share.
//!
//! The order of writes is that of the embedded store: blob, METADATA member, sidecar, records. In place of an exclusive lock
//! there are locks of digests, pins, URLs and projects in the database, held until the records are there. A process that dies
//! between sidecar and records leaves the digest in the table `pending`: whoever changes it next, or opens the store, begins
//! with the sidecar.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::away::Waiting;
use super::blobs::Part;
use super::catalogue::record::{counts_key, digest_key};
use super::catalogue::{Change, Fault, Postgres, Records, postgres};
use super::notes::Document;
use super::postgres::{Lock, News, Session};
use super::sidecar::Sidecar;
use super::snapshot::Index;
use super::write::Edit;
use super::{Error, Recovery, Store, locked, recover};
use crate::digest::Sha256;
use crate::wheel::ProjectName;

/// How old a pending digest is before another process looks after it: its writer has given up by then.
const ABANDONED: &str = "10 minutes";

impl Store {
    /// Does something once more while what it needs is away, as long as this store's patience lasts.
    pub(super) fn patiently<T>(&self, attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
        let mut waiting = Waiting::begin();
        loop {
            let result = attempt();
            let Err(Error::Unreachable { place, found }) = &result else { return result };
            if !waiting.goes_on(place, found, self.patience()) {
                return result;
            }
        }
    }

    /// Replaces a sidecar, and the records that follow from it. `keys` are those of records that `edit` goes by.
    pub(super) fn change_shared(
        &self,
        postgres: &Postgres,
        sha256: &Sha256,
        keys: &[Vec<u8>],
        edit: &Edit<'_>,
    ) -> Result<(), Error> {
        self.patiently(|| self.try_change(postgres, sha256, keys, edit))
    }

    fn try_change(
        &self,
        postgres: &Postgres,
        sha256: &Sha256,
        keys: &[Vec<u8>],
        edit: &Edit<'_>,
    ) -> Result<(), Error> {
        let database = &postgres.database;
        let refused = |fault| database.error(fault);
        let session = database.begin().map_err(refused)?;
        session.lock_shared(Lock::Writers).map_err(refused)?;
        let own = digest_key(sha256);
        let locks: Vec<Lock<'_>> =
            keys.iter().map(Vec::as_slice).chain([own.as_slice()]).map(Lock::Key).collect();
        session.lock(&locks).map_err(refused)?;
        let (before, settled) = self.before(&session, sha256)?;
        let after = edit(&session, before.clone())?;
        if settled && before.as_ref() == Some(&after) {
            return Ok(());
        }
        let rendered = super::write::rendered(&after)?;
        database
            .query(
                "INSERT INTO pending (sha256) VALUES ($1) ON CONFLICT (sha256) DO UPDATE SET since = now()",
                || vec![Box::new(sha256.0.to_vec())],
            )
            .map_err(refused)?;
        let blobs = &self.places.blobs;
        blobs.put(sha256, Part::Sidecar, &rendered)?;
        blobs.settle(sha256)?;
        let stamp = self.stamp(sha256)?;
        let projects: Vec<&ProjectName> =
            after.files.iter().filter_map(|entry| entry.facts.project.as_ref()).collect();
        let counts: Vec<Vec<u8>> = projects.iter().map(|project| counts_key(project)).collect();
        let locks: Vec<Lock<'_>> = counts.iter().map(|key| Lock::Key(key)).collect();
        session.lock(&locks).map_err(refused)?;
        let mut counts = BTreeMap::new();
        let names: Vec<Option<String>> =
            projects.iter().map(|project| Some(project.as_str().to_owned())).collect();
        recover::changes(&session, sha256, &after, stamp, &mut counts)
            .and_then(|mut changes| {
                changes.push(recover::sidecar_change(sha256, &rendered));
                postgres::write(&session, &recover::with_counts(changes, counts))?;
                session.query("DELETE FROM pending WHERE sha256 = $1", vec![Box::new(sha256.0.to_vec())])?;
                session.tell(names)?;
                session.commit()
            })
            .map_err(refused)?;
        self.revisions.bump(projects);
        Ok(())
    }

    /// What is known of a digest, and whether the records say so too.
    fn before(&self, session: &Session, sha256: &Sha256) -> Result<(Option<Sidecar>, bool), Error> {
        let refused = |fault| self.refusal(fault);
        let pending = session
            .query("SELECT 1 FROM pending WHERE sha256 = $1", vec![Box::new(sha256.0.to_vec())])
            .map_err(refused)?;
        let known = session.record(&recover::sidecar_key(sha256)).map_err(refused)?;
        if pending.is_empty()
            && let Some(known) = known.and_then(|bytes| Sidecar::parse(&bytes, sha256).ok())
        {
            return Ok((Some(known), true));
        }
        match recover::find_sidecar(&self.places.blobs, sha256) {
            Ok(found) => Ok((found, false)),
            Err(Error::Damaged { path, found }) => {
                tracing::warn!(sidecar = %path.display(), "is replaced: {found}");
                Ok((None, false))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes the records of digests whose writer died between sidecar and records.
    pub(super) fn settle_pending(&self, postgres: &Postgres) -> Result<(), Error> {
        let database = &postgres.database;
        let rows = database
            .query("SELECT sha256 FROM pending WHERE since < now() - $1::text::interval", || {
                vec![Box::new(ABANDONED)]
            })
            .map_err(|fault| database.error(fault))?;
        database.prune_changes().map_err(|fault| database.error(fault))?;
        for row in rows {
            let Ok(sha256) = row.get::<_, &[u8]>(0).try_into().map(Sha256) else { continue };
            let kept = |_: &dyn Records, sidecar: Option<Sidecar>| sidecar.ok_or(Error::Unknown(sha256));
            match self.try_change(postgres, &sha256, &[], &kept) {
                Ok(()) => tracing::info!(%sha256, "its records were made up for"),
                // Its writer died before the sidecar was there.
                Err(Error::Unknown(_)) => {
                    database
                        .query("DELETE FROM pending WHERE sha256 = $1", || vec![Box::new(sha256.0.to_vec())])
                        .map_err(|fault| database.error(fault))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes all records anew in one transaction: others read the old ones until it ends, and writers wait.
    pub(super) fn rebuild_shared(&self, postgres: &Postgres, why: &str) -> Result<Recovery, Error> {
        let refused = |fault| postgres.database.error(fault);
        let session = postgres.database.begin().map_err(refused)?;
        session.lock(&[Lock::Writers]).map_err(refused)?;
        session.query("DELETE FROM record", Vec::new()).map_err(refused)?;
        session.query("DELETE FROM pending", Vec::new()).map_err(refused)?;
        let mut write = |changes: Vec<Change>| postgres::write(&session, &changes).map_err(refused);
        let recovery = recover::collect(&self.places.blobs, true, why.to_owned(), &mut write)?;
        session.tell(vec![Some("*".to_owned())]).and_then(|_| session.commit()).map_err(refused)?;
        self.revisions.bump_all();
        Ok(recovery)
    }

    /// Learns from now on what other processes change.
    pub(super) fn watch(&self, postgres: &Postgres, after: i64) {
        let (revisions, snapshots) = (Arc::clone(&self.revisions), Arc::clone(&self.snapshots));
        let tokens = Arc::clone(&self.tokens);
        postgres.database.watch(after, move |news: News| {
            if let Some(rows) = news.notes {
                let key = Document::Tokens.row();
                let text = rows.documents.iter().find(|(name, _)| *name == key);
                tokens.follow(text.map(|(_, text)| text.as_slice()), rows.as_of);
                let newer = Index::of_rows(rows);
                let mut index = locked(&snapshots);
                if newer.as_of >= index.as_of {
                    *index = newer;
                }
            }
            let projects: Vec<ProjectName> =
                news.projects.iter().filter_map(|name| name.parse().ok()).collect();
            if news.all {
                revisions.bump_all();
            } else if !projects.is_empty() {
                revisions.bump(&projects);
            }
        });
    }

    /// A fault in words for whoever called the store.
    pub(super) fn refusal(&self, fault: Fault) -> Error {
        match &self.database {
            Some(database) => database.error(fault),
            None => recover::refusal(&self.places.layout, fault),
        }
    }
}
