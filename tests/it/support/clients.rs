//! The real clients: pip as JetPack 5 and 6 ship it, the newest pip, and uv; each with nothing of the host's settings.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;

/// Where `./ci.sh test` puts the clients.
const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/clients");

/// A program of one of the clients' environments. Fails with a sentence where it is missing.
pub(crate) fn client_program(client: &str, program: &str) -> PathBuf {
    let path = Path::new(CLIENTS).join(client).join("bin").join(program);
    assert!(
        path.exists(),
        "{client} is needed for this test and is not at {}: run ./ci.sh test, which installs it",
        path.display()
    );
    path
}

/// What a client is told of the machine that it fetches for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// Python version, as `3.10`.
    pub(crate) python: &'static str,
    /// Platform tags that pip accepts, best first.
    pub(crate) platforms: &'static [&'static str],
    /// What uv calls the same.
    pub(crate) uv_platform: &'static str,
}

/// A Jetson Orin on JetPack 6: Ubuntu 22.04.
pub(crate) const JETPACK_6: Target = Target {
    python: "3.10",
    platforms: &[
        "linux_aarch64",
        "manylinux_2_35_aarch64",
        "manylinux_2_28_aarch64",
        "manylinux_2_27_aarch64",
        "manylinux_2_17_aarch64",
        "manylinux2014_aarch64",
    ],
    uv_platform: "aarch64-manylinux_2_35",
};

/// A Jetson Thor on JetPack 7: Ubuntu 24.04.
pub(crate) const JETPACK_7: Target = Target {
    python: "3.12",
    platforms: &[
        "linux_aarch64",
        "manylinux_2_39_aarch64",
        "manylinux_2_28_aarch64",
        "manylinux_2_27_aarch64",
        "manylinux_2_17_aarch64",
        "manylinux2014_aarch64",
    ],
    uv_platform: "aarch64-manylinux_2_39",
};

/// What a client did.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// Whether it was content.
    pub(crate) done: bool,
    /// What it said on both streams.
    pub(crate) said: String,
    /// What it left: pip the file names of wheels, uv the `.dist-info` folders; sorted.
    pub(crate) names: Vec<String>,
    folder: tempfile::TempDir,
}

impl Fetched {
    /// The bytes of a file that was fetched.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join("wheels").join(name)).unwrap()
    }
}

/// One pip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pip {
    environment: &'static str,
    /// Only one `--platform` is understood before pip 20.3.
    one_platform: bool,
    retries: &'static str,
}

impl Pip {
    /// The pip of Ubuntu 20.04, thus of JetPack 5.
    pub(crate) fn v20_0_2() -> Self {
        Self { environment: "pip-20.0.2", one_platform: true, retries: "1" }
    }

    /// The pip of Ubuntu 22.04, thus of JetPack 6.
    pub(crate) fn v22_0_2() -> Self {
        Self { environment: "pip-22.0.2", one_platform: false, retries: "1" }
    }

    /// The newest pip at the time of `./ci.sh test`.
    pub(crate) fn newest() -> Self {
        Self { environment: "pip-newest", one_platform: false, retries: "1" }
    }

    /// With as many retries as pip has by default.
    pub(crate) fn retrying(self) -> Self {
        Self { retries: "5", ..self }
    }

    /// `pip download --no-deps` of one requirement for another machine, from one index alone.
    ///
    /// A pip that understands one platform alone is asked platform by platform until it is content.
    pub(crate) fn download(self, index_url: &str, target: Target, requirement: &str) -> Fetched {
        self.download_with_netrc(index_url, target, requirement, "")
    }

    /// As `download`, with a netrc file of that content.
    pub(crate) fn download_with_netrc(
        self,
        index_url: &str,
        target: Target,
        requirement: &str,
        netrc: &str,
    ) -> Fetched {
        if !self.one_platform {
            return self.run(index_url, target.python, target.platforms, requirement, netrc, None);
        }
        let mut tries = target
            .platforms
            .iter()
            .map(|platform| self.run(index_url, target.python, &[platform], requirement, netrc, None));
        let mut last = tries.next().unwrap();
        for next in tries {
            if last.done {
                break;
            }
            last = next;
        }
        last
    }

