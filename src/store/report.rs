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
