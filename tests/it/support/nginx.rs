//! nginx as a proxy that asks several servers in turn.

use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::port::port;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The proxy; killed when dropped.
pub(crate) struct RoundRobin {
    child: Child,
    port: u16,
    scheme: &'static str,
    dir: tempfile::TempDir,
}

impl RoundRobin {
    /// Starts it over servers that are named by their URLs.
    pub(crate) fn over(servers: &[String]) -> Self {
        Self::start(servers, None, "")
    }

    /// The same, where requests of all clients go over the same few connections.
    pub(crate) fn keeping_connections(servers: &[String]) -> Self {
        Self::start(servers, None, "keepalive 1;")
    }

    /// The same over TLS, with a certificate and its key.
    pub(crate) fn over_tls(servers: &[String], certificate: &Path, key: &Path) -> Self {
        Self::start(servers, Some((certificate, key)), "")
    }

    fn start(servers: &[String], tls: Option<(&Path, &Path)>, keep: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = port();
        let servers: String =
            servers.iter().map(|url| url.replace("http://", "server ") + " max_fails=0;").collect();
        let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| [kind, "_temp_path temp-", kind, ";"].concat())
            .collect();
        let (scheme, listen) = match tls {
            None => ("http", format!("listen 127.0.0.1:{port};")),
            Some((certificate, key)) => (
                "https",
                format!(
                    "listen 127.0.0.1:{port} ssl; ssl_certificate {}; ssl_certificate_key {};",
                    certificate.display(),
                    key.display()
                ),
            ),
        };
        // One process, which ends with a kill.
        let text = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}
             http {{ access_log off; {folders} upstream all {{ {servers} {keep} }}
             server {{ {listen} client_max_body_size 0; location / {{
             proxy_pass http://all; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $http_host; proxy_connect_timeout 2s;
             proxy_next_upstream error timeout http_503; }} }} }}"
        );
        fs_err::write(dir.path().join("nginx.conf"), text).unwrap();
        Self { child: run(dir.path(), port), port, scheme, dir }
    }

    /// Kills it: connections are refused from now on.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after [`RoundRobin::kill`].
    pub(crate) fn start_again(&mut self) {
        self.child = run(self.dir.path(), self.port);
    }

    /// Its URL, without a slash at the end.
    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }
}

fn run(folder: &Path, port: u16) -> Child {
    let child = Command::new("nginx")
        .env("PATH", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin")
        .arg("-p")
        .arg(folder)
        .args(["-e", "stderr", "-c", "nginx.conf"])
        .stdout(Stdio::null())
        .spawn()
        .expect("nginx is needed: install it (Debian: nginx-light), or run ./ci.sh test, which does");
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(began.elapsed() < PATIENCE, "nginx does not start");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

impl Drop for RoundRobin {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
