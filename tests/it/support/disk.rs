//! A file system of its own, small enough to be full.

use std::path::Path;
use std::process::Command;

/// Says that the test runs in a name space in which it may mount.
const INSIDE: &str = "JETWHEEL_TEST_MAY_MOUNT";

/// A tmpfs that is unmounted at the end.
#[derive(Debug)]
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts one of so many bytes for the test of that name.
    ///
    /// Who may not mount runs the test once more in a name space of its own, and has none here. Where the system allows
    /// neither the test fails, for it has proved nothing.
    pub(crate) fn mount(test: &str, bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "jetwheel-test"])
            .arg(dir.path())
            .output();
        let mounted = mounted.expect("mount is needed: install it, or run ./ci.sh test, which does");
        if mounted.status.success() {
            return Some(Self(dir));
        }
        let why = String::from_utf8_lossy(&mounted.stderr).into_owned();
        assert!(std::env::var_os(INSIDE).is_none(), "a tmpfs cannot be mounted: {why}");
        let again = Command::new("unshare")
            .arg("-Urm")
            .arg(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(
            again.status.success() && said.contains("1 passed"),
            "a full disk needs a tmpfs: this user may not mount one ({}), so the test ran in a name space of its own:\n{said}{}",
            why.trim(),
            String::from_utf8_lossy(&again.stderr)
        );
        None
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes it larger or smaller.
    pub(crate) fn resize(&self, bytes: u64) {
        let option = format!("remount,size={bytes}");
        assert!(Command::new("mount").args(["-o", &option]).arg(self.path()).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, for a sled that failed keeps its file open.
        let unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|unmounted| unmounted.success()) || std::thread::panicking());
    }
}

/// Free bytes of a disk.
pub(crate) fn free(dir: &Path) -> u64 {
    let disk = rustix::fs::statvfs(dir).unwrap();
    disk.f_bavail * disk.f_frsize
}

/// Fills a disk until so many bytes are left, by a file that grows or is made anew.
pub(crate) fn fill_up(dir: &Path, ballast: &Path, left: u64) {
    if free(dir) < left && ballast.exists() {
        fs_err::remove_file(ballast).unwrap();
    }
    let held = fs_err::metadata(ballast).map_or(0, |found| found.len());
    let file = fs_err::OpenOptions::new().create(true).write(true).truncate(false).open(ballast).unwrap();
    let bytes = (held + free(dir) - left).max(1);
    rustix::fs::fallocate(file.file(), rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
}
