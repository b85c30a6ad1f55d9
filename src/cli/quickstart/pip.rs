//! pip, as quickstart uses it.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::program;
use crate::policy::DeviceProfile;

/// Checks that there is a Python that can make virtual environments.
pub(super) fn check_python() -> anyhow::Result<()> {
    let found = Command::new("python3").args(["-c", "import venv, ensurepip"]).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => bail!("python3 has no venv module: install python3-venv"),
        Err(error) => bail!("python3 cannot be run ({error}): install python3 and python3-venv"),
    }
}

/// The index that pip would ask: of its configuration, else the default that its own help names.
pub(super) fn index_url() -> Option<String> {
    let configured = pip(&["config", "get", "global.index-url"])
        .or_else(|| pip(&["config", "get", "install.index-url"]))
        .or_else(|| std::env::var("PIP_INDEX_URL").ok());
    if let Some(url) = configured.filter(|url| !url.trim().is_empty()) {
        return Some(url.trim().to_owned());
    }
    let help = pip(&["download", "--help"])?;
    let words: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, rest) = words.split_once("--index-url")?;
    let (_, rest) = rest.split_once("(default ")?;
    rest.split_once(')').map(|(url, _)| url.trim().to_owned())
}

fn pip(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("python3").args(["-m", "pip"]).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A temporary virtual environment with a pip of its own.
pub(super) struct Environment {
    folder: tempfile::TempDir,
}

impl Environment {
    /// Makes one.
    pub(super) fn make() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let made = Command::new("python3").args(["-m", "venv"]).arg(folder.path()).output()?;
        if !made.status.success() {
            bail!("python3 -m venv failed: {}", String::from_utf8_lossy(&made.stderr).trim());
        }
        Ok(Self { folder })
    }

    /// Fetches a project as pip on that device would, and yields the file's name; none where pip finds no version.
    pub(super) fn download(
        &self,
        project: &str,
        index: &str,
        device: &DeviceProfile,
    ) -> anyhow::Result<Option<String>> {
        let into = tempfile::tempdir_in(self.folder.path())?;
        let mut command = Command::new(program(self.folder.path(), "python"));
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("PIP_") {
                command.env_remove(variable);
            }
        }
        command.env("PIP_CONFIG_FILE", "/dev/null").args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-cache-dir",
        ]);
        command.args(["--disable-pip-version-check", "--only-binary=:all:", "--implementation", "cp"]);
        command.args(["--python-version", &device.python.to_string(), "--index-url", index, "--dest"]);
        command.arg(into.path()).args(device.platform_tags.iter().flat_map(|tag| ["--platform", tag]));
        let output = command.arg(project).output().context("pip")?;
        if output.status.success() {
            return first_file(into.path());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        // pip says the same of an index that it cannot reach.
        if text.contains("No matching distribution") && !text.contains("onnection") {
            return Ok(None);
        }
        bail!("pip download {project} from {index}: {}", text.trim())
    }
}

fn first_file(folder: &Path) -> anyhow::Result<Option<String>> {
    let entry = fs_err::read_dir(folder)?.next().transpose()?;
    Ok(entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
}
