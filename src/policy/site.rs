//! A site's own policy files, read over the built-in tables.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use super::advisory::{Advisory, AdvisoryFile};
use super::rules::RulesFile;
use super::tables::{TABLES, platform_tags};
use super::{DeviceProfile, Policy, PolicyError, Stack, Version};
use crate::fatbin::{ComputeCapability, PtxIsa};

/// What begins the address of other pages than those of a device.
const RESERVED: [&str; 13] = [
    "api",
    "detect",
    "devices",
    "healthz",
    "legacy",
    "metrics",
    "openapi.json",
    "projects",
    "readyz",
    "search",
    "snapshots",
    "static",
    "wheels",
];

/// The longest id of a device: it stands in URLs.
const LONGEST_ID: usize = 64;

/// `devices.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DevicesFile {
    #[serde(default)]
    device: Vec<Spanned<Device>>,
}

/// A device of a site: what it states differs from its base.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Device {
    id: Spanned<String>,
    base: Option<Spanned<String>>,
    compute_capability: Option<ComputeCapability>,
    integrated: Option<bool>,
    stack: Option<Stack>,
    driver_cuda: Option<Version>,
    ptx_isa: Option<PtxIsa>,
    cuda_compat: Option<Version>,
    glibc: Option<Version>,
    glibcxx: Option<Version>,
    python: Option<Version>,
    l4t: Option<Version>,
    kernel_release: Option<String>,
    sonames: Option<Vec<String>>,
    #[serde(default)]
    sonames_add: Vec<String>,
}

