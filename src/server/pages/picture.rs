//! The picture of a wheel's GPU code: for which chips each library holds how much, and which devices that covers.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Serialize;

use super::layout;
use crate::policy::{Coverage, DeviceProfile, Policy, coverage};
use crate::wheel::{Facts, Member};

/// How many libraries are shown; a wheel of hundreds has them all alike.
const MOST_LIBRARIES: usize = 60;

/// How many chips have a column.
const MOST_IMAGES: usize = 24;

/// The images of a file, by chip: those of `sm_90` before those of `sm_100`.
fn by_chip(facts: &Facts) -> Vec<String> {
    let number = |name: &&String| {
        let digits = name.chars().filter(char::is_ascii_digit).take(4).collect::<String>();
        digits.parse::<u32>().unwrap_or(u32::MAX)
    };
    let mut names: Vec<&String> = facts.images.keys().collect();
    names.sort_by_key(|name| (number(name), *name));
    names.into_iter().take(MOST_IMAGES).cloned().collect()
}

/// What is shown of a wheel's GPU code.
#[derive(Serialize)]
pub(super) struct Picture {
    images: Vec<String>,
    libraries: Vec<Library>,
    /// How many libraries with GPU code there are in all.
    total: usize,
}

#[derive(Serialize)]
struct Library {
    path: String,
    images: BTreeMap<String, u64>,
    devices: BTreeMap<String, Coverage>,
    /// The most fatbinaries that one chip has in it.
    #[serde(skip)]
    most: u64,
}

impl Picture {
    /// The picture of a file, with how far its libraries run on some devices.
    pub(super) fn of(facts: &Facts, devices: &[&DeviceProfile], policy: &Policy) -> Self {
        let with_code: Vec<&Member> = facts
            .members
            .iter()
            .filter(|member| !member.images.is_empty() || !member.bare_cubins.is_empty())
            .collect();
        let library = |member: &&Member| {
            let images = if member.images.is_empty() { &member.bare_cubins } else { &member.images };
            let covered =
                |device: &&DeviceProfile| Some((device.id.clone(), coverage(member, device, policy)?));
            Library {
                path: member.path.clone(),
                images: images.clone(),
                devices: devices.iter().filter_map(covered).collect(),
                most: images.values().copied().max().unwrap_or(1).max(1),
            }
        };
        Self {
            images: by_chip(facts),
            libraries: with_code.iter().take(MOST_LIBRARIES).map(library).collect(),
            total: with_code.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.libraries.is_empty()
    }

    /// One row for each library, one column for each chip, and one for each device.
    pub(super) fn render(&self, devices: &[&DeviceProfile]) -> Markup {
        html! {
            p { "Each bar shows how many of a library's fatbinaries hold code for a chip ("
                code { "sm_" } ": machine code, " code { "compute_" } ": PTX, which the driver compiles), beside the chip that it has most for." }
            (layout::wide("GPU code by library", &html! { table {
                thead { tr {
                    th scope="col" { "Library" }
                    @for device in devices { th scope="col" { (device.id) } }
                    @for image in &self.images { th scope="col" { code { (image) } } }
                } }
                tbody { @for library in &self.libraries { tr {
                    th scope="row" { (library.path) }
                    @for device in devices { td { (covered(library.devices.get(&device.id).copied())) } }
                    @for image in &self.images { td { @match library.images.get(image) {
                        Some(count) => { (bar(*count, library.most)) (count) },
                        None => { span.dim { "none" } }
                    } } }
                } } }
            } }))
            @if self.total > self.libraries.len() { p { (self.total.saturating_sub(self.libraries.len())) " more libraries are not shown; the JSON of " code { "jetwheel inspect" } " has all." } }
        }
    }
}

fn covered(coverage: Option<Coverage>) -> Markup {
    let (class, sign, word) = match coverage {
        None => return html! { span.dim { "does not count" } },
        Some(Coverage::Runs) => ("good", "✓", "covered"),
        Some(Coverage::ByJit) => ("fair", "◐", "by PTX"),
        Some(Coverage::InPart) => ("fair", "◐", "in part"),
        Some(Coverage::No) => ("bad", "✗", "not covered"),
    };
    html! { span class={ "cell " (class) } { span aria-hidden="true" { (sign) " " } (word) } }
}

/// A bar; the number stands beside it.
fn bar(count: u64, most: u64) -> Markup {
    let width = count.saturating_mul(100).checked_div(most).unwrap_or(0).clamp(1, 100);
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect width="100" height="10" {}
            rect.part width=(width) height="10" {}
        }
    }
}
