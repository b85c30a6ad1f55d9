//! Files of a project as an index page needs them, and their order.

use std::cmp::Reverse;
use std::str::FromStr as _;

use super::Provenance;
use super::catalogue::record::Light;
use crate::digest::Sha256;
use crate::wheel::ProjectName;

/// One known file, without its facts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Listed {
    /// The project.
    pub project: ProjectName,
    /// File name.
    pub file: String,
    /// Digest of the whole file.
    pub sha256: Sha256,
    /// Size in bytes.
    pub size: u64,
    /// Version, as METADATA writes it.
    pub version: Option<String>,
    /// `Requires-Python`, as written.
    pub requires_python: Option<String>,
    /// Digest of the METADATA member.
    pub metadata_sha256: Option<Sha256>,
    /// Where it came from.
    pub provenance: Provenance,
    /// Whether the store has its bytes.
    pub held: bool,
}

impl Listed {
    pub(super) fn new(project: &ProjectName, file: String, sha256: Sha256, light: Light) -> Self {
        Self {
            project: project.clone(),
            file,
            sha256,
            size: light.size,
            version: light.version,
            requires_python: light.requires_python,
            metadata_sha256: light.metadata_sha256,
            provenance: light.provenance,
            held: light.held,
        }
    }

    /// The version for ordering: that of METADATA, or else that of the file name.
    fn version(&self) -> Option<pep440_rs::Version> {
        let parse = |text: &str| pep440_rs::Version::from_str(text).ok();
        self.version.as_deref().and_then(parse).or_else(|| self.file.split('-').nth(1).and_then(parse))
    }
}

/// Sorts by version, newest first and those that are none last, then by file name and digest.
pub(super) fn sort(listed: &mut [Listed]) {
    listed.sort_by_cached_key(|file| (Reverse(file.version()), file.file.clone(), file.sha256));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected order from `sorted(key=packaging.version.Version, reverse=True)`.
    #[test]
    fn puts_the_newest_first_and_what_is_no_version_last() {
        let versions =
            ["2.5.0", "x.y", "2.10.0", "2.5.0a0+nv24.08", "2.5.0.post1", "2.5.0+cu126", "1!0.1", "2.5.0rc1"];
        let mut listed: Vec<Listed> = versions
            .iter()
            .map(|version| Listed {
                project: "demo".parse().unwrap(),
                file: "demo-nothing-py3-none-any.whl".to_owned(),
                sha256: Sha256([0; 32]),
                size: 1,
                version: Some((*version).to_owned()),
                requires_python: None,
                metadata_sha256: None,
                provenance: Provenance::default(),
                held: true,
            })
            .collect();
        sort(&mut listed);
        let order: Vec<_> = listed.iter().filter_map(|file| file.version.as_deref()).collect();
        let expected =
            ["1!0.1", "2.10.0", "2.5.0.post1", "2.5.0+cu126", "2.5.0", "2.5.0rc1", "2.5.0a0+nv24.08", "x.y"];
        assert_eq!(order, expected);
    }
}
