//! Which profile a machine has, from what its system files say. Bytes in, an id with its evidence out; no file is read here.

use serde::Serialize;

use super::tables::{Jetpack, Soc, TABLES};
use super::{DeviceProfile, NoteCode, Policy, Version};

/// The build number in release files that container images make up (`jetson-containers`, `nv_tegra_release()`).
const MADE_UP_GCID: &str = "12345678";

/// The system files of a machine that tell of its hardware and release; those that it has.
#[derive(Debug, Clone, Default)]
pub struct SystemFiles {
    /// `/proc/device-tree/compatible`: entries that end in NUL.
    pub compatible: Option<Vec<u8>>,
    /// `/proc/device-tree/model`.
    pub model: Option<Vec<u8>>,
    /// `/etc/nv_tegra_release`.
    pub nv_tegra_release: Option<Vec<u8>>,
    /// `/var/lib/dpkg/status`.
    pub dpkg_status: Option<Vec<u8>>,
    /// `/usr/local/cuda/version.json` (CUDA 11 and later), else `version.txt`.
    pub cuda_version: Option<Vec<u8>>,
    /// File name of `libcudart.so.X.Y.Z`, where there is no version file.
    pub cudart: Option<String>,
    /// `/proc/sys/kernel/osrelease`: `uname -r`.
    pub kernel_release: Option<Vec<u8>>,
}

/// What was found out about a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Detection {
    /// Its profile; none if it is no Jetson, or cannot be told.
    pub device: Option<String>,
    /// What says so.
    pub evidence: Vec<Evidence>,
    /// What to know of it.
    pub notes: Vec<DetectionNote>,
}

/// One thing that a source says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// File, package or line.
    pub source: String,
    /// What it says.
    pub found: String,
}

/// Something to know of a detection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DetectionNote {
    /// Its kind, where verdicts have it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<NoteCode>,
    /// A sentence for people.
    pub text: String,
}

