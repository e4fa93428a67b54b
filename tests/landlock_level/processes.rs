//! Queries about the machine's processes in /proc (proc(5)).

use std::fs;
use std::time::{Duration, Instant};

/// Returns the processes with this name (`/proc/PID/comm`), which has at most 15 bytes.
pub fn named(name: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("/proc can be read");
    all.filter_map(|entry| {
        let entry = entry.ok()?;
        let comm = fs::read_to_string(entry.path().join("comm")).ok()?;
        (comm.trim_end() == name).then(|| entry.file_name().to_str()?.parse().ok())?
    })
    .collect()
}

pub fn parent(pid: i32) -> Option<i32> {
    i32::try_from(stat_field(pid, 4)?)
        .ok()
        .filter(|parent| *parent > 1)
}

/// Returns how many generations a process is below another.
pub fn depth(pid: i32, above: i32) -> Option<usize> {
    let mut pid = pid;
    for depth in 0..10 {
        if pid == above {
            return Some(depth);
        }
        pid = parent(pid)?;
    }
    None
}

/// Returns all descendants of a process with their start times, which distinguish processes with the same id.
pub fn descendants(pid: i32) -> Vec<(i32, u64)> {
    let all = fs::read_dir("/proc").expect("/proc can be read");
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|other| *other != pid && depth(*other, pid).is_some())
        .filter_map(|other| Some((other, start_time(other)?)))
        .collect()
}

pub fn start_time(pid: i32) -> Option<u64> {
    stat_field(pid, 22)
}

fn stat_field(pid: i32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(field - 3)?
        .parse()
        .ok()
}

/// Waits until the condition holds. Returns false after the limit.
pub fn within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    holds()
}
