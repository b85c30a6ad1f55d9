//! A PostgreSQL server of a test's own: its cluster in a folder, on a port of its own, gone with the test.

use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::port::port;

/// Who runs it where the tests are run by root, whom PostgreSQL refuses.
const NOBODY: u32 = 65534;

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// The server. It is killed when this is dropped, and when the thread that started it ends.
pub(crate) struct Server {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Server {
    /// Makes a cluster and starts it. Everybody may come in, but the role `guarded` by a password alone, where there is one.
    pub(crate) fn start() -> Self {
        Self::start_as(|cluster| {
            let rules = "host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
            fs_err::write(cluster.join("pg_hba.conf"), rules).unwrap();
        })
    }

    /// The same, with a certificate and its key, and over TLS alone.
    pub(crate) fn start_with_tls(certificate: &Path, key: &Path) -> Self {
        Self::start_as(|cluster| {
            let at = |name: &str| cluster.join(name);
            fs_err::copy(certificate, at("server.crt")).unwrap();
            fs_err::copy(key, at("server.key")).unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs_err::set_permissions(at("server.key"), private).unwrap();
            if is_root() {
                for name in ["server.crt", "server.key"] {
                    std::os::unix::fs::chown(at(name), Some(NOBODY), Some(NOBODY)).unwrap();
                }
            }
            fs_err::write(at("pg_hba.conf"), "hostssl all all 127.0.0.1/32 trust\n").unwrap();
            let settings = fs_err::read_to_string(at("postgresql.conf")).unwrap();
            fs_err::write(at("postgresql.conf"), settings + "ssl = on\n").unwrap();
        })
    }

    /// Makes a cluster, has it set up, and starts it.
    fn start_as(set_up: impl FnOnce(&Path)) -> Self {
        // Below /tmp, which everybody may enter: a folder for tests may belong to root alone.
        let dir = tempfile::Builder::new().prefix("jetwheel-postgres-").tempdir_in("/tmp").unwrap();
        if is_root() {
            std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let cluster = dir.path().join("cluster");
        let output = as_nobody(&program("initdb"))
            .current_dir(dir.path())
            .args([
                "--no-sync",
                "--no-instructions",
                "--auth=trust",
                "--username=jetwheel",
                "--encoding=UTF8",
            ])
            .args(["--locale=C", "-D"])
            .arg(&cluster)
            .output()
            .unwrap();
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        set_up(&cluster);
        let port = port();
        let child = run(&cluster, port);
        let mut server = Self { child, port, dir };
        server.wait();
        server
    }

    /// Makes an empty database; yields its address.
    pub(crate) fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.address(name)
    }

    /// Its port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    fn address(&self, name: &str) -> String {
        format!("postgres://jetwheel@127.0.0.1:{}/{name}", self.port)
    }

    /// Runs a statement by psql; yields what it prints.
    pub(crate) fn sql(&self, database: &str, statement: &str) -> String {
        let output = Command::new(program("psql"))
            .args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement])
            .arg(self.address(database))
            .output()
            .unwrap();
        assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Kills the server and all that it started, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // Its children notice at once, and let go of the shared memory.
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts it again after [`Server::kill`].
    pub(crate) fn start_again(&mut self) {
        self.child = run(&self.cluster(), self.port);
        self.wait();
    }

    /// Waits until it answers. One that ended is started anew: the children of a killed one may hold its shared memory for a
    /// while.
    fn wait(&mut self) {
        let began = Instant::now();
        let ready = |port: u16| {
            let mut command = Command::new(program("pg_isready"));
            command.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
            command.status().unwrap().success()
        };
        while !ready(self.port) {
            let log = || fs_err::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "PostgreSQL does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
            if self.child.try_wait().unwrap().is_some() {
                self.child = run(&self.cluster(), self.port);
            }
        }
    }

    fn cluster(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn run(cluster: &Path, port: u16) -> Child {
    let log = fs_err::OpenOptions::new()
        .create(true)
        .append(true)
        .open(cluster.parent().unwrap().join("log"))
        .unwrap()
        .into_file();
    as_nobody(&program("postgres"))
        .current_dir(cluster)
        .arg("-D")
        .arg(cluster)
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
        .args(["-c", "fsync=off", "-c", "max_connections=200", "-c", "shared_buffers=32MB"])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs_err::metadata("/proc/self").unwrap().uid() == 0
}

/// A command that ends with this thread, and does not run as root.
fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root() {
        command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
    }
    command.arg(program).env("LC_ALL", "C");
    command
}

/// A program of PostgreSQL's, which Debian does not put into the path.
fn program(name: &str) -> PathBuf {
    let found = fs_err::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut versions: Vec<PathBuf> =
        found.map(|entry| entry.unwrap().path().join("bin").join(name)).collect();
    versions.retain(|path| path.exists());
    versions.sort();
    versions
        .pop()
        .expect("PostgreSQL is needed: install it (Debian: postgresql), or run ./ci.sh test, which does")
}