/// What sources say, before it is put together.
#[derive(Debug, Default)]
struct Said {
    socs: Vec<(&'static Soc, Evidence)>,
    l4t: Vec<(Version, Evidence)>,
    jetpack: Option<(String, Evidence)>,
    cuda: Option<(Version, Evidence)>,
    kernel: Option<(String, Evidence)>,
    notes: Vec<DetectionNote>,
}

fn evidence(source: &str, found: impl Into<String>) -> Evidence {
    Evidence { source: source.to_owned(), found: found.into() }
}

fn note(text: String) -> DetectionNote {
    DetectionNote { code: None, text }
}

/// Tells a machine's profile from its system files.
pub fn detect(files: &SystemFiles, policy: &Policy) -> Detection {
    let mut said = Said::default();
    if let Some(bytes) = &files.compatible {
        read_compatible(bytes, &mut said);
    }
    if let Some(bytes) = files.model.as_ref().filter(|_| said.socs.is_empty()) {
        let model = text(bytes);
        let model = model.trim_matches(['\0', '\n', ' ']);
        said.socs.extend(soc_by_words(model).map(|soc| (soc, evidence("/proc/device-tree/model", model))));
    }
    if let Some(bytes) = &files.nv_tegra_release {
        read_nv_tegra_release(&text(bytes), &mut said);
    }
    if let Some(bytes) = &files.dpkg_status {
        read_dpkg_status(&text(bytes), &mut said);
    }
    if let Some(bytes) = &files.cuda_version {
        let release = cuda_version(&text(bytes));
        said.cuda = release.map(|cuda| (cuda.clone(), evidence("/usr/local/cuda", format!("CUDA {cuda}"))));
    } else if let Some(name) = &files.cudart {
        let version = name.strip_prefix("libcudart.so.").and_then(|version| version.parse().ok());
        said.cuda = version.map(|cuda| (cuda, evidence("/usr/local/cuda/lib64", name.as_str())));
    }
    if let Some(bytes) = &files.kernel_release {
        let kernel = text(bytes).trim().to_owned();
        said.kernel = Some((kernel.clone(), evidence("uname -r", kernel)));
    }
    said.conclude(policy)
}

/// Tells a machine's profile from what `jetson_release -v` printed there, colours and all.
pub fn detect_jetson_release(output: &str, policy: &Policy) -> Detection {
    let mut said = Said::default();
    let mut by_words = None;
    for line in without_colours(output).lines() {
        let line = line.trim().trim_start_matches("- ").trim();
        if let Some((_, rest)) = line.split_once("[L4T ") {
            let release = rest.split(']').next().unwrap_or_default();
            add_l4t(&mut said, release, "jetson_release");
        }
        let Some((key, value)) = line.split_once(':') else {
            by_words = by_words.or_else(|| model_line(line));
            continue;
        };
        let value = value.trim();
        let here = || evidence(&format!("jetson_release, {key}"), value);
        match key {
            "L4T" => add_l4t(&mut said, value, "jetson_release, L4T"),
            "SoC" => said.socs.extend(soc_by_id(value).map(|soc| (soc, here()))),
            "P-Number" => said.socs.extend(soc_by_part(value).map(|soc| (soc, here()))),
            "CUDA Arch BIN" => said.socs.extend(soc_by_capability(value).map(|soc| (soc, here()))),
            "Module" | "Model" => by_words = by_words.or_else(|| model_line(value)),
            "CUDA" => said.cuda = version_in(value).map(|cuda| (cuda, here())),
            "Release" if value.contains('.') => said.kernel = Some((value.to_owned(), here())),
            _ => {}
        }
    }
    if said.socs.is_empty() {
        said.socs.extend(by_words.map(|(soc, line)| (soc, evidence("jetson_release, model", line))));
    }
    said.conclude(policy)
}

/// A line such as `NVIDIA Jetson AGX Thor Developer Kit - Jetpack 7.0 [L4T 38.2.0]`.
fn model_line(line: &str) -> Option<(&'static Soc, String)> {
    let model = line.split(" - Jetpack").next().unwrap_or(line);
    model.to_ascii_lowercase().contains("jetson").then_some(())?;
    soc_by_words(model).map(|soc| (soc, model.to_owned()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Cuts ANSI escape sequences out: `ESC [ ... letter`.
fn without_colours(output: &str) -> String {
    let mut plain = String::with_capacity(output.len());
    let mut letters = output.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            if letters.next() == Some('[') {
                letters.by_ref().find(char::is_ascii_alphabetic);
            }
        } else {
            plain.push(letter);
        }
    }
    plain
}

fn socs() -> impl DoubleEndedIterator<Item = &'static Soc> {
    TABLES.socs.iter()
}

/// An Orin Nano is an Orin: later chips are tried first.
fn soc_by_words(model: &str) -> Option<&'static Soc> {
    let model = model.to_ascii_lowercase();
    socs().rev().find(|soc| soc.words.iter().any(|word| model.contains(word.as_str())))
}

/// `tegra234`, and the group name `tegra23x` that L4T R35 has.
fn soc_by_id(id: &str) -> Option<&'static Soc> {
    let entry = format!("nvidia,{id}");
    socs().find(|soc| soc.compatible.contains(&entry))
}

fn soc_by_part(part: &str) -> Option<&'static Soc> {
    socs().find(|soc| soc.parts.iter().any(|start| part.starts_with(start.as_str())))
}

fn soc_by_capability(capability: &str) -> Option<&'static Soc> {
    let capability = capability.parse().ok()?;
    socs().find(|soc| TABLES.chips.same(soc.compute_capability, capability))
}

/// Entries end in NUL, most specific first; the chip may stand anywhere behind the boards.
fn read_compatible(bytes: &[u8], said: &mut Said) {
    let source = "/proc/device-tree/compatible";
    let entries: Vec<String> =
        bytes.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()).map(text).collect();
    for entry in &entries {
        let entry = entry.trim();
        said.socs.extend(
            socs()
                .find(|soc| soc.compatible.iter().any(|known| known == entry))
                .map(|soc| (soc, evidence(source, entry))),
        );
    }
    if said.socs.is_empty() {
        let board = |entry: &String| {
            let soc = socs().find(|soc| soc.boards.contains(entry))?;
            Some((soc, evidence(source, entry.as_str())))
        };
        let part = |entry: &String| {
            let number = entry.rsplit(['+', ',']).next()?;
            Some((soc_by_part(number)?, evidence(source, entry.as_str())))
        };
        said.socs.extend(entries.iter().find_map(board).or_else(|| entries.iter().find_map(part)));
    }
}

