//! Blobs as objects of an S3-compatible store.
//!
//! ```text
//! <prefix>/whl/ab/<64 hex>.whl            the wheel
//! <prefix>/json/ab/<64 hex>.json          its sidecar
//! <prefix>/metadata/ab/<64 hex>.metadata  its METADATA member
//! <prefix>/quarantine/<64 hex>.<part>     what `verify --repair` moved aside
//! ```
//!
//! Nothing relies on conditional writes, which some servers ignore in silence: keys are digests, so that writing twice is
//! harmless, and writers of one sidecar take turns elsewhere. A part is there as a whole or not at all.

use std::future::Future;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::signer::Signer as _;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, PutPayload};
use tokio::sync::mpsc;

use super::{Found, Part};
use crate::digest::Sha256;
use crate::store::Error;
use crate::store::away::{Waiting, is_of_tls};
use crate::store::bridge::Bridge;
use crate::store::catalogue::record::Stamp;
use crate::wording::with_causes;
use address::parse;
use transfer::{Ranges, send};

mod address;
mod transfer;

pub use address::S3;

/// How many parts are on their way at once.
const PIECES_AT_ONCE: usize = 4;

/// For how long an address that is handed out may be used: a slow device may begin late, and go on for hours.
const SIGNED_FOR: Duration = Duration::from_hours(6);

/// The open bucket.
#[derive(Clone)]
pub(in crate::store) struct Bucket {
    bridge: Arc<Bridge>,
    client: Arc<AmazonS3>,
    /// Signs addresses of the server as devices reach it.
    signer: Arc<AmazonS3>,
    /// What every key begins with: empty, or it ends in a slash.
    prefix: String,
    /// The address, as messages name it.
    name: String,
    /// The folder for temporary copies.
    spool: PathBuf,
    /// Whether files are streamed through the mirror.
    stream: bool,
    /// How long calls wait for what is away, in milliseconds.
    patience_ms: Arc<AtomicU64>,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Bucket({})", self.name)
    }
}

/// Pieces of a wheel as they come.
pub type Pieces = mpsc::Receiver<io::Result<Bytes>>;

impl Bucket {
    /// Prepares the client; nothing is asked yet. Temporary copies go to the folder `spool`.
    pub(in crate::store) fn new(
        address: &S3,
        bridge: Arc<Bridge>,
        spool: PathBuf,
        patience: Duration,
    ) -> Result<Self, Error> {
        // The process may have chosen one already.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let refuse = |found: String| Error::Address { address: address.url.clone(), found };
        let (bucket, prefix) = parse(&address.url).map_err(refuse)?;
        let client = |endpoint: Option<&String>| {
            address.client(&bucket, endpoint).map_err(|found| match found {
                Ok(error) => error,
                Err(found) => refuse(found),
            })
        };
        let public = address.public_endpoint.as_ref().or(address.endpoint.as_ref());
        let (signer, client) = (Arc::new(client(public)?), Arc::new(client(address.endpoint.as_ref())?));
        let name = address.url.trim_end_matches('/').to_owned();
        let patience_ms = Arc::new(AtomicU64::new(0));
        let bucket =
            Self { bridge, client, signer, prefix, name, spool, stream: address.stream, patience_ms };
        bucket.set_patience(patience);
        Ok(bucket)
    }

    pub(in crate::store) fn set_patience(&self, patience: Duration) {
        let ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience_ms.store(ms, Ordering::Relaxed);
    }

    fn key(&self, sha256: &Sha256, part: Part) -> Key {
        let ([first, ..], extension) = (sha256.0, part.extension());
        Key::from(format!("{}{extension}/{first:02x}/{sha256}.{extension}", self.prefix))
    }

    pub(super) fn path(&self, sha256: &Sha256, part: Part) -> PathBuf {
        let ([first, ..], extension) = (sha256.0, part.extension());
        PathBuf::from(format!("{}/{extension}/{first:02x}/{sha256}.{extension}", self.name))
    }

