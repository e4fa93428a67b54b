//! Detects processes that outlive the sandbox in which they were started.

use std::fs;
use std::thread;
use std::time::Duration;

/// The number of times that a dying process may be observed before it must be gone. Observations are counted instead of
/// seconds, because a machine that is too busy to reap such a process also delays the observer.
const LOOKS: usize = 50;
const POLL: Duration = Duration::from_millis(20);

/// Makes this process the subreaper of its descendants, so that it inherits every process they leave behind.
pub fn adopt() -> Result<(), String> {
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| format!("subreaper: {errno}"))
}

/// Checks that no adopted process of another pid namespace is alive.
pub fn none() -> Result<(), String> {
    let mut left = adopted();
    for _ in 0..LOOKS {
        if left.is_empty() {
            return Ok(());
        }
        thread::sleep(POLL);
        left = adopted();
    }
    Err(format!("left behind: {}", left.join(", ")))
}

fn adopted() -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id().to_string();
    processes
        .flatten()
        .filter_map(|entry| {
            let status = fs::read_to_string(entry.path().join("status")).ok()?;
            let field = |name| {
                status
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map_or("", str::trim)
            };
            let nested = field("NSpid:").split_whitespace().count() > own_depth();
            let dead = field("State:").starts_with(['Z', 'X']);
            (field("PPid:") == own && nested && !dead)
                .then(|| format!("{} ({})", field("Pid:"), field("Name:")))
        })
        .collect()
}

/// Returns the number of ids of this process, one in each pid namespace from the one of `/proc` down to its own.
fn own_depth() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    pids.map_or(1, |pids| pids.split_whitespace().count())
}