/// Reads a site's files over a policy.
pub(super) fn read_over(policy: &mut Policy, files: &[(String, String)]) -> Result<(), PolicyError> {
    for (file, text) in files {
        match file.as_str() {
            "devices.toml" => read_devices(policy, file, text)?,
            "rules.toml" => policy.rules.read_over(parse::<RulesFile>(file, text)?),
            advisories if advisories.starts_with("advisories/") => {
                let parsed: AdvisoryFile = parse(file, text)?;
                parsed.advisory.into_iter().for_each(|advisory| add_advisory(policy, advisory));
            }
            _ => {
                return Err(PolicyError {
                    file: file.clone(),
                    text:
                        "no policy file has this name; expected devices.toml, rules.toml or advisories/*.toml"
                            .to_owned(),
                });
            }
        }
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, PolicyError> {
    toml::from_str(text)
        .map_err(|error| PolicyError { file: file.to_owned(), text: error.to_string().trim_end().to_owned() })
}

fn add_advisory(policy: &mut Policy, advisory: Advisory) {
    policy.advisories.retain(|known| known.id != advisory.id);
    policy.advisories.push(advisory);
}

fn read_devices(policy: &mut Policy, file: &str, text: &str) -> Result<(), PolicyError> {
    let parsed: DevicesFile = parse(file, text)?;
    let mut stated: Vec<String> = Vec::new();
    for row in parsed.device {
        let at = row.span().start;
        let fail =
            |at: usize, what: String| PolicyError { file: file.to_owned(), text: place(text, at) + &what };
        let device = row.into_inner();
        let (id, id_at) = (device.id.get_ref().clone(), device.id.span().start);
        let good =
            |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b".-_".contains(&letter);
        let bounded = (1..=LONGEST_ID).contains(&id.len()) && id.as_bytes()[0].is_ascii_alphanumeric();
        if !bounded || !id.bytes().all(good) {
            let expected =
                "expected at most 64 small letters, digits, '.', '-' and '_', a letter or digit first";
            return Err(fail(id_at, format!("id is {id:?}; {expected}, since it stands in URLs")));
        }
        if RESERVED.contains(&id.as_str()) {
            return Err(fail(
                id_at,
                format!("id is {id:?}: that begins the address of other pages of the mirror"),
            ));
        }
        if stated.contains(&id) {
            return Err(fail(id_at, format!("a second device has the id {id:?}; expected each id once")));
        }
        let profile = match &device.base {
            Some(base) => {
                let Some(known) = policy.device(base.get_ref()) else {
                    let nearest = policy.nearest(base.get_ref()).join(", ");
                    let base = format!("base is {:?}, which is no known device", base.get_ref());
                    return Err(fail(device.base_at(), format!("{base}; the nearest are {nearest}")));
                };
                device.over(known.clone())
            }
            None => device.alone(),
        };
        let profile = profile.map_err(|what| fail(at, format!("device {id:?} {what}")))?;
        stated.push(id);
        policy.add_device(profile);
    }
    Ok(())
}

/// `line 3, column 8: ` of an offset in bytes.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: ")
}

/// The newest PTX ISA version of a CUDA release, or what to state.
fn ptx_isa(cuda: &Version) -> Result<PtxIsa, String> {
    TABLES.cuda.ptx_isa(cuda).ok_or_else(|| {
        let (first, last) = TABLES.cuda.known();
        format!("needs ptx_isa: the tables know CUDA {first} to {last}, not its driver_cuda {cuda}")
    })
}

impl Device {
    fn base_at(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.span().start)
    }

    /// The profile over a base.
    fn over(&self, mut profile: DeviceProfile) -> Result<DeviceProfile, String> {
        fn take<T: Clone>(value: &mut T, stated: Option<&T>) {
            if let Some(stated) = stated {
                value.clone_from(stated);
            }
        }
        profile.id.clone_from(self.id.get_ref());
        take(&mut profile.compute_capability, self.compute_capability.as_ref());
        take(&mut profile.integrated, self.integrated.as_ref());
        take(&mut profile.stack, self.stack.as_ref());
        take(&mut profile.glibcxx, self.glibcxx.as_ref());
        take(&mut profile.python, self.python.as_ref());
        if let Some(cuda) = &self.driver_cuda {
            profile.driver_cuda = cuda.clone();
            if self.ptx_isa.is_none() {
                profile.ptx_isa = ptx_isa(cuda)?;
            }
        }
        take(&mut profile.ptx_isa, self.ptx_isa.as_ref());
        if let Some(glibc) = &self.glibc {
            profile.glibc = glibc.clone();
            profile.platform_tags = platform_tags(glibc);
        }
        if self.cuda_compat.is_some() {
            profile.cuda_compat.clone_from(&self.cuda_compat);
        }
        if self.kernel_release.is_some() {
            profile.kernel_release.clone_from(&self.kernel_release);
        }
        if let Some(l4t) = &self.l4t {
            let l4t = l4t.to_string();
            if !profile.l4t.is_empty() && !profile.l4t.contains(&l4t) {
                profile.nearest = Some(l4t.clone());
            }
            profile.l4t = vec![l4t];
        }
        self.add_sonames(&mut profile);
        Ok(profile)
    }

    /// The profile of a device without a base, which must state all that a verdict needs.
    fn alone(&self) -> Result<DeviceProfile, String> {
        let missing: Vec<&str> = [
            ("compute_capability", self.compute_capability.is_none()),
            ("integrated", self.integrated.is_none()),
            ("stack", self.stack.is_none()),
            ("driver_cuda", self.driver_cuda.is_none()),
            ("glibc", self.glibc.is_none()),
            ("glibcxx", self.glibcxx.is_none()),
            ("python", self.python.is_none()),
        ]
        .into_iter()
        .filter_map(|(key, missing)| missing.then_some(key))
        .collect();
        let (
            Some(compute_capability),
            Some(integrated),
            Some(stack),
            Some(driver_cuda),
            Some(glibc),
            Some(glibcxx),
            Some(python),
        ) = (
            self.compute_capability,
            self.integrated,
            self.stack,
            &self.driver_cuda,
            &self.glibc,
            &self.glibcxx,
            &self.python,
        )
        else {
            return Err(format!("has no base and lacks {}: state them, or a base", missing.join(", ")));
        };
        let isa = match self.ptx_isa {
            Some(isa) => isa,
            None => ptx_isa(driver_cuda)?,
        };
        let soc = TABLES
            .socs
            .iter()
            .find(|soc| integrated && TABLES.chips.same(soc.compute_capability, compute_capability));
        let mut profile = DeviceProfile {
            id: self.id.get_ref().clone(),
            soc: soc.map_or_else(|| format!("sm_{}", compute_capability.sm()), |soc| soc.id.clone()),
            compute_capability,
            integrated,
            jetpack: None,
            l4t: self.l4t.iter().map(Version::to_string).collect(),
            stack,
            driver_cuda: driver_cuda.clone(),
            cuda_compat: self.cuda_compat.clone(),
            ptx_isa: isa,
            glibc: glibc.clone(),
            glibcxx: glibcxx.clone(),
            python: python.clone(),
            kernel_release: self.kernel_release.clone(),
            os: None,
            cudnn: None,
            tensorrt: None,
            ros: None,
            platform_tags: platform_tags(glibc),
            // Which CUDA libraries there are is not known before the site says so: nothing is refused for them.
            sonames: TABLES.cuda.system_sonames(None, None, None),
            nearest: None,
        };
        self.add_sonames(&mut profile);
        Ok(profile)
    }

    fn add_sonames(&self, profile: &mut DeviceProfile) {
        if let Some(sonames) = &self.sonames {
            profile.sonames = sonames.iter().cloned().collect();
        }
        profile.sonames.extend(self.sonames_add.iter().cloned());
    }
}
