//! Keys and signatures in minisign's format, made so that the tool of that name takes them.

use std::fmt::Write as _;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;

use super::Error;

/// The longest key or signature file that is read, in bytes.
const LONGEST: u64 = 16 << 10;

/// A key that signs.
#[derive(Debug)]
pub struct SecretKey(minisign::SecretKey);

/// A key that verifies.
#[derive(Debug)]
pub struct PublicKey(minisign::PublicKey);

/// Reads a key or a signature, which are short.
pub(super) fn read_text(path: &Path) -> Result<String, Error> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(Error::io(path))?;
    file.take(LONGEST).read_to_string(&mut text).map_err(Error::io(path))?;
    Ok(text)
}

fn bad(path: &Path) -> impl Fn(minisign::PError) -> Error + '_ {
    |error| Error::Key { path: path.to_owned(), found: error.to_string() }
}

impl SecretKey {
    /// Reads a key file as `minisign -G` writes it. One with a password needs that password.
    pub fn read(path: &Path, password: Option<String>) -> Result<Self, Error> {
        let key = minisign::SecretKeyBox::from_string(&read_text(path)?).map_err(bad(path))?;
        let key = match password {
            Some(password) => key.into_secret_key(Some(password)),
            None => key.into_unencrypted_secret_key(),
        };
        Ok(Self(key.map_err(bad(path))?))
    }

    /// Signs what a reader yields; the text of a `.minisig` file.
    pub(super) fn sign(&self, data: impl Read, trusted_comment: &str) -> io::Result<String> {
        let comment = Some("signature from a jetwheel bundle key");
        let signed = minisign::sign(None, &self.0, data, Some(trusted_comment), comment);
        Ok(signed.map_err(io::Error::other)?.into_string())
    }
}

impl PublicKey {
    /// Reads a key file as `minisign -G` writes it, or one that holds the key's line alone.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = read_text(path)?;
        let key = match minisign::PublicKeyBox::from_string(&text)
            .and_then(minisign::PublicKeyBox::into_public_key)
        {
            Ok(key) => key,
            Err(error) => minisign::PublicKey::from_base64(text.trim()).map_err(|_| bad(path)(error))?,
        };
        Ok(Self(key))
    }

    /// Verifies a signature over what a reader yields, all of which is read.
    pub(super) fn verify(&self, signature: &str, name: &Path, data: impl Read + Seek) -> Result<(), Error> {
        let signature = minisign::SignatureBox::from_string(signature).map_err(bad(name))?;
        // The other sort is made over all bytes at once, which would have to be in memory.
        if !signature.is_prehashed() {
            let found = "is a signature of minisign's old sort: sign with minisign 0.8 or newer".to_owned();
            return Err(Error::Key { path: name.to_owned(), found });
        }
        if signature.keynum() != self.0.keynum() {
            return Err(Error::WrongKey {
                found: key_id(signature.keynum()),
                expected: key_id(self.0.keynum()),
            });
        }
        minisign::verify(&self.0, &signature, data, true, false, false)
            .map_err(|_| Error::Tampered { item: None })
    }
}

/// A key's id as minisign prints it.
fn key_id(keynum: &[u8]) -> String {
    let mut id = String::new();
    for byte in keynum.iter().rev() {
        let _infallible = write!(id, "{byte:02X}");
    }
    id
}

/// Makes a pair of keys: the secret one, without a password, in a new file that its owner alone can read, the public one
/// beside it with the ending `.pub`. Yields where the latter lies.
pub fn make_key(path: &Path) -> Result<PathBuf, Error> {
    let public = PathBuf::from(format!("{}.pub", path.display()));
    let pair = minisign::KeyPair::generate_unencrypted_keypair().map_err(bad(path))?;
    let secret = pair.sk.to_box(None).map_err(bad(path))?.into_string();
    let shown = pair.pk.to_box().map_err(bad(path))?.into_string();
    for (path, text, mode) in [(path, secret, 0o600), (public.as_path(), shown, 0o644)] {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
        let written = file.and_then(|mut file| {
            io::Write::write_all(&mut file, text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(Error::io(path))?;
    }
    Ok(public)
}
