//! Known-bad combinations, which bytes cannot show.

use pep440_rs::{Version as ProjectVersion, VersionSpecifiers};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use super::{Case, Code, DeviceProfile, Note, NoteCode, Reason};
use crate::wheel::ProjectName;

/// A known-bad combination of versions and devices.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advisory {
    /// Its name; a site's advisory replaces a built-in one of the same id.
    pub id: String,
    /// The project.
    pub project: ProjectName,
    /// Versions concerned, as PEP 440 writes them; all where there are none.
    #[serde(default)]
    pub versions: VersionSpecifiers,
    /// Compute capabilities concerned, with `*`: `10.*`. Empty: no limit by this.
    #[serde(default)]
    pub compute_capability: Vec<Pattern>,
    /// Ids of profiles concerned, with `*`: `orin-jp6*`. Empty: no limit by this.
    #[serde(default)]
    pub devices: Vec<Pattern>,
    /// What follows.
    #[serde(default)]
    pub action: Action,
    /// What goes wrong, for people.
    pub text: String,
    /// Where that is known from.
    #[serde(default)]
    pub sources: Vec<String>,
}

/// What follows from an advisory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The wheel is listed with a note.
    #[default]
    Warn,
    /// The wheel is refused.
    Refuse,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdvisoryFile {
    #[serde(default)]
    pub advisory: Vec<Advisory>,
}

impl Advisory {
    /// Whether it concerns a device.
    pub fn concerns(&self, device: &DeviceProfile) -> bool {
        let capability = device.compute_capability.to_string();
        let by_capability = self.compute_capability.iter().any(|pattern| pattern.matches(&capability));
        let by_id = self.devices.iter().any(|pattern| pattern.matches(&device.id));
        (self.compute_capability.is_empty() && self.devices.is_empty()) || by_capability || by_id
    }

    /// Whether it concerns that version; a version that cannot be read is not spared.
    fn covers(&self, version: Option<&str>) -> bool {
        version
            .and_then(|version| version.parse::<ProjectVersion>().ok())
            .is_none_or(|version| self.versions.contains(&version))
    }
}

/// The advisories in force for a wheel on a device.
fn in_force<'a>(case: &'a Case<'_>) -> impl Iterator<Item = &'a Advisory> {
    let facts = case.facts;
    case.policy.advisories.iter().filter(move |advisory| {
        facts.project.as_ref() == Some(&advisory.project)
            && advisory.concerns(case.device)
            && advisory.covers(facts.version.as_deref())
    })
}

/// Refuses what an advisory with `action = "refuse"` names.
pub(super) fn judge(case: &Case<'_>, reasons: &mut Vec<Reason>) {
    for advisory in in_force(case).filter(|advisory| advisory.action == Action::Refuse) {
        let wanted = if advisory.versions.is_empty() {
            "another project: it is of every version".to_owned()
        } else {
            format!("a version outside {}", advisory.versions)
        };
        let see = advisory.sources.first().map(|source| format!("; see {source}")).unwrap_or_default();
        reasons.push(Reason {
            code: Code::Advisory,
            member: None,
            found: vec![case.facts.version.clone().unwrap_or_default()],
            text: format!("advisory {}: {}", advisory.id, advisory.text),
            remedy: format!("take {wanted}{see}"),
            wanted: vec![wanted],
        });
    }
}

/// Warns of what other advisories name.
pub(super) fn note(case: &Case<'_>, notes: &mut Vec<Note>) {
    for advisory in in_force(case).filter(|advisory| advisory.action == Action::Warn) {
        notes.push(Note { code: NoteCode::Advisory, text: format!("{}: {}", advisory.id, advisory.text) });
    }
}
