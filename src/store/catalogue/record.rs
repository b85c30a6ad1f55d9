//! Keys and values of the catalogue.
//!
//! | key | value |
//! |---|---|
//! | `f` project NUL file NUL digest | [`Light`]: what a listing needs, without the facts |
//! | `d` digest | [`Indexed`]: the file names of a digest, and which sidecar file they were read from |
//! | `u` SHA-256 of a URL | digest |
//! | `p` upstream NUL file | digest at first sight |
//! | `n` project | [`Counts`] |
//! | `s` | [`Sum`]: count and fingerprint of all records but itself |
//!
//! Every value stands behind [`CHECK`] bytes of SHA-256 over key and value: sled gives back flipped bytes in silence.

use serde::{Deserialize, Serialize};

use super::Fault;
use crate::digest::{Hasher, Sha256};
use crate::wheel::ProjectName;

/// Length in bytes of a record's checksum.
const CHECK: usize = 16;

/// The key of [`Sum`].
pub(in crate::store) const SUM: &[u8] = b"s";

/// What a listing needs to know of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) struct Light {
    #[serde(rename = "s")]
    pub(in crate::store) size: u64,
    #[serde(rename = "v", default, skip_serializing_if = "Option::is_none")]
    pub(in crate::store) version: Option<String>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(in crate::store) requires_python: Option<String>,
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub(in crate::store) metadata_sha256: Option<Sha256>,
    #[serde(rename = "p")]
    pub(in crate::store) provenance: super::super::Provenance,
    #[serde(rename = "h")]
    pub(in crate::store) held: bool,
}

/// Where the records of a digest came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) struct Indexed {
    /// The sidecar file that was read.
    #[serde(rename = "s")]
    pub(in crate::store) stamp: Stamp,
    /// Project and file name.
    #[serde(rename = "f")]
    pub(in crate::store) files: Vec<(ProjectName, String)>,
}

/// Tells one state of a sidecar file from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) struct Stamp {
    /// Time of the last change, in nanoseconds since 1970.
    #[serde(rename = "t")]
    pub(in crate::store) changed_ns: i128,
    /// Length in bytes.
    #[serde(rename = "l")]
    pub(in crate::store) len: u64,
    /// Inode: every change makes a new file.
    #[serde(rename = "i")]
    pub(in crate::store) inode: u64,
}

/// How many files of a project are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) struct Counts {
    #[serde(rename = "f")]
    pub(in crate::store) files: u64,
    #[serde(rename = "h")]
    pub(in crate::store) held: u64,
}

/// Count and fingerprint of all records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store) struct Sum {
    pub(in crate::store) records: u64,
    /// All checksums, combined by exclusive or: independent of the order, cheap to keep up to date.
    pub(in crate::store) fingerprint: [u8; CHECK],
}

impl Sum {
    /// Counts a record in, by its checksum.
    pub(in crate::store) fn add(&mut self, check: [u8; CHECK]) {
        self.records = self.records.saturating_add(1);
        self.fold(check);
    }

    /// Counts a record out, by the checksum that it had.
    pub(in crate::store) fn remove(&mut self, check: [u8; CHECK]) {
        self.records = self.records.saturating_sub(1);
        self.fold(check);
    }

    fn fold(&mut self, check: [u8; CHECK]) {
        for (byte, other) in self.fingerprint.iter_mut().zip(check) {
            *byte ^= other;
        }
    }
}

/// `f` project NUL file NUL digest.
pub(in crate::store) fn file_key(project: &ProjectName, file: &str, sha256: &Sha256) -> Vec<u8> {
    let mut key = name_prefix(project, file);
    key.extend_from_slice(&sha256.0);
    key
}

/// What the keys of all files of a project begin with: `f` project NUL.
pub(in crate::store) fn project_prefix(project: &ProjectName) -> Vec<u8> {
    [b"f", project.as_str().as_bytes(), &[0]].concat()
}

/// What the keys of all files of that name begin with.
pub(in crate::store) fn name_prefix(project: &ProjectName, file: &str) -> Vec<u8> {
    let mut prefix = project_prefix(project);
    prefix.extend_from_slice(file.as_bytes());
    prefix.push(0);
    prefix
}