    /// Asks, for as long as patience lasts where the store is away. None where there is no such object.
    fn ask<T, F>(&self, work: impl Fn(Arc<AmazonS3>) -> F) -> Result<Option<T>, Error>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let mut waiting = Waiting::begin();
        loop {
            let gone = || Err(self.away("the store is being closed".to_owned()));
            let Some(answer) = self.bridge.wait(work(Arc::clone(&self.client))) else { return gone() };
            let error = match answer {
                Ok(value) => return Ok(Some(value)),
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => error,
            };
            let patience = Duration::from_millis(self.patience_ms.load(Ordering::Relaxed));
            let found = with_causes(&error);
            if is_of_tls(&error) {
                let found =
                    format!("{found}; s3.ca names the authority that signed the server's certificate");
                return Err(Error::Address { address: self.name.clone(), found });
            }
            let may_heal = matches!(error, object_store::Error::Generic { .. });
            if !may_heal || !waiting.goes_on(&self.name, &found, patience) {
                return Err(self.away(found));
            }
        }
    }

    fn away(&self, found: String) -> Error {
        Error::Unreachable { place: self.name.clone(), found }
    }

    /// As [`Bucket::ask`], for what needs no object to be there.
    fn tell<T, F>(&self, work: impl Fn(Arc<AmazonS3>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        self.ask(work)?.ok_or_else(|| self.away("there is no such bucket".to_owned()))
    }

    pub(super) fn put_wheel(&self, sha256: &Sha256, spooled: &tempfile::NamedTempFile) -> Result<(), Error> {
        let (key, path) = (self.key(sha256, Part::Wheel), spooled.path().to_owned());
        let sent = self.tell(move |client| {
            let (key, path) = (key.clone(), path.clone());
            async move { send(&client, &key, &path).await }
        })?;
        // What cannot be read from the spool is no matter of the store.
        sent.map_err(Error::io(spooled.path()))
    }

    pub(super) fn put(&self, sha256: &Sha256, part: Part, bytes: &[u8]) -> Result<(), Error> {
        let (key, payload) = (self.key(sha256, part), Bytes::copy_from_slice(bytes));
        self.tell(move |client| {
            let (key, payload) = (key.clone(), PutPayload::from_bytes(payload.clone()));
            async move { client.put(&key, payload).await.map(drop) }
        })
    }

    pub(super) fn find(&self, sha256: &Sha256, part: Part) -> Result<Option<Found>, Error> {
        let key = self.key(sha256, part);
        let found = self.ask(move |client| {
            let key = key.clone();
            async move { client.head(&key).await }
        })?;
        Ok(found.as_ref().map(state))
    }

    pub(super) fn read_start(&self, sha256: &Sha256, part: Part, len: u64) -> Result<Option<Vec<u8>>, Error> {
        let key = self.key(sha256, part);
        let bytes = self.ask(move |client| {
            let key = key.clone();
            async move {
                let range = Some(GetRange::Bounded(0..len.max(1)));
                client.get_opts(&key, GetOptions { range, ..GetOptions::default() }).await?.bytes().await
            }
        })?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    pub(super) fn open(&self, sha256: &Sha256) -> Result<Option<Box<dyn Read + Send>>, Error> {
        let Some(found) = self.find(sha256, Part::Wheel)? else { return Ok(None) };
        Ok(Some(Box::new(Ranges {
            bucket: self.clone(),
            key: self.key(sha256, Part::Wheel),
            at: 0,
            end: found.stamp.len,
            piece: io::Cursor::new(Bytes::new()),
        })))
    }

    /// Copies a wheel into the spool.
    pub(super) fn copy(&self, sha256: &Sha256) -> Result<Option<tempfile::NamedTempFile>, Error> {
        let Some(mut wheel) = self.open(sha256)? else { return Ok(None) };
        let mut copy = tempfile::Builder::new()
            .prefix("copy-")
            .tempfile_in(&self.spool)
            .map_err(Error::io(&self.spool))?;
        io::copy(&mut wheel, &mut copy).map_err(Error::io(&self.path(sha256, Part::Wheel)))?;
        Ok(Some(copy))
    }

    pub(super) fn list(
        &self,
        part: Part,
        visit: &mut dyn FnMut(Sha256, Found) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let prefix = Key::from(format!("{}{}", self.prefix, part.extension()));
        let all = self.tell(move |client| {
            let prefix = prefix.clone();
            async move {
                let mut listed = client.list(Some(&prefix));
                let mut all = Vec::new();
                while let Some(object) = listed.next().await {
                    let object = object?;
                    let digest =
                        object.location.filename().and_then(|name| name.split('.').next()?.parse().ok());
                    all.extend(digest.map(|sha256: Sha256| (sha256, state(&object))));
                }
                Ok(all)
            }
        })?;
        all.into_iter().try_for_each(|(sha256, found)| visit(sha256, found))
    }

    pub(super) fn remove(&self, sha256: &Sha256, part: Part) -> Result<(), Error> {
        let key = self.key(sha256, part);
        self.ask(move |client| {
            let key = key.clone();
            async move { client.delete(&key).await }
        })?;
        Ok(())
    }

    pub(super) fn set_aside(&self, sha256: &Sha256, part: Part) -> Result<Option<PathBuf>, Error> {
        let file = format!("quarantine/{sha256}.{}", part.extension());
        let (key, aside) = (self.key(sha256, part), Key::from(format!("{}{file}", self.prefix)));
        let moved = self.ask(move |client| {
            let (key, aside) = (key.clone(), aside.clone());
            async move {
                client.copy(&key, &aside).await?;
                client.delete(&key).await
            }
        })?;
        Ok(moved.map(|()| PathBuf::from(format!("{}/{file}", self.name))))
    }

    /// An address at which the wheel can be fetched without credentials for some hours; none where files are streamed.
    pub(super) fn signed(&self, sha256: &Sha256) -> Result<Option<String>, Error> {
        if self.stream {
            return Ok(None);
        }
        let (signer, key) = (Arc::clone(&self.signer), self.key(sha256, Part::Wheel));
        match self.bridge.wait(async move { signer.signed_url(http::Method::GET, &key, SIGNED_FOR).await }) {
            Some(Ok(url)) => Ok(Some(url.to_string())),
            Some(Err(error)) => Err(self.away(with_causes(&error))),
            None => Err(self.away("the store is being closed".to_owned())),
        }
    }

    /// Reads a range of a wheel as fast as it is taken. Fails at once where the store does not begin to answer.
    pub(super) fn pieces(
        &self,
        sha256: &Sha256,
        range: std::ops::Range<u64>,
    ) -> Result<Option<Pieces>, Error> {
        let key = self.key(sha256, Part::Wheel);
        let Some(answer) = self.ask(move |client| {
            let (key, range) = (key.clone(), Some(GetRange::Bounded(range.clone())));
            async move { client.get_opts(&key, GetOptions { range, ..GetOptions::default() }).await }
        })?
        else {
            return Ok(None);
        };
        let (sender, receiver) = mpsc::channel(PIECES_AT_ONCE);
        self.bridge.spawn(async move {
            let mut stream = answer.into_stream();
            while let Some(piece) = stream.next().await {
                if sender.send(piece.map_err(io::Error::other)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Some(receiver))
    }
}

/// Tells one state of an object from another.
fn state(object: &ObjectMeta) -> Found {
    let tag = Sha256::of(object.e_tag.as_deref().unwrap_or_default().as_bytes());
    let tag = u64::from_be_bytes(*tag.0.first_chunk().expect("a digest has 32 bytes"));
    let stamp = Stamp { changed_ns: 0, len: object.size, inode: tag };
    Found { stamp, modified: Some(SystemTime::from(object.last_modified)) }
}
