//! An S3-compatible server of a test's own: moto, which keeps its objects in memory.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::clients::client_program;
use super::port::port;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// The server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let port = port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(client_program("moto", "moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, port };
        let began = Instant::now();
        while !server.asks("GET", "", None) {
            assert!(began.elapsed() < PATIENCE, "moto does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// Makes an empty bucket.
    pub(crate) fn bucket(&self, name: &str) {
        assert!(self.asks("PUT", name, None));
    }

    /// Its address.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Stops it, or lets it go on: while it stands still it takes connections and answers none.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn asks(&self, method: &str, path: &str, body: Option<&str>) -> bool {
        ask(&self.endpoint(), method, path, body)
    }
}

/// Asks a server for an object by curl.
pub(crate) fn ask(endpoint: &str, method: &str, path: &str, body: Option<&str>) -> bool {
    let mut command = Command::new("curl");
    command.args(["-s", "-f", "-o", "/dev/null", "-X", method, &format!("{endpoint}/{path}")]);
    command.args(["--user", "test:secret", "--aws-sigv4", "aws:amz:us-east-1:s3"]);
    // As a form, which curl would say it is, the server takes it for fields.
    command.args(["-H", "Content-Type: application/octet-stream"]);
    command.args(body.iter().flat_map(|body| ["--data-binary", body]));
    command.status().unwrap().success()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
