//! What packages are made from: completions, manual pages, the places of files, the systemd unit.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::{jetwheel, make_wheels};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// The judge is the shell itself.
#[test]
fn completions_are_scripts_that_their_shell_takes() {
    let folder = tempfile::tempdir().unwrap();
    let script = succeeded(&jetwheel(folder.path()).args(["completions", "bash"]).output().unwrap());
    let file = folder.path().join("jetwheel");
    fs_err::write(&file, script).unwrap();
    let asked = r#". "$1"; COMP_WORDS=(jetwheel sna); COMP_CWORD=1; _jetwheel jetwheel sna jetwheel; echo "${COMPREPLY[*]}""#;
    let completed = Command::new("bash").args(["-c", asked, "bash"]).arg(&file).output().unwrap();
    assert_eq!(succeeded(&completed).trim(), "snapshot");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("man1");
    succeeded(&jetwheel(folder.path()).args(["man", "--output"]).arg(&man).output().unwrap());
    let help = succeeded(&jetwheel(folder.path()).arg("--help").output().unwrap());
    let verbs = help.split_once("Commands:").unwrap().1.split_once("Options:").unwrap().0;
    let verbs: Vec<&str> =
        verbs.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    let verbs: Vec<&str> = verbs.into_iter().filter(|verb| !verb.is_empty() && *verb != "help").collect();
    assert!(verbs.contains(&"serve"), "{help}");
    for verb in verbs {
        let page = fs_err::read_to_string(man.join(format!("jetwheel-{verb}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains("Examples:"), "{verb}: {page}");
    }
    assert!(man.join("jetwheel.1").is_file());
}

/// The XDG Base Directory Specification: `$XDG_CONFIG_HOME`, else `$HOME/.config`; a relative path counts as none.
#[test]
fn the_configuration_is_found_where_the_ecosystem_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let wheel = "demo-1.0-py3-none-any.whl";
    make_wheels(&serde_json::json!([{"filename": wheel}]), folder.path());
    let add = |variables: &[(&str, &Path)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jetwheel"));
        command.env_remove("JETWHEEL_DATA").env_remove("JETWHEEL_CONFIG").env_remove("XDG_CONFIG_HOME");
        command.envs(variables.iter().copied()).arg("add").arg(folder.path().join(wheel));
        succeeded(&command.current_dir(folder.path()).output().unwrap());
    };
    let write = |config: &Path, data: &str| {
        fs_err::create_dir_all(config.join("jetwheel")).unwrap();
        fs_err::write(config.join("jetwheel/jetwheel.toml"), format!("data = {data:?}\n")).unwrap();
    };
    let (home, xdg) = (folder.path().join("home"), folder.path().join("xdg"));
    write(&home.join(".config"), "beside-home");
    write(&xdg, "beside-xdg");
    add(&[("HOME", &home)]);
    // A path in a configuration file is relative to its folder.
    assert!(home.join(".config/jetwheel/beside-home/FORMAT").is_file());
    add(&[("HOME", &home), ("XDG_CONFIG_HOME", &xdg)]);
    assert!(xdg.join("jetwheel/beside-xdg/FORMAT").is_file());
    add(&[("HOME", &home), ("XDG_CONFIG_HOME", &xdg), ("JETWHEEL_DATA", &folder.path().join("named"))]);
    assert!(folder.path().join("named/FORMAT").is_file());
}

/// The judge is `systemd-analyze security`, whose measure is from 0, confined, to 10. The mirror's own target is 3.0.
#[test]
fn the_units_are_confined() {
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/debian");
    for unit in ["jetwheel.service", "jetwheel-sync@.service"] {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager", "--threshold=30"]).arg(units.join(unit));
        let report = succeeded(&analyze.output().unwrap());
        assert!(report.contains("Overall exposure level"), "{report}");
    }
}

/// The image itself is tried by `packaging/try_container.sh`.
#[test]
fn the_container_is_built_by_the_rust_that_the_crate_asks_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = fs_err::read_to_string(root.join("packaging/Containerfile")).unwrap();
    let base = format!("/rust:{}-", env!("CARGO_PKG_RUST_VERSION"));
    assert!(file.contains(&base), "packaging/Containerfile has no base with {base}");
}

/// The protocol is that of `sd_notify(3)`: one datagram for each change.
#[test]
fn systemd_hears_when_the_mirror_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut heard = [0; 256];
    let mut hear = || {
        let len = socket.recv(&mut heard).unwrap();
        text(&heard[..len]).trim().to_owned()
    };
    let mut serve = jetwheel(&folder.path().join("data"));
    serve.args(["serve", "--listen", "127.0.0.1:0"]).env("NOTIFY_SOCKET", folder.path().join("notify"));
    let mut server = serve.stderr(std::process::Stdio::null()).spawn().unwrap();
    assert_eq!(hear(), "READY=1");
    let pid = server.id().to_string();
    succeeded(&Command::new("kill").args(["-TERM", &pid]).output().unwrap());
    assert_eq!(hear(), "STOPPING=1");
    assert!(server.wait().unwrap().success());
}
