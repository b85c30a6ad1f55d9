//! The mirror as a process of its own.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a start may take on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(1);
/// What `serve` writes before its address.
const LISTENING: &str = "listening on ";

/// A running `jetwheel serve` on a free port of the loopback; killed when dropped.
#[derive(Debug)]
pub(crate) struct Mirror {
    server: Child,
    url: String,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Serves a data folder.
    pub(crate) fn serving(data_dir: &Path) -> Self {
        Self::serving_with(data_dir, &[])
    }

    /// Serves a data folder, with further arguments.
    pub(crate) fn serving_with(data_dir: &Path, arguments: &[&OsStr]) -> Self {
        let mut command = super::jetwheel(data_dir);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        Self::started_by(command)
    }

    /// Starts a server by a command that ends in `serve` and its arguments.
    pub(crate) fn started_by(mut command: Command) -> Self {
        let mut server =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, lines) = mpsc::channel();
        let stderr = BufReader::new(server.stderr.take().unwrap());
        // Reads on after the address is known, or the server would block on a full pipe.
        let log = Arc::new(Mutex::new(String::new()));
        let text = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                text.lock().unwrap().extend([&line, "\n"]);
                let _nobody_waits_any_more = tell.send(line);
            }
        });
        let mut mirror = Self { server, url: String::new(), log, reader: Some(reader) };
        match address(&lines) {
            Some(url) => mirror.url = url,
            None => panic!("the mirror did not say where it listens:\n{}", mirror.end()),
        }
        mirror
    }

    /// The URL of a path that begins with a slash.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The simple index of a device.
    pub(crate) fn index_url(&self, device: &str) -> String {
        self.url(&format!("/{device}/simple/"))
    }

    /// How much memory of its own the server has had at most, in bytes.
    pub(crate) fn most_memory(&self) -> u64 {
        let status = fs_err::read_to_string(format!("/proc/{}/status", self.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let number: String = line.chars().filter(char::is_ascii_digit).collect();
        number.parse::<u64>().unwrap() << 10
    }

    /// Stops the server as systemd does; gives what it had logged, to the last line.
    pub(crate) fn stop(&mut self) -> String {
        let stopped = Command::new("kill").arg(self.server.id().to_string()).status();
        assert!(stopped.unwrap().success());
        assert!(self.server.wait().unwrap().success());
        self.all_logged()
    }

    /// Kills the server as `kill -9` does; gives what it had logged.
    pub(crate) fn end(&mut self) -> String {
        let _already_gone = self.server.kill();
        let _status = self.server.wait();
        self.all_logged()
    }

    fn all_logged(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.logged()
    }

    /// What the server has logged so far.
    pub(crate) fn logged(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.end();
    }
}

/// Scheme, address and port of the line that names it; nothing where the server ended or said nothing in time.
fn address(lines: &Receiver<String>) -> Option<String> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let line = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
        if let Some((_, rest)) = line.split_once(LISTENING) {
            return rest.split_whitespace().next().map(|url| url.trim_end_matches('/').to_owned());
        }
    }
}
