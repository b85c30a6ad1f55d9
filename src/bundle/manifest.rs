//! What a bundle promises, and what a site says that it has.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Error;
use crate::digest::Sha256;
use crate::store::{Provenance, SnapshotFile, SnapshotId};
use crate::wheel::{Facts, ProjectName, WheelFilename};

/// Version of the manifest that this program writes and reads.
pub(super) const FORMAT: u32 = 1;

/// The longest manifest that is read, in bytes. The facts of 20,000 wheels have some 100 MB.
pub(super) const LONGEST: u64 = 256 << 20;

/// The largest wheel, in bytes; the largest known have under 4 GiB.
const LARGEST_WHEEL: u64 = 16 << 30;

/// What a bundle holds, and what it stands for: `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub format: u32,
    /// Id of the site that made it.
    pub site: String,
    /// The snapshot that it carries: the sequence number of the bundle.
    pub snapshot: SnapshotId,
    /// When it was made, as that site's clock said; nothing depends on it.
    pub created: String,
    /// The devices whose indexes it carries.
    pub devices: Vec<String>,
    /// What the receiver said that it has, where it is a delta.
    #[serde(default)]
    pub base: Option<Base>,
    /// The wheels in it, in the order of the archive.
    pub wheels: Vec<Packed>,
    /// All files that the snapshot lists for the devices: those in the bundle, and those that the receiver has.
    pub files: Vec<SnapshotFile>,
    /// The site's policy files.
    #[serde(default)]
    pub policy: Vec<Text>,
    /// The advisories in force at the site, built-in ones too, for the record.
    #[serde(default)]
    pub advisories: Vec<serde_json::Value>,
    /// Lock files that go with the wheels.
    #[serde(default)]
    pub locks: Vec<Text>,
}

/// The state of a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Its site's id.
    pub site: String,
    /// Its newest snapshot.
    #[serde(default)]
    pub snapshot: Option<SnapshotId>,
}

/// A wheel in a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    /// Its project.
    pub project: ProjectName,
    /// File name.
    pub file: String,
    /// Digest.
    pub sha256: Sha256,
    /// Size in bytes.
    pub size: u64,
    /// What the sender read in it. It is compared with what the receiver reads, never trusted.
    pub facts: Arc<Facts>,
    /// Where it is from.
    pub provenance: Provenance,
}

impl Packed {
    /// Its path in the archive.
    pub(super) fn path(&self) -> String {
        format!("wheels/{}/{}", self.sha256, self.file)
    }
}

/// A text file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// Its name.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// What a site has: the JSON of `inventory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Version of this format.
    pub format: u32,
    /// The site's id.
    pub site: String,
    /// Its newest snapshot.
    pub snapshot: Option<SnapshotId>,
    /// Digests of all wheels that it holds.
    pub files: BTreeSet<Sha256>,
}

impl Manifest {
    /// Reads a manifest, and checks all that a name or a size in it could do harm by.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |found: String| Error::Manifest { found };
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if manifest.format != FORMAT {
            let found = format!("is of format {}; this program reads format {FORMAT}", manifest.format);
            return Err(wrong(found));
        }
        let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if manifest.site.len() > 64 || manifest.site.is_empty() || !hexadecimal(&manifest.site) {
            return Err(wrong("names no site".to_owned()));
        }
        let listed: BTreeSet<(&str, Sha256)> =
            manifest.files.iter().map(|file| (file.file.as_str(), file.sha256)).collect();
        for file in &manifest.files {
            check_name(&file.project, &file.file)?;
        }
        let mut seen = BTreeSet::new();
        for wheel in &manifest.wheels {
            check_name(&wheel.project, &wheel.file)?;
            let refuse = |what: &str| Err(wrong(format!("{}: {what}", wheel.file)));
            if wheel.size > LARGEST_WHEEL {
                return refuse("is larger than 16 GiB");
            }
            if !listed.contains(&(wheel.file.as_str(), wheel.sha256)) {
                return refuse("is packed, but is not on the list");
            }
            if !seen.insert((wheel.file.as_str(), wheel.sha256)) {
                return refuse("is packed twice");
            }
        }
        for text in manifest.policy.iter().chain(&manifest.locks) {
            let plain = text.name.strip_prefix("advisories/").unwrap_or(&text.name);
            let letters = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
            if plain.is_empty() || plain.starts_with('.') || plain.len() > 100 || !plain.chars().all(letters)
            {
                let name: String = text.name.chars().take(80).collect();
                return Err(wrong(format!("{name:?} is no name of a policy or lock file")));
            }
        }
        Ok(manifest)
    }
}

fn check_name(project: &ProjectName, file: &str) -> Result<(), Error> {
    let short: String = file.chars().take(80).collect();
    match file.parse::<WheelFilename>() {
        Ok(name) if name.project == *project && !file.contains(['/', '\\']) => Ok(()),
        Ok(_) => Err(Error::Manifest { found: format!("{short:?} is no wheel of {project}") }),
        Err(_) => Err(Error::Manifest { found: format!("{short:?} is no name of a wheel") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(file: &str, policy: &str) -> serde_json::Value {
        serde_json::json!({
            "format": 1, "site": "00ff", "snapshot": "20261130T075300Z-1", "created": "", "devices": [], "wheels": [],
            "files": [{"project": "demo", "file": file, "sha256": "00".repeat(32), "size": 1}],
            "policy": [{"name": policy, "text": ""}],
        })
    }

    #[test]
    fn names_that_could_leave_a_folder_are_refused() {
        let parse = |value: serde_json::Value| Manifest::parse(value.to_string().as_bytes());
        assert!(parse(manifest("demo-1.0-py3-none-any.whl", "advisories/x.toml")).is_ok());
        for file in ["../demo-1.0-py3-none-any.whl", "other-1.0-py3-none-any.whl", "demo", "/etc/passwd"] {
            assert!(parse(manifest(file, "rules.toml")).is_err(), "{file}");
        }
        for policy in ["../rules.toml", "advisories/../x.toml", "/rules.toml", "", ".x", "a/b.toml"] {
            assert!(parse(manifest("demo-1.0-py3-none-any.whl", policy)).is_err(), "{policy}");
        }
        let mut other = manifest("demo-1.0-py3-none-any.whl", "rules.toml");
        other["format"] = 2.into();
        assert!(parse(other).unwrap_err().to_string().contains("format 2"));
    }
}
