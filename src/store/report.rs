//! What devices report of the wheels that they run, in a log of its own.

use serde::{Deserialize, Serialize};

use super::notes::Log;
use super::{Error, Store};
use crate::digest::Sha256;
use crate::wheel::Facts;

/// A report as `check.py` sends it. Keys that are not named here are dropped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportBody {
    /// Id of the device profile.
    pub device: String,
    /// Whether no check failed.
    pub passed: bool,
    /// A name of the device that tells it from others and nothing else of it; none from an older `check.py`.
    #[serde(default)]
    pub unit: Option<String>,
    /// The GPU; none where all was computed on the CPU.
    pub gpu: Option<Gpu>,
    /// Version of torch.
    pub torch: String,
    /// `uname -m`.
    #[serde(default)]
    pub machine: Option<String>,
    /// `uname -r`.
    #[serde(default)]
    pub kernel: Option<String>,
    /// The installed wheels that matter.
    pub wheels: Vec<InstalledWheel>,
    /// What was checked.
    pub checks: Vec<Check>,
}

/// The GPU of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name, as the driver has it.
    pub name: String,
    /// Its compute capability: `8.7`.
    pub compute_capability: String,
}

/// An installed wheel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledWheel {
    /// Project.
    pub name: String,
    /// Version.
    pub version: String,
    /// Digest of its METADATA, which names the wheel.
    pub metadata_sha256: Option<Sha256>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was computed.
    pub name: String,
    /// `pass`, `fail` or `skip`.
    pub status: String,
    /// Largest error, relative to the largest value of the CPU's result.
    #[serde(default)]
    pub error: Option<f64>,
    /// The largest error that passes.
    #[serde(default)]
    pub limit: Option<f64>,
    /// Time taken.
    pub seconds: f64,
    /// Why it failed or was skipped.
    #[serde(default)]
    pub text: Option<String>,
}

impl ReportBody {
    /// An advisory that a site may want after this report failed: the name of its file in the policy folder's `advisories/`,
    /// and its text. None where it did not fail, or names no wheel to blame.
    ///
    /// It warns, for one device may be at fault itself; `refuse` hides the wheel.
    pub fn advisory(&self) -> Option<(String, String)> {
        let failed: Vec<&str> = self
            .checks
            .iter()
            .filter(|check| check.status == "fail")
            .map(|check| check.name.as_str())
            .collect();
        let is_vision = |name: &&str| name.starts_with("torchvision.");
        let project =
            if !failed.is_empty() && failed.iter().all(is_vision) { "torchvision" } else { "torch" };
        let wheel = self.wheels.iter().find(|wheel| wheel.name == project).filter(|_| !self.passed)?;
        // The version becomes part of a file name, and must be one that a specifier can hold.
        let version: pep440_rs::Version = wheel.version.parse().ok()?;
        let id = format!("{project}-{version}-on-{}", self.device);
        let on = self.gpu.as_ref().map_or("its CPU alone", |gpu| gpu.name.as_str());
        let text = format!("failed on {} ({on}): {}", self.device, failed.join(", "));
        let text: String = text.chars().take(LONGEST_ADVISORY).collect();
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let toml = format!(
            "[[advisory]]\nid = {}\nproject = {}\nversions = {}\ndevices = [{}]\naction = \"warn\"\ntext = {}\nsources = []\n",
            quoted(&id),
            quoted(project),
            quoted(&format!("=={version}")),
            quoted(&self.device),
            quoted(&text),
        );
        Some((format!("{id}.toml"), toml))
    }
}

/// Most characters of an advisory's text.
const LONGEST_ADVISORY: usize = 500;

/// A report that was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// When it came, RFC 3339 in UTC.
    pub time: String,
    /// What it says.
    #[serde(flatten)]
    pub body: ReportBody,
}

impl DeviceReport {
    /// A report that comes now.
    pub fn now(body: ReportBody) -> Self {
        Self { time: jiff::Timestamp::now().to_string(), body }
    }

    /// Whether it is of a device of that profile that has that wheel installed; METADATA's digest tells.
    pub fn is_of(&self, device: &str, facts: &Facts) -> bool {
        let installed = |wheel: &InstalledWheel| wheel.metadata_sha256 == facts.metadata_sha256;
        self.body.device == device
            && facts.metadata_sha256.is_some()
            && self.body.wheels.iter().any(installed)
    }
}

impl Store {
    /// Keeps a report: durable when this returns.
    pub fn put_report(&self, report: &DeviceReport) -> Result<(), Error> {
        let turn = self.notes.turn()?;
        turn.append(Log::Reports, report)?;
        turn.finish().map(drop)
    }

    /// The reports of the newest log, oldest first.
    pub fn reports(&self) -> Result<Vec<DeviceReport>, Error> {
        self.notes.lines(Log::Reports)
    }
}
