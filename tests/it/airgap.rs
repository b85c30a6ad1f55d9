//! Two sites in networks with no route between them: what crosses is files alone, and neither clock is right.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json as value;

use crate::snapshot::json;
use crate::support::clients::client_program;
use crate::support::devpi::Devpi;
use crate::support::mirror::Mirror;
use crate::support::network::Network;
use crate::support::{jetwheel_in, make_wheels};

const ORIN: &str = "orin-jp6.2";

/// What the fleet installs: two lines, of which one needs two more projects.
const REQUIREMENTS: &str = "fleet-core>=1\ntelemetry\n";

/// A wheel with code for Orin and some weight.
fn kernels(project: &str, version: &str, weight: usize, requires: &[&str]) -> serde_json::Value {
    value!({
        "filename": format!("{}-{version}-cp310-cp310-linux_aarch64.whl", project.replace('-', "_")),
        "requires_dist": requires,
        "elfs": [{"path": format!("{}/_C.so", project.replace('-', "_")), "needed": ["libcudart.so.12"], "glibc": "2.31",
            "payload": weight, "fatbins": [["sm_87"]]}],
    })
}

fn pure(project: &str, version: &str) -> serde_json::Value {
    value!({"filename": format!("{project}-{version}-py3-none-any.whl"),
        "files": {format!("{project}/__init__.py"): format!("version = '{version}'\n")}})
}

/// A site: its network, its folder, and what its clock says.
struct Site {
    network: Network,
    dir: tempfile::TempDir,
    clock: &'static str,
}

impl Site {
    fn apart(clock: &'static str) -> Self {
        Self { network: Network::apart(), dir: tempfile::tempdir().unwrap(), clock }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `jetwheel` in the site's network, by its clock.
    fn jetwheel(&self) -> Command {
        let mut command = jetwheel_in(&self.network, &self.path("data"));
        command.env("LD_PRELOAD", faketime()).env("FAKETIME", self.clock).env("FAKETIME_DISABLE_SHM", "1");
        command.env("DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        command
    }

    /// Runs a command that has to be content; yields its answer.
    fn done(&self, arguments: &[&str]) -> serde_json::Value {
        let (code, answer) = json(self.jetwheel().args(arguments).current_dir(self.dir.path()));
        assert_eq!(code, 0, "{arguments:?}: {answer}");
        answer
    }

    /// Runs an import that has to be refused; yields what it says.
    fn refused(&self, bundle: &str, key: &str) -> String {
        let mut command = self.jetwheel();
        command.current_dir(self.dir.path()).args(["import", bundle, "--public-key", key]);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!([1, 3].contains(&output.status.code().unwrap()), "{said}");
        said
    }

    /// What would change if something were taken in.
    fn state(&self) -> [serde_json::Value; 2] {
        [self.done(&["inventory"]), self.done(&["snapshot", "list"])]
    }
}

/// The library that shows a process another time than that of the machine.
fn faketime() -> PathBuf {
    let folders = fs_err::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let mut found =
        folders.map(|folder| folder.join("faketime/libfaketime.so.1")).filter(|path| path.exists());
    found.next().expect("libfaketime is needed: install it, or run ./ci.sh test, which does")
}

/// Carries files from one site to another; there is no other way between them.
fn carry(from: &Site, to: &Site, names: &[&str]) {
    for name in names {
        fs_err::copy(from.path(name), to.path(name)).unwrap();
    }
}

/// Has a pip in the site's network install for the device from the site's own mirror; yields what was installed.
fn install(site: &Site, pip: &str, mirror: &Mirror) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    fs_err::write(home.path().join("requirements.txt"), REQUIREMENTS).unwrap();
    let mut command = site.network.command(client_program(pip, "python"));
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", home.path());
    command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    command.args(["-m", "pip", "install", "--no-cache-dir", "--only-binary=:all:", "--implementation", "cp"]);
    command.args(["--python-version", "3.10", "--platform", "linux_aarch64", "--target", "site"]);
    command.args(["--index-url", &mirror.index_url(ORIN), "-r", "requirements.txt"]);
    let output = command.current_dir(home.path()).output().unwrap();
    assert!(output.status.success(), "{pip}: {}", String::from_utf8_lossy(&output.stderr));
    installed(&home.path().join("site"))
}

/// Has uv in the site's network install what a lock says, with no index at all.
fn install_locked(site: &Site, lock: &str) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    // uv holds the Python of the lock against its interpreter, which is that of this machine and not of the device.
    let text = fs_err::read_to_string(site.path("data/locks").join(lock)).unwrap();
    let python = text.lines().find(|line| line.starts_with("requires-python")).unwrap();
    fs_err::write(home.path().join(lock), text.replace(python, "requires-python = \">=3.8\"")).unwrap();
    let mut command = site.network.command(client_program("uv", "uv"));
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", home.path());
    command.args([
        "pip",
        "sync",
        "--no-cache",
        "--no-config",
        "--preview-features",
        "pylock",
        "--target",
        "site",
    ]);
    command.args(["--python-version", "3.10", "--python-platform", "aarch64-manylinux_2_35", "--python"]);
    let output =
        command.arg(client_program("uv", "python")).arg(lock).current_dir(home.path()).output().unwrap();
    assert!(output.status.success(), "uv: {}", String::from_utf8_lossy(&output.stderr));
    installed(&home.path().join("site"))
}

