//! Device profiles, and which wheels run on which: facts × profile × policy = verdict.
//!
//! The tables are data, in `policies/`; the code of each rule is one file. [`judge`] runs them all, most basic first, and
//! gives every reason that applies.

mod advisory;
mod compiler;
mod container;
mod coverage;
mod cuda_runtime;
mod damage;
mod detect;
mod device;
mod explain;
mod glibc;
mod gpu_build;
mod gpu_code;
mod image;
mod kernels;
mod known_error;
mod library;
mod nearest;
mod pattern;
mod remedy;
mod rules;
mod site;
mod soname;
mod tables;
mod tags;
mod verdict;

use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use advisory::{Action, Advisory};
pub use container::container_image;
pub use coverage::{Coverage, coverage};
pub use detect::{Detection, DetectionNote, Evidence, SystemFiles, detect, detect_jetson_release};
pub use device::{DeviceProfile, NotAVersion, Stack, Version};
pub use explain::{Candidate, DeviceCheck, ExplainedFile, Explanation, code_name, explain};
pub use known_error::{KnownError, Recognized, Word, recognize};
pub use pattern::Pattern;
pub use verdict::{Code, Judgement, Note, NoteCode, Reason, Verdict};

use crate::wheel::{Facts, ProjectName, WheelFilename};
use cuda_runtime::Need;
use gpu_code::{Outcome, Runs};
use image::Gpu;
use rules::{Rules, SameMajor};
use tables::TABLES;
use tags::DeviceTags;

/// All tables, built in and of the site: what facts are judged by.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Rules,
    advisories: Vec<Advisory>,
    devices: Vec<DeviceProfile>,
    /// Places in `devices`, by id and by alias.
    by_id: BTreeMap<String, usize>,
    /// What installers accept, by place in `devices`; made at first use.
    tags: Vec<OnceLock<DeviceTags>>,
}

/// Why a policy file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {text}")]
pub struct PolicyError {
    /// The file's name.
    pub file: String,
    /// What is wrong with it, with line and column where that is known.
    pub text: String,
}

impl Default for Policy {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Policy {
    /// The built-in tables.
    pub fn builtin() -> Self {
        let advisories: advisory::AdvisoryFile =
            tables::builtin(include_str!("../../policies/advisories.toml"));
        let mut policy = Self {
            rules: Rules::builtin(),
            advisories: advisories.advisory,
            devices: TABLES.devices.clone(),
            by_id: BTreeMap::new(),
            tags: Vec::new(),
        };
        policy.index();
        policy
    }

    /// The built-in tables with a site's files read over them: names relative to its folder (`devices.toml`, `rules.toml`,
    /// `advisories/x.toml`) and their texts.
    ///
    /// ```
    /// use jetwheel::policy::Policy;
    ///
    /// let text = "[[device]]\nid = \"robots\"\nbase = \"orin-jp6.2\"\ncuda_compat = \"12.8\"\n";
    /// let policy = Policy::with_site(&[("devices.toml".to_owned(), text.to_owned())]).unwrap();
    /// assert_eq!(policy.device("robots").unwrap().python.to_string(), "3.10");
    /// ```
    pub fn with_site(files: &[(String, String)]) -> Result<Self, PolicyError> {
        let mut policy = Self::builtin();
        site::read_over(&mut policy, files)?;
        Ok(policy)
    }

    /// Adds a profile, or puts it in the place of that of the same id.
    fn add_device(&mut self, profile: DeviceProfile) {
        match self.devices.iter().position(|known| known.id == profile.id) {
            Some(at) => self.devices[at] = profile,
            None => self.devices.push(profile),
        }
        self.index();
    }

    fn index(&mut self) {
        let ids = self.devices.iter().enumerate().map(|(at, device)| (device.id.clone(), at));
        self.by_id = ids.collect();
        self.tags = self.devices.iter().map(|_| OnceLock::new()).collect();
        for (alias, id) in &TABLES.aliases {
            if let Some(&at) = self.by_id.get(id) {
                self.by_id.entry(alias.clone()).or_insert(at);
            }
        }
    }

    /// The profile of that id, or of that alias.
    pub fn device(&self, id: &str) -> Option<&DeviceProfile> {
        self.devices.get(*self.by_id.get(id)?)
    }

    /// All profiles, by chip and release.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceProfile> {
        self.devices.iter()
    }

