//! TLS: the certificate, taken up anew when its files change, and the start of a connection.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::watched::Watched;

/// How often the files are looked at. A change counts once they look the same twice, so that a pair that is being written
/// is not read in the middle.
const TICK: Duration = Duration::from_secs(1);

/// The largest file that is read, in bytes; a chain of five certificates has below 16 KiB.
const LARGEST: u64 = 1 << 20;

/// The first byte of every TLS record that begins a connection: a handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 0x16;

/// How much of a request that came without TLS is read before the answer, in bytes.
const PLAIN: usize = 8 << 10;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read. The error names it.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// A file is no PEM file with what it should hold.
    #[error("{}: {found}, expected {expected}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is in it.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// Certificate and key are no pair, or of a kind that is not taken.
    #[error("{} and {} cannot be used together: {source}", certificate.display(), key.display())]
    Pair {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// The certificate of the server, read anew whenever its files change.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: Arc<Current>,
    config: Arc<ServerConfig>,
    state: Mutex<Seen>,
}

/// The certificate in force.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// What tells one state of the files from another.
type Stamp = [Option<(u64, u64, i64, i64, u64)>; 2];

/// How the files looked.
#[derive(Debug)]
struct Seen {
    /// When they were read.
    read: Stamp,
    /// At the last look.
    last: Stamp,
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Tls {
    /// Reads a certificate with those that lead to its authority, and its private key: PEM files both.
    pub fn load(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let files = Files { certificate, key };
        let stamp = files.stamp();
        let provider = Arc::new(default_provider());
        let pair = files.read(&provider)?;
        let current = Arc::new(Current(RwLock::new(Arc::new(pair))));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| files.unfit(source))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let state = Mutex::new(Seen { read: stamp, last: stamp });
        Ok(Self { files, current, config: Arc::new(config), state })
    }

    /// Takes a changed certificate up as long as the server runs. One that cannot be used is logged, and the last good one
    /// stays. Connections that are open keep what they began with.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TICK).await;
            let tls = Arc::clone(&self);
            if let Err(error) = tokio::task::spawn_blocking(move || tls.look()).await {
                tracing::error!(%error, "the certificate could not be looked at");
            }
        }
    }

    /// Looks whether the files changed. Blocks.
    fn look(&self) {
        let stamp = self.files.stamp();
        let mut seen = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = std::mem::replace(&mut seen.last, stamp) == stamp;
        if !settled || seen.read == stamp {
            return;
        }
        seen.read = stamp;
        match self.files.read(self.config.crypto_provider()) {
            Ok(pair) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
                tracing::info!(certificate = %self.files.certificate.display(), "a new certificate is in force");
            }
            Err(error) => {
                tracing::error!(%error, "the new certificate cannot be used; the one before it stays in force");
            }
        }
    }

    /// Does the handshake.
    pub(super) async fn begin(&self, stream: Watched) -> io::Result<TlsStream<Watched>> {
        TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).await
    }
}

impl Files {
    /// How the files look now; nothing of one that is not there. Blocks.
    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|file| {
            let data = fs_err::metadata(file).ok()?;
            Some((data.dev(), data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
        })
    }

    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let content = |file: &Path, found: String, expected| TlsError::Content {
            file: file.to_owned(),
            found,
            expected,
        };
        let text = read(&self.certificate)?;
        let expected = "PEM certificates: -----BEGIN CERTIFICATE-----";
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| content(&self.certificate, error.to_string(), expected))?;
        if chain.is_empty() {
            return Err(content(&self.certificate, "no certificate in it".to_owned(), expected));
        }
        let text = read(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_may_show_the_key| {
            let expected = "a PEM private key without passphrase: -----BEGIN PRIVATE KEY-----";
            content(&self.key, "no such key in it".to_owned(), expected)
        })?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| self.unfit(source))
    }

    fn unfit(&self, source: rustls::Error) -> TlsError {
        TlsError::Pair { certificate: self.certificate.clone(), key: self.key.clone(), source }
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(fs_err::File::open(file)?, LARGEST), &mut text)?;
    Ok(text)
}

/// Whether a client begins TLS, by its first byte. Waits for that.
pub(super) async fn is_begun(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    // Nothing at all is for the handshake to tell.
    Ok(stream.peek(&mut first).await? == 0 || first == [HANDSHAKE])
}

/// Tells a client that speaks HTTP without TLS what to do.
pub(super) async fn send_to_https(mut stream: TcpStream) -> io::Result<()> {
    let mut head = Vec::with_capacity(PLAIN);
    // Read first: a connection that is closed with something unread is reset, and the client sees no answer.
    while head.len() < PLAIN && !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
    stream.write_all(PLAIN_ANSWER.as_bytes()).await?;
    stream.shutdown().await
}

const PLAIN_ANSWER: &str = "HTTP/1.1 400 This port speaks HTTPS: write https:// in the address\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 54\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n\
    this port speaks HTTPS: write https:// in the address\n";