/// Names and versions of what lies in a folder of installed projects.
fn installed(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".dist-info").map(|name| name.replace(['-', '_'], " ")))
        .collect();
    names.sort();
    names
}

/// The site's mirror, at the port that its lock files name: the network is its own, so that the port is free.
fn serving(site: &Site) -> Mirror {
    let mut command = site.jetwheel();
    command.args(["serve", "--listen", "127.0.0.1:8080"]);
    Mirror::started_by(command)
}

fn fetches(site: &Site, url: &str) -> bool {
    let mut curl = site.network.command("curl");
    curl.args(["-q", "-s", "-o", "/dev/null", "--noproxy", "*", "--max-time", "5", url]);
    curl.status().unwrap().success()
}

fn size(path: &Path) -> u64 {
    fs_err::metadata(path).unwrap().len()
}

fn minisign_agrees(bundle: &Path, key: &Path) -> bool {
    let output = Command::new("minisign").arg("-Vm").arg(bundle).arg("-p").arg(key).output();
    output.expect("minisign is needed: install it, or run ./ci.sh test, which does").status.success()
}

/// C31 as well, from bandersnatch#1472 and #736: the whole closure of two lines, and later only what the base lacks.
#[test]
fn a_site_without_network_is_fed_and_updated_by_files_alone() {
    let (mut a, mut b) = (Site::apart("@2030-01-01 00:00:00"), Site::apart("@2001-02-03 04:05:06"));
    let wheels = a.path("wheels");
    fs_err::create_dir(&wheels).unwrap();
    let specs = value!([
        kernels("fleet-core", "1.0", 40_000, &["camera-kernels>=1", "geometry"]),
        kernels("camera-kernels", "1.0", 400_000, &[]),
        kernels("geometry", "1.0", 300_000, &[]),
        pure("telemetry", "1.0"),
        kernels("unused", "1.0", 100_000, &[]),
    ]);
    make_wheels(&specs, &wheels);
    let devpi = Devpi::start_in(&a.network);
    devpi.upload_all(&wheels);
    let upstream = devpi.index_url();
    assert_eq!((a.network.routes(), b.network.routes()), (String::new(), String::new()));
    assert!(fetches(&a, &upstream) && !fetches(&b, &upstream), "there must be no way from B to A");

    // Site A, by a clock that is ahead: sync from devpi, and export what two lines need.
    fs_err::write(a.path("requirements.txt"), REQUIREMENTS).unwrap();
    let sync = ["sync", "--device", ORIN, "--upstream", &upstream, "-r", "requirements.txt"];
    a.done(&[&sync[..], &["unused"]].concat());
    a.done(&["export", "--make-key", "a.key"]);
    let export = ["export", "--device", ORIN, "-r", "requirements.txt", "--key", "a.key", "--output"];
    let report = a.done(&[&export[..], &["full.jwb"]].concat());
    assert_eq!((&report["listed"], &report["packed"]), (&4.into(), &4.into()), "{report}");
    assert!(minisign_agrees(&a.path("full.jwb"), &a.path("a.key.pub")));

    // Site B, whose clock was never set.
    carry(&a, &b, &["full.jwb", "full.jwb.minisig", "a.key.pub"]);
    let import = |bundle| ["import", bundle, "--public-key", "a.key.pub"];
    let imported = b.done(&import("full.jwb"));
    assert_eq!((&imported["taken"], &imported["signature"]), (&4.into(), &"verified".into()), "{imported}");
    let mirror = serving(&b);
    let first = ["camera kernels 1.0", "fleet core 1.0", "geometry 1.0", "telemetry 1.0"];
    assert_eq!(install(&b, "pip-newest", &mirror), first);
    assert_eq!(imported["locks"], value!(["pylock.orin-jp6_2.toml"]));
    assert_eq!(install_locked(&b, "pylock.orin-jp6_2.toml"), first);

    // New wheels at A, whose clock was set right meanwhile, that is back; B's is now far ahead.
    a.clock = "@2020-01-01 00:00:00";
    b.clock = "@2099-01-01 00:00:00";
    let new = a.path("new");
    fs_err::create_dir(&new).unwrap();
    let specs = value!([
        kernels("fleet-core", "1.1", 20_000, &["camera-kernels>=1", "geometry"]),
        pure("telemetry", "1.1")
    ]);
    make_wheels(&specs, &new);
    devpi.upload_all(&new);
    a.done(&sync);
    let receipt = b.done(&["inventory"]);
    fs_err::write(b.path("receipt.json"), receipt.to_string()).unwrap();
    carry(&b, &a, &["receipt.json"]);
    let report = a.done(&[&export[..], &["delta.jwb", "--since", "receipt.json"]].concat());
    assert_eq!((&report["listed"], &report["packed"]), (&4.into(), &2.into()), "{report}");
    let (delta, full) = (size(&a.path("delta.jwb")), size(&a.path("full.jwb")));
    assert!(delta * 10 < full, "the delta has {delta} bytes, the full bundle {full}");
    carry(&a, &b, &["delta.jwb", "delta.jwb.minisig"]);

    // What goes wrong on the way is refused, each by its own words, and nothing changes.
    let before = b.state();
    let good = fs_err::read(b.path("delta.jwb")).unwrap();
    let signature = fs_err::read(b.path("delta.jwb.minisig")).unwrap();
    let put = |name: &str, bytes: &[u8], signature: &[u8]| {
        fs_err::write(b.path(name), bytes).unwrap();
        fs_err::write(b.path(&format!("{name}.minisig")), signature).unwrap();
    };
    let mut tampered = good.clone();
    let middle = tampered.len() / 2;
    tampered[middle] ^= 1;
    put("tampered.jwb", &tampered, &signature);
    put("truncated.jwb", &good[..middle], &signature);
    a.done(&["export", "--make-key", "other.key"]);
    carry(&a, &b, &["other.key.pub"]);
    let refusals = [
        (b.refused("tampered.jwb", "a.key.pub"), "changed after it was signed"),
        (b.refused("truncated.jwb", "a.key.pub"), "cut short"),
        (b.refused("delta.jwb", "other.key.pub"), "signed by the key"),
    ];
    for (number, (said, words)) in refusals.iter().enumerate() {
        let says = |(_, words): &(String, &str)| said.contains(words);
        assert_eq!(refusals.iter().position(says), Some(number), "expected {words:?} alone: {said}");
    }
    assert!(!minisign_agrees(&b.path("tampered.jwb"), &b.path("a.key.pub")));
    assert_eq!(b.state(), before);

    // The delta is taken beside the running mirror; JetPack 6's own pip has the new wheels at once.
    let imported = b.done(&import("delta.jwb"));
    assert_eq!((&imported["taken"], &imported["facts_differ"]), (&2.into(), &value!([])), "{imported}");
    let second = ["camera kernels 1.0", "fleet core 1.1", "geometry 1.0", "telemetry 1.1"];
    assert_eq!(install(&b, "pip-22.0.2", &mirror), second);

    // Played once more, the first bundle is older, whatever the clocks say.
    let before = b.state();
    let said = b.refused("full.jwb", "a.key.pub");
    assert!(said.contains("older than what this site has"), "{said}");
    assert!(refusals.iter().all(|(_, words)| !said.contains(words)), "{said}");
    assert_eq!(b.state(), before);
    drop(mirror);
    b.done(&["verify"]);
}