    /// As `download`, from an index whose certificate is by an authority in that file.
    pub(crate) fn download_trusting(
        self,
        index_url: &str,
        target: Target,
        requirement: &str,
        ca: &Path,
    ) -> Fetched {
        self.run(index_url, target.python, target.platforms, requirement, "", Some(ca))
    }

    fn run(
        self,
        index_url: &str,
        python: &str,
        platforms: &[&str],
        requirement: &str,
        netrc: &str,
        ca: Option<&Path>,
    ) -> Fetched {
        let folder = tempfile::tempdir().unwrap();
        write_netrc(folder.path(), netrc);
        let wheels = folder.path().join("wheels");
        fs::create_dir(&wheels).unwrap();
        let mut command = clean(&client_program(self.environment, "python"), folder.path());
        command.args(["-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]);
        command.args(["--implementation", "cp", "--python-version", python, "--index-url", index_url]);
        for platform in platforms {
            command.args(["--platform", platform]);
        }
        command.env("PIP_RETRIES", self.retries);
        if let Some(ca) = ca {
            command.env("PIP_CERT", ca);
        }
        command.arg("--dest").arg(&wheels).arg(requirement);
        finish(command, folder, |_| true)
    }
}

/// uv. It has no `download`, so it installs into a folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uv;

impl Uv {
    /// `uv pip install --no-deps --target` of one requirement for another machine, from one index alone.
    pub(crate) fn install(index_url: &str, target: Target, requirement: &str) -> Fetched {
        Self::install_with_netrc(index_url, target, requirement, "")
    }

    /// As `install`, with a netrc file of that content.
    pub(crate) fn install_with_netrc(
        index_url: &str,
        target: Target,
        requirement: &str,
        netrc: &str,
    ) -> Fetched {
        Self::run(index_url, target, requirement, netrc, None)
    }

    /// As `install`, from an index whose certificate is by an authority in that file.
    pub(crate) fn install_trusting(index_url: &str, target: Target, requirement: &str, ca: &Path) -> Fetched {
        Self::run(index_url, target, requirement, "", Some(ca))
    }

    fn run(index_url: &str, target: Target, requirement: &str, netrc: &str, ca: Option<&Path>) -> Fetched {
        let folder = tempfile::tempdir().unwrap();
        write_netrc(folder.path(), netrc);
        let mut command = clean(&client_program("uv", "uv"), folder.path());
        command.args(["pip", "install", "--no-deps", "--no-cache", "--no-config", "--only-binary", ":all:"]);
        command.args(["--python-version", target.python, "--python-platform", target.uv_platform]);
        command.args(["--default-index", index_url, "--python"]).arg(client_program("uv", "python"));
        command.arg("--target").arg(folder.path().join("wheels")).arg(requirement);
        if let Some(ca) = ca {
            command.env("SSL_CERT_FILE", ca);
        }
        finish(command, folder, |name| name.ends_with(".dist-info"))
    }
}

fn write_netrc(home: &Path, netrc: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    if !netrc.is_empty() {
        let file = home.join(".netrc");
        fs::write(&file, netrc).unwrap();
        fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A command without the host's settings: no `PIP_*`, no proxy, no configuration file, a home of its own.
fn clean(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).env("LC_ALL", "C.UTF-8");
    command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command.env("PIP_RETRIES", "1").env("PIP_TIMEOUT", "30").current_dir(home);
    command
}

fn finish(mut command: Command, folder: tempfile::TempDir, counts: fn(&str) -> bool) -> Fetched {
    let output = command.output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let wheels = folder.path().join("wheels");
    let mut names: Vec<String> = match fs::read_dir(&wheels) {
        Ok(entries) => entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| counts(name))
            .collect(),
        Err(_nothing_installed) => Vec::new(),
    };
    names.sort();
    Fetched { done: output.status.success(), said, names, folder }
}
