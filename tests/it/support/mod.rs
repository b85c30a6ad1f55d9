//! What the tests are written in: wheels from facts, the mirror as a process, an upstream.

pub(crate) mod clients;
pub(crate) mod devpi;
pub(crate) mod disk;
pub(crate) mod http;
pub(crate) mod mirror;
pub(crate) mod network;
pub(crate) mod nginx;
pub(crate) mod port;
pub(crate) mod postgres;
pub(crate) mod s3;
pub(crate) mod site;
pub(crate) mod upstream;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A path below `tests/data`.
pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// Builds wheels from specs of `tests/support/mkwheel.py` (one JSON object, or a list of them) into a folder.
pub(crate) fn make_wheels(specs: &serde_json::Value, into: &Path) {
    let spec = into.join("specs.json");
    fs_err::write(&spec, specs.to_string()).unwrap();
    python("tests/support/mkwheel.py", &[spec.as_os_str(), "-o".as_ref(), into.as_os_str()]);
    fs_err::remove_file(&spec).unwrap();
}

/// Builds the small twins of surveyed wheels (`tests/data/golden/NAME.json`) into a folder.
pub(crate) fn make_twins(names: &[&str], into: &Path) {
    let facts: Vec<PathBuf> = names.iter().map(|name| data("golden").join(format!("{name}.json"))).collect();
    let mut arguments: Vec<&std::ffi::OsStr> = facts.iter().map(|path| path.as_os_str()).collect();
    arguments.extend(["-o".as_ref(), into.as_os_str()]);
    python("tests/support/twin.py", &arguments);
}

/// Builds such twins with another Python: of `cp312` and `cp310` the first is replaced by the second in all tags.
pub(crate) fn make_retagged_twins(names: &[&str], (from, to): (&str, &str), into: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let facts: Vec<PathBuf> = names
        .iter()
        .map(|name| {
            let text = fs_err::read_to_string(data("golden").join(format!("{name}.json"))).unwrap();
            let mut facts: serde_json::Value = serde_json::from_str(&text).unwrap();
            for field in ["filename", "wheel_tags"] {
                facts[field] = serde_json::from_str(&facts[field].to_string().replace(from, to)).unwrap();
            }
            let path = folder.path().join(format!("{name}.json"));
            fs_err::write(&path, facts.to_string()).unwrap();
            path
        })
        .collect();
    let mut arguments: Vec<&std::ffi::OsStr> = facts.iter().map(|path| path.as_os_str()).collect();
    arguments.extend(["-o".as_ref(), into.as_os_str()]);
    python("tests/support/twin.py", &arguments);
}

fn python(script: &str, arguments: &[&std::ffi::OsStr]) {
    let output = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .args(arguments)
        .output()
        .expect("python3 is needed to build test wheels: install it, or run ./ci.sh test, which does");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The binary under test, with an environment of its own.
pub(crate) fn jetwheel(data_dir: &Path) -> Command {
    jetwheel_in(&network::Network::of_the_test(), data_dir)
}

/// The binary under test in a network of its own.
pub(crate) fn jetwheel_in(network: &network::Network, data_dir: &Path) -> Command {
    let mut command = network.command(env!("CARGO_BIN_EXE_jetwheel"));
    command.arg("--data").arg(data_dir).env_remove("JETWHEEL_DATA").env_remove("PIP_FIND_LINKS");
    // The configuration of whoever runs the tests is not theirs.
    command.env("JETWHEEL_CONFIG", "/dev/null").envs(site::CREDENTIALS);
    command
}