    /// The name of each chip in profile ids, with the entries of `/proc/device-tree/compatible` that name the chip or a board
    /// that carries it.
    pub fn device_tree_entries() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
        TABLES.socs.iter().map(|soc| {
            let entries = soc.compatible.iter().chain(&soc.boards).map(String::as_str);
            (soc.name.as_str(), entries.collect())
        })
    }

    /// The known ids most like that one, best first; at most five.
    pub fn nearest(&self, id: &str) -> Vec<&str> {
        nearest::nearest(id, self.devices.iter().map(|device| device.id.as_str()))
    }

    /// Whether a device's index lists a wheel of that project with that verdict.
    pub fn lists(&self, project: &ProjectName, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Admit | Verdict::AdmitJit => true,
            Verdict::Partial => rules::lists(&self.rules.partial, project),
            Verdict::Refuse => false,
        }
    }

    /// Whether the dependants of a project can do without it on a single GPU.
    pub fn is_auxiliary(&self, project: &ProjectName) -> bool {
        rules::lists(&self.rules.auxiliary, project)
    }

    /// Whether a project must hold GPU code.
    pub fn requires_gpu(&self, project: &ProjectName) -> bool {
        rules::lists(&self.rules.require_gpu, project)
    }

    /// The upstream that owns a project, where policy names one; of several patterns the last one counts.
    pub fn owner(&self, project: &ProjectName) -> Option<&str> {
        let owners = self.rules.owners.iter().rev();
        let mut owners = owners.filter(|owner| rules::lists(&owner.projects, project));
        owners.next().map(|owner| owner.upstream.as_str())
    }

    /// Whether an upstream that no more lists so many of the files known from it has lost most of what it had.
    #[expect(clippy::cast_precision_loss, reason = "a share of counts far below 2^52")]
    pub fn is_loss(&self, lost: u64, known: u64) -> bool {
        known >= u64::from(self.rules.loss_minimum) && lost as f64 > known as f64 * self.rules.loss_limit
    }

    /// Whether new snapshots leave out what its upstream lists no more.
    pub fn hides_gone(&self) -> bool {
        self.rules.gone == rules::Gone::Hide
    }

    /// All advisories, built in and of the site.
    pub fn advisories(&self) -> &[Advisory] {
        &self.advisories
    }

    /// What an installer on a device accepts; none where the profile is not one of this policy.
    fn tags(&self, device: &DeviceProfile) -> Option<&DeviceTags> {
        let same = |known: &DeviceProfile| {
            std::ptr::eq(known, device)
                || (known.python == device.python && known.platform_tags == device.platform_tags)
        };
        let at = *self.by_id.get(&device.id)?;
        let known = self.devices.get(at).filter(|known| same(known))?;
        Some(self.tags.get(at)?.get_or_init(|| DeviceTags::of(known)))
    }

    /// The GPU and driver of a device, as images are tried on them.
    fn gpu(&self, device: &DeviceProfile) -> Gpu<'static> {
        let compat = device.cuda_compat.as_ref().and_then(|cuda| TABLES.cuda.ptx_isa(cuda));
        Gpu {
            chips: &TABLES.chips,
            capability: device.compute_capability,
            integrated: device.integrated,
            unified: driver_cuda(device) >= TABLES.cuda.unification.driver_cuda.release(),
            allow_same_major: self.rules.tegra_same_major == SameMajor::Allow,
            ptx_isa: Some(compat.map_or(device.ptx_isa, |isa| isa.max(device.ptx_isa))),
        }
    }

    /// One profile for each other driver of the same chip, the nearest newer ones first, then older ones.
    fn other_drivers<'p>(&'p self, device: &'p DeviceProfile) -> impl Iterator<Item = &'p DeviceProfile> {
        let own = driver_cuda(device);
        let mut others: Vec<&DeviceProfile> = self
            .devices
            .iter()
            .filter(|other| other.soc == device.soc && driver_cuda(other) != own)
            .collect();
        others.sort_by_key(|other| {
            let cuda = driver_cuda(other);
            (cuda < own, if cuda < own { (u32::MAX - cuda.0, u32::MAX - cuda.1) } else { cuda })
        });
        others.dedup_by_key(|other| driver_cuda(other));
        others.into_iter()
    }
}

/// The CUDA release that a device's driver serves, with that of an installed cuda-compat package.
fn driver_cuda(device: &DeviceProfile) -> (u32, u32) {
    let compat = device.cuda_compat.as_ref().map(Version::release);
    compat.map_or(device.driver_cuda.release(), |compat| compat.max(device.driver_cuda.release()))
}

/// One wheel on one device, as the rules see it.
struct Case<'a> {
    facts: &'a Facts,
    device: &'a DeviceProfile,
    policy: &'a Policy,
    gpu: Gpu<'static>,
    driver_cuda: (u32, u32),
    cuda_need: Option<Need>,
    kernels: Option<Outcome>,
    tags: &'a DeviceTags,
    /// Whether the profile states the CUDA libraries of its system.
    system_is_known: bool,
}

