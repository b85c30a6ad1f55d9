//! The catalogue in force: asked, made anew where it shows damage, and closed.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLockReadGuard};

use fs_err as fs;
use serde::Serialize;

use super::catalogue::{self, Catalogue, Fault};
use super::{Error, Incident, Places, Store, locked, recover};
use crate::digest::Sha256;

/// What the store had to do to get its catalogue back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// What gave doubt of the old catalogue.
    pub why: String,
    /// How many files the new one has.
    pub files: u64,
    /// Digests whose sidecar files could not be read.
    pub unreadable: Vec<Sha256>,
}

impl Store {
    /// What happened to the catalogue since the store was opened, for health and metrics; none when nothing did.
    pub fn recovery(&self) -> Option<Recovery> {
        locked(&self.recovery).clone()
    }

    /// Makes the catalogue anew from the sidecar files; yields how many files it has.
    ///
    /// The old one is moved aside until the new one is whole, and put back where that fails.
    pub fn rebuild(&self) -> Result<Recovery, Error> {
        if let Some(database) = &self.database {
            let shared = catalogue::Postgres { database: database.clone() };
            return self.rebuild_shared(&shared, "it was asked for");
        }
        self.places.layout.check_space(0)?;
        let (folder, aside) = (self.places.layout.catalogue(), self.places.layout.dir.join("catalogue.old"));
        let _turn = locked(&self.writer);
        let mut place = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        *place = None;
        recover::set_dirty(&self.places.layout)?;
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(Error::io(&aside))?;
        }
        fs::rename(&folder, &aside).map_err(Error::io(&folder))?;
        match recover::fill(&self.places, "it was asked for".to_owned()) {
            Ok((catalogue, recovery)) => {
                *place = Some(catalogue);
                drop(place);
                self.revisions.bump_all();
                fs::remove_dir_all(&aside).map_err(Error::io(&aside))?;
                Ok(recovery)
            }
            Err(error) => {
                let _nothing_there = fs::remove_dir_all(&folder);
                fs::rename(&aside, &folder).map_err(Error::io(&aside))?;
                Err(error)
            }
        }
    }

    /// What the catalogue is called in messages.
    pub(super) fn catalogue_name(&self) -> PathBuf {
        match &self.database {
            Some(database) => PathBuf::from(database.name()),
            None => self.places.layout.catalogue(),
        }
    }

    /// Asks the catalogue; where an embedded one shows damage, makes it anew and asks again.
    pub(super) fn read<T>(&self, question: impl Fn(&Catalogue) -> Result<T, Fault>) -> Result<T, Error> {
        if self.database.is_some() {
            return self.patiently(|| match self.catalogue()?.as_ref() {
                Some(catalogue) => question(catalogue).map_err(|fault| self.refusal(fault)),
                None => Err(self.refusal(Fault::Refused("it is closed".to_owned()))),
            });
        }
        let fault = match self.catalogue()?.as_ref().map(&question) {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(fault)) => fault,
            None => Fault::closed(),
        };
        let why = recover::doubt(fault).map_err(|fault| recover::refusal(&self.places.layout, fault))?;
        self.renew(|places| recover::anew(places, why))?;
        match self.catalogue()?.as_ref().map(&question) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(fault)) => Err(recover::refusal(&self.places.layout, fault)),
            None => Err(recover::refusal(&self.places.layout, Fault::closed())),
        }
    }

    /// The catalogue, opened anew where the last attempt to do so failed.
    pub(super) fn catalogue(&self) -> Result<RwLockReadGuard<'_, Option<Catalogue>>, Error> {
        let catalogue = self.catalogue.read().unwrap_or_else(PoisonError::into_inner);
        if catalogue.is_some() {
            return Ok(catalogue);
        }
        drop(catalogue);
        self.renew(recover::reopen)?;
        Ok(self.catalogue.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes the catalogue and puts another in its place. Nothing is served from it meanwhile.
    ///
    /// On a full disk the old one stays: it can still be read.
    pub(super) fn renew(
        &self,
        open: impl FnOnce(&Places) -> Result<(Catalogue, Option<Recovery>), Error>,
    ) -> Result<(), Error> {
        self.places.layout.check_space(0)?;
        let mut place = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        *place = None;
        let (catalogue, recovery) = open(&self.places)?;
        *place = Some(catalogue);
        drop(place);
        self.note_recovery(recovery);
        Ok(())
    }

    /// Keeps in mind, and among the incidents, that the catalogue was made anew.
    pub(super) fn note_recovery(&self, recovery: Option<Recovery>) {
        let Some(recovery) = recovery else { return };
        let incident = Incident::of_catalogue(&recovery);
        if let Err(error) = self.put_incident(&incident) {
            tracing::error!("the incident could not be noted: {error}");
        }
        self.revisions.bump_all();
        *locked(&self.recovery) = Some(recovery);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.write_uses() {
            tracing::warn!("the last uses of tokens could not be noted: {error}");
        }
        let place = self.catalogue.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(catalogue) = place.take() else { return };
        if self.database.is_some() {
            // Others have it open; what this process put in its own spool goes.
            let _swept_by_the_next = fs::remove_dir_all(self.places.layout.spool());
            return;
        }
        let sum = catalogue.sum();
        drop(catalogue);
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        if writer.ends_clean()
            && let Some(sum) = sum
            && let Err(error) = recover::set_clean(&self.places.layout, &sum)
        {
            tracing::warn!("the next start will list all sidecar files: {error}");
        }
        self.places.layout.hold_reserve();
    }
}