/// `# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic, ...`
fn read_nv_tegra_release(release: &str, said: &mut Said) {
    let Some(line) = release.lines().find(|line| line.starts_with("# R")) else { return };
    let major = line.trim_start_matches("# R").split(' ').next().unwrap_or_default();
    let field = |name: &str| {
        let (_, rest) = line.split_once(name)?;
        rest.split(',').next().map(str::trim)
    };
    let Some(revision) = field("REVISION:") else { return };
    if field("GCID:") == Some(MADE_UP_GCID) {
        said.notes.push(note(format!(
            "/etc/nv_tegra_release has the build number {MADE_UP_GCID}: a container image made it up, and the host may \
             be another release"
        )));
    }
    add_l4t(said, &format!("{major}.{revision}"), "/etc/nv_tegra_release");
    // The first generation names its board here; t186ref stands for several chips.
    if said.socs.is_empty() && field("BOARD:") == Some("t210ref") {
        said.socs
            .extend(soc_by_id("tegra210").map(|soc| (soc, evidence("/etc/nv_tegra_release", "t210ref"))));
    }
}

/// Takes an L4T release, written with all three numbers.
fn add_l4t(said: &mut Said, release: &str, source: &str) {
    let Ok(mut version) = release.trim().parse::<Version>() else { return };
    if version.0.len() < 2 || version.0.len() > 4 {
        return;
    }
    while version.0.len() < 3 {
        version.0.push(0);
    }
    let found = format!("L4T {version}");
    said.l4t.push((version, evidence(source, found)));
}

/// Stanzas parted by empty lines; a package counts only if it is installed.
fn read_dpkg_status(status: &str, said: &mut Said) {
    for stanza in status.split("\n\n") {
        let field = |name: &str| {
            stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::trim)
        };
        let Some(package) = field("Package").filter(|package| package.starts_with("nvidia-")) else {
            continue;
        };
        let installed = field("Status").is_none_or(|status| status.ends_with(" installed"));
        let Some(version) = field("Version").filter(|_| installed) else { continue };
        let source = format!("dpkg, {package}");
        match package {
            "nvidia-jetpack" => {
                let release = version.split(['+', '-']).next().unwrap_or(version).to_owned();
                said.jetpack = Some((release, evidence(&source, version)));
            }
            "nvidia-l4t-core" => add_l4t(said, version.split('-').next().unwrap_or(version), &source),
            _ => {}
        }
    }
}

/// The CUDA release of `version.json` (`{"cuda": {"version": "12.6.68"}}`) or of `version.txt` (`CUDA Version 10.2.300`).
fn cuda_version(text: &str) -> Option<Version> {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(text) {
        let version = |part: &str| json[part]["version"].as_str();
        return version("cuda").or_else(|| version("cuda_nvcc"))?.parse().ok();
    }
    version_in(text.split_once("CUDA Version")?.1)
}

fn version_in(text: &str) -> Option<Version> {
    text.split_whitespace().next()?.parse().ok()
}

impl Said {
    /// Puts together what the sources say: the first one of each kind counts, and where others differ that is told.
    fn conclude(mut self, policy: &Policy) -> Detection {
        let mut evidence: Vec<Evidence> = self.socs.iter().map(|(_, evidence)| evidence.clone()).collect();
        evidence.extend(self.l4t.iter().map(|(_, evidence)| evidence.clone()));
        let rest = [
            self.jetpack.as_ref().map(|(_, evidence)| evidence),
            self.cuda.as_ref().map(|(_, evidence)| evidence),
            self.kernel.as_ref().map(|(_, evidence)| evidence),
        ];
        evidence.extend(rest.into_iter().flatten().cloned());
        evidence.dedup();

        let device = self.choose(policy).map(|device| device.id.clone());
        if let Some(device) = device.as_deref().and_then(|id| policy.device(id)) {
            self.compare(device);
        }
        Detection { device, evidence, notes: self.notes }
    }

