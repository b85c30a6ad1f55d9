//! The values of the rules: thresholds, switches and lists of projects. One form for `policies/rules.toml` and a site's.

use serde::Deserialize;

use super::pattern::Pattern;
use crate::wheel::ProjectName;

/// The values of the rules, built in with a site's over them.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub require_gpu: Vec<Pattern>,
    pub tegra_same_major: SameMajor,
    pub compilers: Compilers,
    pub partial: Vec<Pattern>,
    pub auxiliary: Vec<Pattern>,
    pub thresholds: Thresholds,
    pub owners: Vec<Owner>,
    pub loss_limit: f64,
    pub loss_minimum: u32,
    pub gone: Gone,
}

/// What becomes of files that their upstream lists no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Gone {
    Keep,
    Hide,
}

/// Whether older code of the same major version counts on Orin under an older driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SameMajor {
    Deny,
    Allow,
}

/// What follows if a compiler inside a wheel does not know the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Compilers {
    Refuse,
    Warn,
}

/// From shares to verdicts; the file says what each is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    pub uniform: f64,
    pub run: f64,
    pub stray: f64,
    pub core: f64,
    pub condemn: f64,
}

/// Which upstream owns projects.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Owner {
    pub projects: Vec<Pattern>,
    pub upstream: String,
}

/// A share from 0 to 1.
#[derive(Debug, Clone, Copy)]
struct Share(f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(serde::de::Error::custom(format_args!("a share is a number from 0 to 1; found {value}")))
        }
    }
}

/// What a `rules.toml` states.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RulesFile {
    require_gpu: Option<Vec<Pattern>>,
    require_gpu_add: Vec<Pattern>,
    tegra_same_major: Option<SameMajor>,
    compilers: Option<Compilers>,
    partial: Option<Vec<Pattern>>,
    auxiliary: Option<Vec<Pattern>>,
    thresholds: ThresholdsFile,
    sync: SyncFile,
    snapshots: SnapshotsFile,
    owner: Vec<Owner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SyncFile {
    loss_limit: Option<Share>,
    loss_minimum: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SnapshotsFile {
    gone: Option<Gone>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ThresholdsFile {
    uniform: Option<Share>,
    run: Option<Share>,
    stray: Option<Share>,
    core: Option<Share>,
    condemn: Option<Share>,
}

impl Rules {
    /// The values of `policies/rules.toml`.
    pub(super) fn builtin() -> Self {
        let file: RulesFile = super::tables::builtin(include_str!("../../policies/rules.toml"));
        let mut rules = Self {
            require_gpu: Vec::new(),
            tegra_same_major: SameMajor::Deny,
            compilers: Compilers::Refuse,
            partial: Vec::new(),
            auxiliary: Vec::new(),
            thresholds: Thresholds { uniform: 0.75, run: 0.75, stray: 0.05, core: 0.05, condemn: 0.9 },
            owners: Vec::new(),
            loss_limit: 0.5,
            loss_minimum: 5,
            gone: Gone::Keep,
        };
        rules.read_over(file);
        rules
    }

    /// Takes what a file states.
    pub(super) fn read_over(&mut self, file: RulesFile) {
        fn take<T>(value: &mut T, stated: Option<T>) {
            if let Some(stated) = stated {
                *value = stated;
            }
        }
        take(&mut self.require_gpu, file.require_gpu);
        self.require_gpu.extend(file.require_gpu_add);
        take(&mut self.tegra_same_major, file.tegra_same_major);
        take(&mut self.compilers, file.compilers);
        take(&mut self.partial, file.partial);
        take(&mut self.auxiliary, file.auxiliary);
        let thresholds = &mut self.thresholds;
        for (value, stated) in [
            (&mut thresholds.uniform, file.thresholds.uniform),
            (&mut thresholds.run, file.thresholds.run),
            (&mut thresholds.stray, file.thresholds.stray),
            (&mut thresholds.core, file.thresholds.core),
            (&mut thresholds.condemn, file.thresholds.condemn),
        ] {
            take(value, stated.map(|share| share.0));
        }
        take(&mut self.loss_limit, file.sync.loss_limit.map(|share| share.0));
        take(&mut self.loss_minimum, file.sync.loss_minimum);
        take(&mut self.gone, file.snapshots.gone);
        self.owners.extend(file.owner);
    }
}

/// Whether a list of patterns holds a project.
pub(super) fn lists(patterns: &[Pattern], project: &ProjectName) -> bool {
    patterns.iter().any(|pattern| pattern.matches(project.as_str()))
}
