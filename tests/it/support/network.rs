//! Networks of their own: from inside one, nothing but its own loopback can be reached.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// What the process that holds a network does: brings the loopback up, says so, and waits until its input ends.
const HOLD: &str = "ip link set lo up && echo ready && exec cat";

/// Where processes of a test are started: in a network of their own, or in that of the test.
#[derive(Debug, Clone)]
pub(crate) struct Network(Option<Arc<Holder>>);

/// The process that a network lives as long as.
#[derive(Debug)]
struct Holder {
    process: Child,
    /// What `nsenter` needs besides its process.
    enter: &'static [&'static str],
}

impl Network {
    /// The network of the test itself.
    pub(crate) fn of_the_test() -> Self {
        Self(None)
    }

    /// A new network, by root or else by a user namespace. Where neither is allowed this fails with what to do.
    pub(crate) fn apart() -> Self {
        let ways: [(&[&str], &'static [&'static str]); 2] = [
            (&["--net"], &["--net"]),
            (&["--user", "--map-root-user", "--net"], &["--user", "--net", "--preserve-credentials"]),
        ];
        let mut said = String::new();
        for (make, enter) in ways {
            match hold(make) {
                Ok(process) => return Self(Some(Arc::new(Holder { process, enter }))),
                Err(why) => writeln!(said, "  unshare {}: {}", make.join(" "), why.trim()).unwrap(),
            }
        }
        panic!(
            "this test puts two sites into networks with no route between them, and this machine allows none:\n{said}\
             It needs root with CAP_SYS_ADMIN, or user namespaces (`sysctl kernel.unprivileged_userns_clone=1` on Debian,\n\
             `sysctl kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu; in a container --privileged), and the\n\
             programs unshare, nsenter and ip, which ./ci.sh test installs."
        );
    }

    /// A program that runs in it.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(holder) = &self.0 else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command
            .arg("--target")
            .arg(holder.process.id().to_string())
            .args(holder.enter)
            .arg("--")
            .arg(program);
        command
    }

    /// The kernel's table of routes, without its heading.
    pub(crate) fn routes(&self) -> String {
        let output = self.command("cat").arg("/proc/self/net/route").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().skip(1).collect()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _status = self.process.wait();
    }
}

fn hold(make: &[&str]) -> Result<Child, String> {
    let mut process = Command::new("unshare")
        .args(make)
        .args(["sh", "-c", HOLD])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line == "ready\n" { Ok(process) } else { Err(said(process)) }
}

fn said(process: Child) -> String {
    let output = process.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}
