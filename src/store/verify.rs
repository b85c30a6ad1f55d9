//! Checks every byte of the store against what it says of itself, and mends what can be mended.
//!
//! Blobs are hashed on all processors, a piece at a time. What is found is compared in both directions: each sidecar
//! with its blob, METADATA member and rows, and each row and blob with its sidecar.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;
use serde::Serialize;

use super::blobs::Part;
use super::catalogue::Records as _;
use super::catalogue::record::{Indexed, Light, digest_key, file_key, parse_payload, strange, unseal};
use super::sidecar::Sidecar;
use super::{Error, Row, SnapshotId, Store, locked, recover};
use crate::digest::{Hasher, Sha256};
use crate::wheel::ProjectName;
use crate::wording::counted;

/// Size in bytes of the pieces in which blobs are read; each processor has one in memory.
const PIECE: usize = 256 << 10;

/// What a check of the store found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// How many blobs were hashed.
    pub blobs: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many digests are known, those without bytes included.
    pub sidecars: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Blobs that no sidecar speaks of, as a crash leaves them: they do no harm.
    pub orphans: Vec<Sha256>,
    /// How many snapshots were read.
    pub snapshots: u64,
    /// Snapshots that are damaged, or list what is lost.
    pub damaged_snapshots: Vec<SnapshotFinding>,
}

/// What is wrong with a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotFinding {
    /// Its id.
    pub snapshot: SnapshotId,
    /// Its file.
    pub path: PathBuf,
    /// What was found, and what was expected.
    pub text: String,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What sort of thing.
    pub kind: FindingKind,
    /// Digest of the wheel.
    pub sha256: Sha256,
    /// File name of the wheel, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Project of the wheel, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// File of the store that is concerned.
    pub path: PathBuf,
    /// What was found, and what was expected.
    pub text: String,
    /// Whether all is right again.
    pub mended: bool,
    /// What was done about it, or what is to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The sorts of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A blob's bytes are not those of its digest.
    DamagedBlob,
    /// A blob that should be there is not.
    MissingBlob,
    /// A `.metadata` file is not the METADATA member that the facts speak of, or is not there.
    DamagedMetadata,
    /// A sidecar file is not what was written.
    DamagedSidecar,
    /// A row's sidecar file is not there.
    MissingSidecar,
    /// A row says something else than the sidecar file, or is not there.
    DamagedRow,
}

/// Fetches a file anew by what its row says of its origin, into a file; says why it could not.
pub type Fetch<'a> = dyn Fn(&Row, &mut fs::File) -> Result<(), String> + 'a;

