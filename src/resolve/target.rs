//! What is resolved for: the marker values, the Python and the CUDA of a device profile.

use pep440_rs::Version;

use super::markers::{Environment, Variable};
use crate::policy::{self, DeviceProfile};

/// The Python that each Ubuntu release of a Jetson ships, to the patch release: its last security update.
///
/// A profile states `3.10`; `Requires-Python: >=3.8.1` and `python_full_version` ask for more. Taking `.0` would refuse wheels
/// that every device takes.
const DISTRIBUTION_PYTHONS: [(&str, &str); 4] =
    [("3.6", "3.6.9"), ("3.8", "3.8.10"), ("3.10", "3.10.12"), ("3.12", "3.12.3")];

/// What is resolved for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The device profile's id.
    pub device: String,
    /// Marker values.
    pub environment: Environment,
    /// The full version of its Python.
    pub python: Version,
    /// The CUDA that its wheels are best built for.
    pub cuda: Option<policy::Version>,
}

impl Target {
    /// A Linux device on aarch64 with Python of that version, nothing else known.
    pub fn new(device: &str, python: &policy::Version) -> Self {
        let short = format!("{}.{}", python.major(), python.minor());
        let full = match (python.0.len(), DISTRIBUTION_PYTHONS.iter().find(|(known, _)| *known == short)) {
            (3.., _) => python.to_string(),
            (_, Some((_, full))) => (*full).to_owned(),
            (_, None) => format!("{short}.0"),
        };
        let environment = Environment::default()
            .with(Variable::OsName, "posix")
            .with(Variable::SysPlatform, "linux")
            .with(Variable::PlatformSystem, "Linux")
            .with(Variable::PlatformMachine, "aarch64")
            .with(Variable::PlatformPythonImplementation, "CPython")
            .with(Variable::ImplementationName, "cpython")
            .with(Variable::ImplementationVersion, full.clone())
            .with(Variable::PythonFullVersion, full.clone())
            .with(Variable::PythonVersion, short);
        let python = full
            .parse()
            .unwrap_or_else(|_| Version::new([u64::from(python.major()), u64::from(python.minor())]));
        Self { device: device.to_owned(), environment, python, cuda: None }
    }

    /// What a device profile states. Its kernel's `platform_version` is in no profile.
    pub fn of(profile: &DeviceProfile) -> Self {
        let mut target = Self::new(&profile.id, &profile.python);
        if let Some(release) = &profile.kernel_release {
            target.environment = target.environment.with(Variable::PlatformRelease, release.clone());
        }
        target.cuda = Some(profile.driver_cuda.clone());
        target
    }

    /// Whether a local version label names the CUDA of this device: `cu126` for 12.6.
    pub(super) fn is_built_for(&self, version: &Version) -> bool {
        let Some(cuda) = &self.cuda else { return false };
        let label = format!("cu{}{}", cuda.major(), cuda.minor());
        version.local().iter().any(|segment| segment.to_string() == label)
    }
}