/// The file name and digest of a key that begins with `prefix`.
pub(in crate::store) fn parse_file_key(key: &[u8], prefix: &[u8]) -> Option<(String, Sha256)> {
    let (rest, digest) = key.strip_prefix(prefix)?.split_last_chunk::<32>()?;
    let file = std::str::from_utf8(rest.strip_suffix(&[0])?).ok()?;
    Some((file.to_owned(), Sha256(*digest)))
}

/// `d` digest.
pub(in crate::store) fn digest_key(sha256: &Sha256) -> Vec<u8> {
    [&b"d"[..], &sha256.0].concat()
}

/// `u` SHA-256 of the URL.
pub(in crate::store) fn url_key(url: &str) -> Vec<u8> {
    [&b"u"[..], &Sha256::of(url.as_bytes()).0].concat()
}

/// `p` upstream NUL file.
pub(in crate::store) fn pin_key(upstream: &str, file: &str) -> Vec<u8> {
    [b"p", upstream.as_bytes(), &[0], file.as_bytes()].concat()
}

/// `n` project.
pub(in crate::store) fn counts_key(project: &ProjectName) -> Vec<u8> {
    [b"n", project.as_str().as_bytes()].concat()
}

/// Puts the checksum before a value.
pub(in crate::store) fn seal(key: &[u8], payload: &[u8]) -> Vec<u8> {
    [&check(key, payload)[..], payload].concat()
}

/// Serializes and seals a value.
pub(in crate::store) fn seal_json(key: &[u8], value: &impl Serialize) -> Vec<u8> {
    seal(key, &serde_json::to_vec(value).expect("strings, numbers and lists are always JSON"))
}

/// Takes the checksum off a value; none where it is wrong.
pub(in crate::store) fn unseal<'a>(key: &[u8], sealed: &'a [u8]) -> Option<([u8; CHECK], &'a [u8])> {
    let (stated, payload) = sealed.split_first_chunk::<CHECK>()?;
    (*stated == check(key, payload)).then_some((*stated, payload))
}

fn check(key: &[u8], payload: &[u8]) -> [u8; CHECK] {
    let mut hasher = Hasher::default();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(payload);
    let mut check = [0; CHECK];
    for (byte, digest) in check.iter_mut().zip(hasher.finish().0) {
        *byte = digest;
    }
    check
}

/// The value of a record, which the catalogue's own checksum vouches for.
pub(in crate::store) fn parse_payload<T: serde::de::DeserializeOwned>(
    key: &[u8],
    payload: &[u8],
) -> Result<T, Fault> {
    serde_json::from_slice(payload).map_err(|_| strange(key))
}

/// The fault of a record that does not read.
pub(in crate::store) fn strange(key: &[u8]) -> Fault {
    Fault::Damaged(format!("record {} does not read as what it should be", key.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_in_key_or_value_is_seen() {
        let sealed = seal(b"key", b"value");
        assert_eq!(unseal(b"key", &sealed).unwrap().1, b"value");
        assert!(unseal(b"kez", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 4;
            assert!(unseal(b"key", &flipped).is_none(), "byte {at}");
        }
    }

    #[test]
    fn a_file_key_gives_back_its_parts() {
        let project: ProjectName = "demo".parse().unwrap();
        // A digest may hold NUL bytes itself.
        let sha256 = Sha256([0; 32]);
        let key = file_key(&project, "demo-1.0-py3-none-any.whl", &sha256);
        let parts = parse_file_key(&key, &project_prefix(&project));
        assert_eq!(parts, Some(("demo-1.0-py3-none-any.whl".to_owned(), sha256)));
    }

    #[test]
    fn a_sum_does_not_depend_on_the_order() {
        let (one, two) = ([1; CHECK], [7; CHECK]);
        let mut sum = Sum::default();
        sum.add(one);
        sum.add(two);
        let mut other = Sum::default();
        other.add(two);
        other.add([9; CHECK]);
        other.add(one);
        other.remove([9; CHECK]);
        assert_eq!(sum, other);
    }
}