    fn choose<'p>(&mut self, policy: &'p Policy) -> Option<&'p DeviceProfile> {
        if let Some((first, other)) = differing(&self.socs, |soc| soc.id.as_str()) {
            self.notes.push(note(format!("{first} and {other} name different chips; the first one counts")));
        }
        if let Some((first, other)) = differing(&self.l4t, |l4t| l4t) {
            self.notes.push(note(format!(
                "{first} and {other} differ; the first one counts. In a container, dpkg shows the image, not the host"
            )));
        }
        let soc = self.socs.first().map(|(soc, _)| soc.id.as_str());
        let l4t = self.l4t.first().map(|(l4t, _)| l4t.clone());
        let release = match (&l4t, &self.jetpack) {
            (Some(l4t), _) => Some(self.release_of_l4t(l4t, soc)?),
            (None, Some((jetpack, _))) => {
                TABLES.jetpack.jetpack.iter().find(|release| release.version == *jetpack)
            }
            (None, None) => None,
        }?;
        let soc = soc.or_else(|| {
            let mut socs = release.stack.keys();
            let only = socs.next().filter(|_| socs.next().is_none())?;
            self.notes.push(note(format!(
                "nothing names the chip; JetPack {} is for {only} alone",
                release.version
            )));
            Some(only)
        });
        let Some(soc) = soc else {
            let socs: Vec<&str> = release.stack.keys().map(String::as_str).collect();
            self.notes.push(note(format!(
                "nothing names the chip, and JetPack {} is for several: {}",
                release.version,
                socs.join(", ")
            )));
            return None;
        };
        policy.devices().find(|device| {
            device.soc == soc && device.jetpack.as_ref() == Some(&release.version) && TABLES.has(&device.id)
        })
    }

    /// The JetPack of an L4T release for a chip; if no table knows it, that of the nearest known release of its family.
    fn release_of_l4t(&mut self, l4t: &Version, soc: Option<&str>) -> Option<&'static Jetpack> {
        let (release, exact) = release_of_l4t(l4t, soc)?;
        if !exact {
            self.notes.push(DetectionNote {
                code: Some(NoteCode::NearestProfile),
                text: format!(
                    "no table knows L4T {l4t}: JetPack {} is the nearest release of its family",
                    release.version
                ),
            });
        }
        Some(release)
    }

    /// Tells where the rest of the evidence does not fit the profile.
    fn compare(&mut self, device: &DeviceProfile) {
        let known = device.jetpack.as_deref().unwrap_or_default();
        if let Some((jetpack, _)) = self.jetpack.as_ref().filter(|(jetpack, _)| jetpack != known) {
            self.notes
                .push(note(format!("the package nvidia-jetpack is of JetPack {jetpack}, L4T of {known}")));
        }
        if let Some((cuda, _)) = &self.cuda
            && cuda.release() != device.driver_cuda.release()
        {
            let driver = &device.driver_cuda;
            let more = if cuda.release() > driver.release() {
                "; with its cuda-compat package in use, state cuda_compat for the device in devices.toml"
            } else {
                ""
            };
            self.notes.push(note(format!(
                "the CUDA toolkit is {cuda}, the driver of {} serves up to {driver}{more}",
                device.id
            )));
        }
        let kernel = self.kernel.as_ref().map(|(kernel, _)| kernel.as_str());
        if let (Some(kernel), Some(expected)) = (kernel, device.kernel_release.as_deref())
            && kernel != expected
        {
            self.notes.push(note(format!(
                "the kernel is {kernel}, that of {} is {expected}: a kernel of one's own, or a container on another \
                 release",
                device.id
            )));
        }
    }
}

/// The first two of a list's entries that differ, as text.
fn differing<'a, T, K: PartialEq>(
    said: &'a [(T, Evidence)],
    key: impl Fn(&'a T) -> K,
) -> Option<(String, String)> {
    let (first, evidence) = said.first()?;
    let other = said.iter().find(|(other, _)| key(other) != key(first))?;
    let tell = |evidence: &Evidence| format!("{} ({})", evidence.source, evidence.found);
    Some((tell(evidence), tell(&other.1)))
}

/// The JetPack of an L4T release for a chip, and whether the table knows the very release.
///
/// The family is the first number (36 of 36.4.9). The nearest is the last known one before it, else the first after it.
pub(super) fn release_of_l4t(l4t: &Version, soc: Option<&str>) -> Option<(&'static Jetpack, bool)> {
    let releases =
        TABLES.jetpack.jetpack.iter().filter(|release| soc.is_none_or(|soc| release.stack.contains_key(soc)));
    let mut known: Vec<(&Version, &Jetpack)> = releases
        .flat_map(|release| release.l4t.iter().map(move |l4t| (l4t, release)))
        .filter(|(known, _)| known.major() == l4t.major())
        .collect();
    known.sort_by_key(|(l4t, _)| *l4t);
    let before = known.iter().rev().find(|(known, _)| *known <= l4t);
    let (nearest, release) = before.or_else(|| known.first())?;
    Some((release, *nearest == l4t))
}
