//! What the process uses, as `/proc/self` says (`proc(5)`).

use std::sync::OnceLock;

/// What the process uses; zero where the system does not say.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    /// User and system time, in seconds.
    pub(super) cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub(super) resident_bytes: u64,
    /// Open file descriptors.
    pub(super) open_files: u64,
    /// The most of them.
    pub(super) most_files: u64,
    /// When the process began, in seconds since 1970.
    pub(super) started: f64,
}

/// Reads it. Blocks, for some tens of microseconds.
pub(super) fn usage() -> Usage {
    let read = |name: &str| fs_err::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let status = read("status");
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = kilobytes.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let limits = read("limits");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let stat = read("stat");
    // Behind the command in parentheses, which may hold spaces itself: field 3 is the first.
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    let ticks = |field: usize| fields.get(field.saturating_sub(3)).and_then(|text| text.parse::<f64>().ok());
    let per_second = TICKS_PER_SECOND;
    Usage {
        cpu_seconds: (ticks(14).unwrap_or(0.0) + ticks(15).unwrap_or(0.0)) / per_second,
        resident_bytes: kilobytes.unwrap_or(0).saturating_mul(1024),
        open_files: fs_err::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64),
        most_files: files.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0),
        started: started(ticks(22).unwrap_or(0.0) / per_second),
    }
}

/// The unit of times in `/proc`: `USER_HZ`, which is 100 on every architecture that Linux has kept but Alpha.
const TICKS_PER_SECOND: f64 = 100.0;

/// The start in seconds since 1970, from seconds since boot. It is kept, so that a clock that is set later does not move it.
fn started(since_boot: f64) -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let stat = fs_err::read_to_string("/proc/stat").unwrap_or_default();
        let booted = stat.lines().find_map(|line| line.strip_prefix("btime ")?.parse::<f64>().ok());
        booted.map_or(0.0, |booted| booted + since_boot)
    })
}
