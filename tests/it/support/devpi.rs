//! A real devpi-server, the software behind the jetson-ai-lab index, on the loopback and with no index behind it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fs_err::File;

use super::clients::client_program;
use super::network::Network;
use super::port::port;

/// How long a start may take; a busy machine of two cores needs a few seconds.
const START_LIMIT: Duration = Duration::from_mins(1);
/// How long to wait between two looks at a server that starts.
const POLL: Duration = Duration::from_millis(50);
const PASSWORD: &str = "a-password-for-tests";

/// A running devpi-server with the empty index `root/wheels`; stopped when dropped.
#[derive(Debug)]
pub(crate) struct Devpi {
    server: Child,
    port: u16,
    folder: tempfile::TempDir,
    network: Network,
}

impl Devpi {
    /// Sets up a server folder, starts a server in it and makes the index.
    pub(crate) fn start() -> Self {
        Self::start_in(&Network::of_the_test())
    }

    /// Does the same in a network, from where alone it can then be reached.
    pub(crate) fn start_in(network: &Network) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut init = network.command(client_program("devpi", "python"));
        init.args(["-c", "from devpi_server.init import init; raise SystemExit(init())"]);
        init.args(["--no-root-pypi", "--root-passwd", PASSWORD, "--serverdir"])
            .arg(folder.path().join("server"));
        let output = init.env("HOME", folder.path()).output().unwrap();
        assert!(output.status.success(), "devpi-init: {}", String::from_utf8_lossy(&output.stderr));

        let (server, port) = serve(network, folder.path())
            .unwrap_or_else(|| panic!("devpi-server did not start: {}", log(folder.path())));
        let devpi = Self { server, port, folder, network: network.clone() };
        let index = r#"{"type": "stage", "bases": [], "volatile": true}"#;
        devpi.ask(&["-X", "PUT", "-H", "Content-Type: application/json", "-d", index], "root/wheels");
        devpi
    }

    /// The simple index of `root/wheels`.
    pub(crate) fn index_url(&self) -> String {
        format!("http://127.0.0.1:{}/root/wheels/+simple/", self.port)
    }

    /// Uploads every wheel of a folder, as devpi's client and twine do it.
    pub(crate) fn upload_all(&self, folder: &Path) {
        let mut wheels: Vec<_> =
            fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        wheels.retain(|path| path.extension().is_some_and(|extension| extension == "whl"));
        wheels.sort();
        assert!(!wheels.is_empty(), "{} holds no wheel", folder.display());
        for wheel in wheels {
            let name = wheel.file_name().unwrap().to_str().unwrap();
            let mut parts = name.split('-');
            let field = |key: &str, value: &str| format!("{key}={value}");
            let form = [
                ":action=file_upload".to_owned(),
                field("name", parts.next().unwrap()),
                field("version", parts.next().unwrap()),
                field("content", &format!("@{}", wheel.display())),
            ];
            let arguments: Vec<&str> = form.iter().flat_map(|field| ["-F", field.as_str()]).collect();
            self.ask(&arguments, "root/wheels/");
        }
    }

    fn ask(&self, arguments: &[&str], path: &str) {
        let url = format!("http://127.0.0.1:{}/{path}", self.port);
        let login = format!("root:{PASSWORD}");
        let output = curl(&self.network).args(["-u", &login]).args(arguments).arg(&url).output().unwrap();
        assert!(
            output.status.success(),
            "devpi: {url}: {}{}{}",
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout),
            log(self.folder.path())
        );
    }
}

impl Drop for Devpi {
    fn drop(&mut self) {
        let _already_gone = self.server.kill();
        let _status = self.server.wait();
    }
}

/// Starts a server; nothing if it ended.
fn serve(network: &Network, folder: &Path) -> Option<(Child, u16)> {
    let port = port();
    let output = File::create(folder.join("log")).unwrap().into_file();
    let mut server = network
        .command(client_program("devpi", "python"))
        .args(["-c", "from devpi_server.main import main; raise SystemExit(main())", "--offline-mode"])
        .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--serverdir"])
        .arg(folder.join("server"))
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let api = format!("http://127.0.0.1:{port}/+api");
    while begin.elapsed() < START_LIMIT {
        if server.try_wait().unwrap().is_some() {
            return None;
        }
        if curl(network).arg(&api).output().unwrap().status.success() {
            return Some((server, port));
        }
        thread::sleep(POLL);
    }
    let _already_gone = server.kill();
    let _status = server.wait();
    None
}

fn curl(network: &Network) -> Command {
    let mut command = network.command("curl");
    command.args([
        "-q",
        "--silent",
        "--show-error",
        "--fail-with-body",
        "--noproxy",
        "*",
        "--max-time",
        "60",
    ]);
    command.args(["-H", "Accept: application/json"]);
    command
}

fn log(folder: &Path) -> String {
    fs_err::read_to_string(folder.join("log")).unwrap_or_default()
}
