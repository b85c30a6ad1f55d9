//! A set, written down: `pylock.toml` (PEP 751), `requirements.txt` with hashes, JSON.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use super::markers::Variable;
use super::{Pinned, Resolution, Target};

/// What a lock that was written here says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The device profile that it was made for.
    pub device: String,
    /// Its pins, as requirements.
    pub pins: Vec<String>,
}

/// Why a lock cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It is no TOML, or not of the form of PEP 751.
    #[error("no lock of PEP 751")]
    Syntax(#[source] toml::de::Error),
    /// It does not say for which device it was made.
    #[error("the lock names no device: its [tool.jetwheel] table is missing")]
    NoDevice,
    /// It was made for another device.
    #[error("the lock was made for {made_for}, not for {wanted}: resolve anew for {wanted}")]
    OtherDevice {
        /// The one that it was made for.
        made_for: String,
        /// The one that it was to be used for.
        wanted: String,
    },
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    packages: Vec<Package>,
    #[serde(default)]
    tool: Tools,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: Option<String>,
}

#[derive(Deserialize, Default)]
struct Tools {
    jetwheel: Option<Tool>,
}

#[derive(Deserialize)]
struct Tool {
    device: String,
}

impl Lock {
    /// Reads a lock that [`pylock`] wrote, for one device; a lock that was made for another one is refused.
    pub fn read(text: &str, device: &str) -> Result<Self, LockError> {
        let document: Document = toml::from_str(text).map_err(LockError::Syntax)?;
        let made_for = document.tool.jetwheel.ok_or(LockError::NoDevice)?.device;
        if made_for != device {
            return Err(LockError::OtherDevice { made_for, wanted: device.to_owned() });
        }
        let pins = document
            .packages
            .into_iter()
            .map(|package| match package.version {
                Some(version) => format!("{}=={version}", package.name),
                None => package.name,
            })
            .collect();
        Ok(Self { device: made_for, pins })
    }
}

/// The answer of `resolve --output json`.
pub fn json(resolution: &Resolution, device: &str) -> Value {
    let packages: Vec<Value> = resolution
        .packages
        .iter()
        .map(|package| {
            let candidate = &package.candidate;
            json!({
                "name": candidate.project,
                "version": candidate.version_text,
                "file": candidate.file,
                "sha256": candidate.sha256,
                "size": candidate.size,
                "url": candidate.url,
                "requires": package.requires,
            })
        })
        .collect();
    json!({"device": device, "packages": packages, "notes": resolution.notes})
}

/// A requirements file with hashes, for the device's index alone.
pub fn requirements_txt(resolution: &Resolution, target: &Target, index_url: &str) -> String {
    let mut text = format!(
        "# Made by jetwheel for {}, Python {}; not for any other device.\n--index-url {index_url}\n",
        target.device, target.python
    );
    for package in &resolution.packages {
        let extras = match package.extras.as_slice() {
            [] => String::new(),
            extras => format!("[{}]", extras.join(",")),
        };
        let _infallible =
            write!(text, "{}{extras}=={}", package.candidate.project, package.candidate.version);
        if let Some(sha256) = &package.candidate.sha256 {
            let _infallible = write!(text, " \\\n    --hash=sha256:{sha256}");
        }
        text.push('\n');
    }
    text
}

/// A lock of PEP 751. It holds for one device: `environments` says so as far as markers can, `[tool.jetwheel]` in full.
pub fn pylock(resolution: &Resolution, target: &Target, index_url: &str) -> String {
    let value = |variable| target.environment.value(variable).unwrap_or_default();
    let python = value(Variable::PythonVersion);
    let marker = [
        Variable::PlatformMachine,
        Variable::SysPlatform,
        Variable::ImplementationName,
        Variable::PythonVersion,
    ]
    .map(|variable| format!("{variable} == '{}'", value(variable)))
    .join(" and ");
    let mut text = format!(
        "lock-version = \"1.0\"\nenvironments = [{}]\nrequires-python = {}\ncreated-by = \"jetwheel\"\n",
        quoted(&marker),
        quoted(&format!("=={python}.*")),
    );
    for package in &resolution.packages {
        write_package(&mut text, package, index_url);
    }
    let _infallible = write!(text, "\n[tool.jetwheel]\ndevice = {}\n", quoted(&target.device));
    text
}

fn write_package(text: &mut String, package: &Pinned, index_url: &str) {
    let candidate = &package.candidate;
    let mut line = |key: &str, value: String| {
        let _infallible = writeln!(text, "{key} = {value}");
    };
    line("\n[[packages]]\nname", quoted(candidate.project.as_str()));
    line("version", quoted(&candidate.version.to_string()));
    if let Some(wanted) = &candidate.requires_python {
        line("requires-python", quoted(wanted));
    }
    line("index", quoted(index_url));
    for other in &package.requires {
        line("\n[[packages.dependencies]]\nname", quoted(other.as_str()));
    }
    line("\n[[packages.wheels]]\nname", quoted(&candidate.file));
    // TOML and RFC 3339 write a time alike; one that is written otherwise is left out, as the field is optional.
    if let Some(time) =
        candidate.upload_time.as_deref().filter(|time| time.parse::<toml::value::Datetime>().is_ok())
    {
        line("upload-time", time.to_owned());
    }
    line("url", quoted(&candidate.url));
    if let Some(size) = candidate.size {
        line("size", size.to_string());
    }
    if let Some(sha256) = &candidate.sha256 {
        line("hashes", format!("{{sha256 = \"{sha256}\"}}"));
    }
}

/// A TOML basic string.
fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + 2);
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            letter if letter.is_control() => {
                let _infallible = write!(text, "\\u{:04X}", u32::from(letter));
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
    text
}