/// The rules, in the order of [`Code`].
const RULES: [fn(&Case<'_>, &mut Vec<Reason>); 13] = [
    damage::judge,
    tags::judge,
    tags::judge_requires_python,
    glibc::judge_glibc,
    glibc::judge_glibcxx,
    cuda_runtime::judge,
    gpu_build::judge,
    kernels::judge,
    kernels::judge_partial,
    compiler::judge,
    soname::judge,
    advisory::judge,
    damage::judge_source,
];

/// Judges what a wheel contains for a device.
pub fn judge(facts: &Facts, device: &DeviceProfile, policy: &Policy) -> Judgement {
    let gpu = policy.gpu(device);
    let driver_cuda = driver_cuda(device);
    let own;
    let tags = if let Some(tags) = policy.tags(device) {
        tags
    } else {
        own = DeviceTags::of(device);
        &own
    };
    let case = Case {
        facts,
        device,
        policy,
        gpu,
        driver_cuda,
        cuda_need: cuda_runtime::need(facts),
        kernels: gpu_code::assess(facts, &gpu, &policy.rules.thresholds, driver_cuda.0),
        tags,
        system_is_known: device.sonames.iter().any(|soname| soname.starts_with("libcudart.so.")),
    };
    let mut reasons = Vec::new();
    for rule in RULES {
        rule(&case, &mut reasons);
    }
    let verdict = match reasons.iter().map(|reason| reason.code).find(|&code| code != Code::PartialKernels) {
        Some(_) => Verdict::Refuse,
        None if !reasons.is_empty() => Verdict::Partial,
        None if case.kernels.is_some_and(|outcome| outcome.runs == Runs::ByJit) => Verdict::AdmitJit,
        None => Verdict::Admit,
    };
    let mut judgement = Judgement { verdict, reasons, notes: notes(&case, verdict) };
    spare_auxiliary(&case, &mut judgement);
    judgement
}

/// Admits a project that its dependants can do without, where only its GPU code is not for the device: refused, it would make
/// them uninstallable. What is wrong with it becomes a note.
fn spare_auxiliary(case: &Case<'_>, judgement: &mut Judgement) {
    let of_kernels =
        |reason: &Reason| matches!(reason.code, Code::NoKernelImage | Code::PtxTooNew | Code::PartialKernels);
    let auxiliary = case.facts.project.as_ref().is_some_and(|project| case.policy.is_auxiliary(project));
    if !auxiliary || judgement.reasons.is_empty() || !judgement.reasons.iter().all(of_kernels) {
        return;
    }
    judgement.verdict = Verdict::Admit;
    let notes = judgement.reasons.drain(..).map(|reason| Note {
        code: NoteCode::UnfitDependency,
        text: format!("{}; one GPU can do without it", reason.text),
    });
    judgement.notes.extend(notes);
}

/// What to know on top of an admission; of a stand-in profile, in any case.
fn notes(case: &Case<'_>, verdict: Verdict) -> Vec<Note> {
    let mut notes = Vec::new();
    if verdict != Verdict::Refuse {
        kernels::note(case, &mut notes);
        compiler::note(case, &mut notes);
        advisory::note(case, &mut notes);
    }
    if let Some(l4t) = &case.device.nearest {
        notes.push(Note {
            code: NoteCode::NearestProfile,
            text: format!("no table knows L4T {l4t}: judged by the nearest release of its family"),
        });
    }
    notes
}

/// Judges what a file name and an index page alone tell: tags, `Requires-Python`, and the CUDA of a label such as `+cu130`.
/// Empty if they rule nothing out.
pub fn judge_listing(
    filename: &WheelFilename,
    requires_python: Option<&str>,
    device: &DeviceProfile,
    policy: &Policy,
) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match policy.tags(device) {
        Some(tags) => tags::judge_filename(filename, device, tags, &mut reasons),
        None => tags::judge_filename(filename, device, &DeviceTags::of(device), &mut reasons),
    }
    reasons.extend(requires_python.and_then(|text| tags::excluded(text, device)));
    reasons.extend(cuda_runtime::judge_listing(filename, &[], device, policy));
    reasons
}

/// Judges what core metadata tells before the wheel is there: the release of the CUDA runtime that it pins.
pub fn judge_metadata(
    filename: &WheelFilename,
    requires_dist: &[String],
    device: &DeviceProfile,
    policy: &Policy,
) -> Option<Reason> {
    cuda_runtime::judge_listing(filename, requires_dist, device, policy)
}
