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
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::signer::Signer as _;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore as _,
    ObjectStoreExt as _, PutPayload, RetryConfig, WriteMultipart,
};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::{Found, Part};
use crate::digest::Sha256;
use crate::store::Error;
use crate::store::bridge::Bridge;
use crate::store::catalogue::record::Stamp;
use crate::store::cause::{is_of_tls, tell_of_waiting, with_causes};

/// Size in bytes of the parts in which a wheel is sent. S3 takes 10,000 of them.
const PIECE: usize = 8 << 20;

/// How many parts are on their way at once.
const PIECES_AT_ONCE: usize = 4;

/// Size in bytes of the ranges in which a wheel is read.
const RANGE: u64 = 4 << 20;

/// How long a connection may take, and how long an answer may stay away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// How long the client tries by itself: a refused connection, a 5xx.
const RETRIES: usize = 2;
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// The pauses between tries to reach a store that is away.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// For how long an address that is handed out may be used: a slow device may begin late, and go on for hours.
const SIGNED_FOR: Duration = Duration::from_hours(6);

/// A bucket of an S3-compatible store.
#[derive(Clone, Default)]
pub struct S3 {
    /// `s3://bucket/prefix`.
    pub url: String,
    /// The server, such as `https://s3.site.example`; none for Amazon's.
    pub endpoint: Option<String>,
    /// The server as devices reach it, where that is another address.
    pub public_endpoint: Option<String>,
    /// Region; `us-east-1` where none is said.
    pub region: Option<String>,
    /// Whether the bucket is a part of the path, not of the host.
    pub path_style: bool,
    /// PEM file with certificate authorities, besides the system's.
    pub ca: Option<PathBuf>,
    /// Whether files are streamed through the mirror, instead of by a redirect to a signed address.
    pub stream: bool,
    /// Credentials and what else Amazon's tools read, as names and values of `AWS_…` variables.
    pub variables: Vec<(String, String)>,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "S3 {{ url: {:?}, endpoint: {:?} }}", self.url, self.endpoint)
    }
}

/// The open bucket.
#[derive(Clone)]
pub(in crate::store) struct Bucket {
    bridge: Arc<Bridge>,
    client: Arc<AmazonS3>,
    signer: Arc<AmazonS3>,
    prefix: String,
    name: String,
    spool: PathBuf,
    stream: bool,
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
        let (began, mut pause, mut told) = (Instant::now(), FIRST_PAUSE, false);
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
            if !matches!(error, object_store::Error::Generic { .. }) || began.elapsed() >= patience {
                return Err(self.away(found));
            }
            if !std::mem::replace(&mut told, true) {
                tell_of_waiting(&self.name, &found, patience);
            }
            std::thread::sleep(pause);
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
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

impl S3 {
    fn client(&self, bucket: &str, endpoint: Option<&String>) -> Result<AmazonS3, Result<Error, String>> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in &self.variables {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let mut options = ClientOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_read_timeout(READ_TIMEOUT)
            .with_timeout_disabled();
        if let Some(path) = &self.ca {
            let text = fs_err::read(path).map_err(|error| Ok(Error::io(path)(error)))?;
            let certificates = Certificate::from_pem_bundle(&text).map_err(|error| Err(error.to_string()))?;
            options = certificates.into_iter().fold(options, ClientOptions::with_root_certificate);
        }
        let backoff = BackoffConfig {
            init_backoff: FIRST_PAUSE,
            max_backoff: LONGEST_PAUSE,
            ..BackoffConfig::default()
        };
        builder = builder
            .with_bucket_name(bucket)
            .with_virtual_hosted_style_request(!self.path_style)
            .with_client_options(options)
            .with_retry(RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT });
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        builder.build().map_err(|error| Err(with_causes(&error)))
    }
}

/// Sends a file, in parts where it is large. An error of the file itself is the inner one.
async fn send(
    client: &AmazonS3,
    key: &Key,
    path: &std::path::Path,
) -> object_store::Result<Result<(), io::Error>> {
    let mut file = match tokio::fs::File::open(path).await {
        Ok(file) => file,
        Err(error) => return Ok(Err(error)),
    };
    let mut piece = match next(&mut file).await {
        Ok(piece) => piece,
        Err(error) => return Ok(Err(error)),
    };
    if piece.len() < PIECE {
        return client.put(key, PutPayload::from_bytes(piece)).await.map(|_| Ok(()));
    }
    let mut upload = WriteMultipart::new_with_chunk_size(client.put_multipart(key).await?, PIECE);
    while !piece.is_empty() {
        upload.wait_for_capacity(PIECES_AT_ONCE).await?;
        upload.put(piece);
        piece = match next(&mut file).await {
            Ok(piece) => piece,
            Err(error) => {
                let _lost_parts_expire = upload.abort().await;
                return Ok(Err(error));
            }
        };
    }
    upload.finish().await.map(|_| Ok(()))
}

async fn next(file: &mut tokio::fs::File) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(PIECE);
    file.take(PIECE as u64).read_to_end(&mut piece).await?;
    Ok(piece.into())
}

/// Reads an object range by range.
struct Ranges {
    bucket: Bucket,
    key: Key,
    at: u64,
    end: u64,
    piece: io::Cursor<Bytes>,
}

impl Read for Ranges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = Read::read(&mut self.piece, buffer)?;
        if count > 0 || buffer.is_empty() || self.at >= self.end {
            return Ok(count);
        }
        let range = self.at..self.at.saturating_add(RANGE).min(self.end);
        let key = &self.key;
        let bytes = self.bucket.ask(|client| {
            let (key, range) = (key.clone(), range.clone());
            async move { client.get_range(&key, range).await }
        });
        let bytes = bytes.map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at = self.at.saturating_add(bytes.len() as u64);
        self.piece = io::Cursor::new(bytes);
        Read::read(&mut self.piece, buffer)
    }
}

/// Bucket and prefix of `s3://bucket/prefix`; the prefix is empty or ends in a slash.
fn parse(url: &str) -> Result<(String, String), String> {
    let rest = url.strip_prefix("s3://").ok_or("an address of blobs is s3://bucket/prefix")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err("the bucket is missing: s3://bucket/prefix".to_owned());
    }
    let prefix = prefix.trim_matches('/');
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    Ok((bucket.to_owned(), prefix))
}

/// Tells one state of an object from another.
fn state(object: &ObjectMeta) -> Found {
    let tag = Sha256::of(object.e_tag.as_deref().unwrap_or_default().as_bytes());
    let tag = u64::from_be_bytes(*tag.0.first_chunk().expect("a digest has 32 bytes"));
    let stamp = Stamp { changed_ns: 0, len: object.size, inode: tag };
    Found { stamp, modified: Some(SystemTime::from(object.last_modified)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_bucket_and_perhaps_a_prefix() {
        let parts = |url: &str| parse(url).map(|(bucket, prefix)| format!("{bucket} {prefix}"));
        assert_eq!(parts("s3://wheels"), Ok("wheels ".to_owned()));
        assert_eq!(parts("s3://wheels/site/a/"), Ok("wheels site/a/".to_owned()));
        assert!(parts("s3:///a").is_err());
        assert!(parts("https://wheels/a").is_err());
    }
}