impl Store {
    /// Checks all blobs, METADATA members, sidecar files and rows. Changes nothing.
    ///
    /// `progress` is told how many bytes of how many are hashed, from several threads.
    pub fn verify(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report, Error> {
        let mut sidecars = Vec::new();
        recover::list(&self.places.blobs, |sha256, _| sidecars.push(sha256))?;
        sidecars.sort_unstable();
        let known: BTreeSet<Sha256> = sidecars.iter().copied().collect();
        let mut report = Report { sidecars: sidecars.len() as u64, ..Report::default() };
        let mut total = 0_u64;
        self.places.blobs.list(Part::Wheel, &mut |sha256, found| {
            total = total.saturating_add(found.stamp.len);
            if !known.contains(&sha256) {
                report.orphans.push(sha256);
            }
            Ok(())
        })?;
        report.orphans.sort_unstable();

        let (blobs, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let queue = Mutex::new(sidecars.into_iter());
        let findings = Mutex::new(Vec::new());
        let failure = Mutex::new(None);
        let work = || {
            let mut piece = vec![0; PIECE];
            loop {
                let next = locked(&queue).next();
                let Some(sha256) = next else { break };
                let mut hash = |file: Box<dyn io::Read + Send>| {
                    let found = hash(file, &mut piece, |len| {
                        let done = bytes.fetch_add(len, Ordering::Relaxed).saturating_add(len);
                        progress(done, total);
                    })?;
                    blobs.fetch_add(1, Ordering::Relaxed);
                    Ok(found)
                };
                match self.verify_one(&sha256, &mut hash) {
                    Ok(found) => locked(&findings).extend(found),
                    Err(error) => {
                        locked(&failure).get_or_insert(error);
                        break;
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
                scope.spawn(work);
            }
        });
        if let Some(error) = locked(&failure).take() {
            return Err(error);
        }
        (report.blobs, report.bytes) = (blobs.into_inner(), bytes.into_inner());
        report.findings = std::mem::take(&mut *locked(&findings));
        report.findings.extend(self.rows_without_sidecar(&known)?);
        self.verify_snapshots(&known, &mut report)?;
        report
            .findings
            .sort_by(|one, two| (&one.file, one.sha256, one.kind).cmp(&(&two.file, two.sha256, two.kind)));
        Ok(report)
    }

    /// Mends what a check found: damaged blobs go to `quarantine` and are fetched again where that is possible;
    /// METADATA members and sidecar files are made anew from whole blobs, and rows from the sidecar files.
    pub fn repair(&self, report: &mut Report, fetch: Option<&Fetch<'_>>) -> Result<(), Error> {
        use FindingKind as Kind;
        // Sidecars first: the other repairs read them.
        let mut order: Vec<&mut Finding> = report.findings.iter_mut().collect();
        order.sort_by_key(|finding| !matches!(finding.kind, Kind::DamagedSidecar | Kind::MissingSidecar));
        let mut rows_wrong = false;
        for finding in order {
            let outcome = match finding.kind {
                Kind::DamagedSidecar | Kind::MissingSidecar => {
                    rows_wrong = true;
                    self.mend_sidecar(finding)?
                }
                Kind::DamagedBlob | Kind::MissingBlob => self.mend_blob(finding, fetch)?,
                Kind::DamagedMetadata => self.mend_metadata(finding)?,
                Kind::DamagedRow => {
                    rows_wrong = true;
                    Ok("made anew from its sidecar file".to_owned())
                }
            };
            finding.mended = outcome.is_ok();
            finding.remedy = Some(outcome.unwrap_or_else(|remedy| remedy));
        }
        if rows_wrong {
            self.rebuild()?;
        }
        Ok(())
    }

    /// Reads all snapshots, and looks whether what they list is known.
    fn verify_snapshots(&self, known: &BTreeSet<Sha256>, report: &mut Report) -> Result<(), Error> {
        for id in self.notes.snapshot_ids()? {
            report.snapshots = report.snapshots.saturating_add(1);
            let (mut lost, mut first) = (0_u64, None);
            let read = self.each_in_snapshot(&id, |file| {
                if !known.contains(&file.sha256) {
                    lost = lost.saturating_add(1);
                    first.get_or_insert(file.file);
                }
            });
            let text = match (read, first) {
                (Ok(_), None) => continue,
                (Ok(_), Some(first)) => {
                    format!("lists {} of which nothing is known: {first}, for one", counted(lost, "file"))
                }
                (Err(Error::Damaged { found, .. }), _) => found,
                (Err(error), _) => return Err(error),
            };
            let path = self.notes.snapshot_name(&id);
            report.damaged_snapshots.push(SnapshotFinding { snapshot: id, path, text });
        }
        Ok(())
    }

    /// Checks one sidecar and all that it speaks of.
    fn verify_one(
        &self,
        sha256: &Sha256,
        hash: &mut dyn FnMut(Box<dyn io::Read + Send>) -> io::Result<(Sha256, u64)>,
    ) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        let sidecar = match recover::find_sidecar(&self.places.blobs, sha256) {
            Ok(Some(sidecar)) => sidecar,
            Ok(None) => return Ok(findings),
            Err(Error::Damaged { path, found }) => {
                let mut finding = Finding::new(FindingKind::DamagedSidecar, sha256, None, path, found);
                if let Some((project, file)) = self.names(sha256)?.into_iter().next() {
                    (finding.project, finding.file) = (Some(project), Some(file));
                }
                return Ok(vec![finding]);
            }
            Err(error) => return Err(error),
        };
        let mut find = |kind, path, text| {
            findings.push(Finding::new(kind, sha256, Some(&sidecar), path, text));
        };
        if sidecar.held {
            let path = self.places.blobs.name(sha256, Part::Wheel);
            match self.places.blobs.open(sha256).map(|blob| blob.map(hash)) {
                Ok(None) => find(FindingKind::MissingBlob, path, "is not there".to_owned()),
                Ok(Some(Ok((found, _)))) if found == *sha256 => {}
                Ok(Some(Ok((found, len)))) => {
                    let text = format!("its {len} bytes have the sha256 {found}");
                    find(FindingKind::DamagedBlob, path, text);
                }
                // A bad sector is damage of that blob, and no reason to leave the others unchecked.
                Ok(Some(Err(error))) | Err(Error::Io { source: error, .. }) => {
                    find(FindingKind::DamagedBlob, path, format!("cannot be read: {error}"));
                }
                Err(error) => return Err(error),
            }
            let stated = sidecar.files.first().and_then(|entry| entry.facts.metadata_sha256);
            let path = self.places.blobs.name(sha256, Part::Metadata);
            let found = self.metadata(sha256)?.map(|bytes| Sha256::of(&bytes));
            match (stated, found) {
                (Some(stated), Some(found)) if stated != found => {
                    let text = format!("has the sha256 {found}, and the wheel's METADATA {stated}");
                    find(FindingKind::DamagedMetadata, path, text);
                }
                (Some(_), None) => find(FindingKind::DamagedMetadata, path, "is not there".to_owned()),
                _ => {}
            }
        }
        if let Some(text) = self.row_differs(sha256, &sidecar)? {
            find(FindingKind::DamagedRow, self.catalogue_name(), text);
        }
        Ok(findings)
    }

    /// What the catalogue says otherwise than a sidecar.
    fn row_differs(&self, sha256: &Sha256, sidecar: &Sidecar) -> Result<Option<String>, Error> {
        let stamp = self.stamp(sha256)?;
        self.read(|catalogue| {
            let mut wanted = recover::changes(catalogue, sha256, sidecar, stamp, &mut BTreeMap::new())?;
            if self.places.sidecars_in_catalogue() {
                wanted.push(recover::sidecar_change(sha256, &sidecar.render()));
            }
            for (key, value) in wanted {
                let found = catalogue.record(&key)?;
                let value =
                    value.as_deref().and_then(|value| unseal(&key, value)).map(|(_, payload)| payload);
                if found.as_deref() != value {
                    let state = if found.is_some() { "says something else" } else { "is not there" };
                    return Ok(Some(format!("the record {} {state}", key.escape_ascii())));
                }
            }
            Ok(None)
        })
    }

    /// Rows whose sidecar file is gone.
    fn rows_without_sidecar(&self, known: &BTreeSet<Sha256>) -> Result<Vec<Finding>, Error> {
        let mut gone = self.read(|catalogue| {
            let mut gone = Vec::new();
            catalogue.scan(b"d", &mut |key, payload| {
                let digest = key.get(1..).and_then(|digest| digest.try_into().ok()).map(Sha256);
                let sha256 = digest.ok_or_else(|| strange(key))?;
                if !known.contains(&sha256) {
                    let indexed: Indexed = parse_payload(key, payload)?;
                    gone.push((sha256, indexed.files));
                }
                Ok(())
            })?;
            Ok(gone)
        })?;
        // One that was taken in since the sidecars were listed is none of these.
        gone.retain(|(sha256, _)| matches!(self.places.blobs.find(sha256, Part::Sidecar), Ok(None)));
        let findings = gone.into_iter().map(|(sha256, files)| {
            let path = self.places.blobs.name(&sha256, Part::Sidecar);
            let mut finding =
                Finding::new(FindingKind::MissingSidecar, &sha256, None, path, "is not there".to_owned());
            if let Some((project, file)) = files.into_iter().next() {
                (finding.project, finding.file) = (Some(project), Some(file));
            }
            finding
        });
        Ok(findings.collect())
    }

    /// Project and file names of a digest, as the catalogue has them.
    pub(super) fn names(&self, sha256: &Sha256) -> Result<Vec<(ProjectName, String)>, Error> {
        let indexed: Option<Indexed> = self.read(|catalogue| catalogue.parsed(&digest_key(sha256)))?;
        Ok(indexed.map(|indexed| indexed.files).unwrap_or_default())
    }

    /// The row of a file, as the catalogue has it.
    pub(super) fn light(
        &self,
        project: &ProjectName,
        file: &str,
        sha256: &Sha256,
    ) -> Result<Option<Light>, Error> {
        self.read(|catalogue| catalogue.parsed(&file_key(project, file, sha256)))
    }
}

impl Finding {
    fn new(
        kind: FindingKind,
        sha256: &Sha256,
        sidecar: Option<&Sidecar>,
        path: PathBuf,
        text: String,
    ) -> Self {
        let facts = sidecar.and_then(|sidecar| sidecar.files.first()).map(|entry| &entry.facts);
        Self {
            kind,
            sha256: *sha256,
            file: facts.map(|facts| facts.file.clone()),
            project: facts.and_then(|facts| facts.project.clone()),
            path,
            text,
            mended: false,
            remedy: None,
        }
    }
}

/// Hashes a file a piece at a time.
pub(super) fn hash(
    mut file: impl io::Read,
    piece: &mut [u8],
    mut told: impl FnMut(u64),
) -> io::Result<(Sha256, u64)> {
    let (mut hasher, mut len) = (Hasher::default(), 0_u64);
    loop {
        let count = match file.read(piece) {
            Ok(0) => return Ok((hasher.finish(), len)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(piece.get(..count).unwrap_or_default());
        len = len.saturating_add(count as u64);
        told(count as u64);
    }
}
