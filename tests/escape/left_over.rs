//! Processes that outlive the sandbox that they were started in.

use std::fs;
use std::thread;
use std::time::Duration;

/// How often a dying process may be seen before it is gone. Looks are counted, since a machine that keeps such a process
/// from its end keeps this one from looking.
const LOOKS: usize = 50;
const POLL: Duration = Duration::from_millis(20);

/// Makes this process the parent of all that its descendants leave behind.
pub fn adopt() -> Result<(), String> {
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| format!("subreaper: {errno}"))
}

/// No adopted process of another pid namespace is alive.
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

/// Pid namespaces between this process and the one whose /proc it reads.
fn own_depth() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    pids.map_or(1, |pids| pids.split_whitespace().count())
}
