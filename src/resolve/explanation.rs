//! What an explanation is made of.

use std::fmt::Write as _;

use serde::Serialize;

use super::words::listed;
use crate::policy::Reason;
use crate::wheel::ProjectName;

/// Why nothing satisfies a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// All of it, in sentences, one a line.
    pub text: String,
    /// What stands in the way, from the request downwards.
    pub causes: Vec<Cause>,
    /// A request near to this one that has an answer, as pins of the projects that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<String>,
    /// Other device profiles for which the request has an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
}

/// One thing that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Of which kind.
    pub kind: CauseKind,
    /// The project that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// The files that it is about, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Why the device may not have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// A sentence.
    pub text: String,
}

/// Kinds of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// A wheel needs another project.
    Needs,
    /// The request contradicts itself.
    Conflict,
    /// A constraint limits a project.
    Constraint,
    /// The project is not known.
    NoSuchProject,
    /// It is, but not in that version.
    NoSuchVersion,
    /// It exists, and is refused for this device.
    Refused,
    /// It was yanked.
    Yanked,
    /// A pre-release, which the requirement leaves out.
    PreRelease,
    /// `Requires-Python` excludes the device's Python.
    RequiresPython,
    /// Its tags do not fit.
    Tags,
    /// Its metadata cannot be used.
    Unusable,
}

impl Explanation {
    /// Adds device profiles for which the same request has an answer.
    pub fn offer_elsewhere(&mut self, devices: Vec<String>) {
        if !devices.is_empty() {
            let _infallible =
                write!(self.text, "\nThe same request has an answer for {}.", listed(&devices, "and"));
        }
        self.elsewhere = devices;
    }
}
