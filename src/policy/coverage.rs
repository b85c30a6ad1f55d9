//! How far the GPU code of one library runs on a device, for people who look at a wheel.

use serde::Serialize;

use super::image::Fit;
use super::library::{self, Runs};
use super::{DeviceProfile, Policy};
use crate::wheel::Member;

/// How far one library runs; from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coverage {
    /// All that it needs is there as machine code.
    Runs,
    /// Most of it is compiled from PTX at first use.
    ByJit,
    /// Some of its kernels have nothing for the device.
    InPart,
    /// Nothing of it runs.
    No,
}

/// How far a member's GPU code runs on a device; none where it has none that counts.
///
/// It is what the verdict on a wheel is made of, not the verdict: which libraries decide is told by the rule as a whole.
pub fn coverage(member: &Member, device: &DeviceProfile, policy: &Policy) -> Option<Coverage> {
    let gpu = policy.gpu(device);
    let thresholds = &policy.rules.thresholds;
    if let Some(library) = library::assess(member, &gpu, thresholds) {
        return Some(match library.runs(thresholds, false) {
            Runs::Yes => Coverage::Runs,
            Runs::ByJit => Coverage::ByJit,
            Runs::InPart => Coverage::InPart,
            Runs::No => Coverage::No,
        });
    }
    let bare = member.bare_cubins.keys().filter_map(|name| name.parse().ok());
    bare.map(|code| gpu.fit(&code)).max().map(|best| match best {
        Fit::Native | Fit::SameMajor => Coverage::Runs,
        Fit::Ptx => Coverage::ByJit,
        Fit::PtxTooNew | Fit::No => Coverage::No,
    })
}
