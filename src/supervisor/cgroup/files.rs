//! The files of a cgroup, in both versions (Documentation/admin-guide/cgroup-v1 and cgroup-v2).

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Counts;
use crate::host::Controller;
use crate::plan::{CgroupVersion, Hierarchy};

/// The file through which a process joins by writing "0".
///
/// On version 1 `tasks`, which moves the single calling thread and so takes no global lock.
pub fn join_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "tasks",
        CgroupVersion::V2 { .. } => "cgroup.procs",
    }
}

/// Adds what this directory counted.
pub fn read_counts(
    version: CgroupVersion,
    hierarchy: &Hierarchy,
    dir: &Path,
    mut counts: Counts,
) -> Counts {
    let number = |file: &str| read(dir, file)?.trim().parse::<u64>().ok();
    let entry = |file: &str, key: &str| flat_keyed(&read(dir, file)?, key);
    if hierarchy.controllers.contains(&Controller::Memory) {
        let (peak, kills) = match version {
            CgroupVersion::V1 => ("memory.max_usage_in_bytes", "memory.oom_control"),
            CgroupVersion::V2 { .. } => ("memory.peak", "memory.events"),
        };
        counts.peak_memory = number(peak);
        counts.oom_kills = entry(kills, "oom_kill").unwrap_or(0);
    }
    if hierarchy.controllers.contains(&Controller::Pids) {
        counts.peak_pids = number("pids.peak");
        counts.refused_forks = entry("pids.events", "max").unwrap_or(0);
    }
    counts.cpu_us = counts.cpu_us.or_else(|| cpu_us(version, hierarchy, dir));
    counts
}

/// Processor time, where this directory counts it, microseconds.
pub fn cpu_us(version: CgroupVersion, hierarchy: &Hierarchy, dir: &Path) -> Option<u64> {
    match version {
        CgroupVersion::V1 if hierarchy.controllers.contains(&Controller::Cpuacct) => {
            let nanoseconds: u64 = read(dir, "cpuacct.usage")?.trim().parse().ok()?;
            Some(nanoseconds / 1000)
        }
        CgroupVersion::V1 => None,
        CgroupVersion::V2 { .. } => flat_keyed(&read(dir, "cpu.stat")?, "usage_usec"),
    }
}

fn read(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

/// One value of a file with `key value` lines.
fn flat_keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

/// Hands controllers down to the children of a version 2 directory.
pub fn enable_controllers(dir: &Path, hierarchy: &Hierarchy) -> io::Result<()> {
    let wanted: Vec<String> = hierarchy
        .controllers
        .iter()
        .filter(|controller| Controller::LIMITING.contains(controller))
        .map(|controller| format!("+{controller}"))
        .collect();
    fs::write(dir.join("cgroup.subtree_control"), wanted.join(" "))
}

/// Kills every process of a cgroup: `cgroup.kill` (Linux 5.14, version 2), or one by one.
pub fn kill_all(dir: &Path) {
    if fs::write(dir.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for line in read(dir, "cgroup.procs").unwrap_or_default().lines() {
        // 0 is a process of another pid namespace, which cannot be meant here.
        if let Some(pid) = line.parse().ok().filter(|pid| *pid > 0) {
            _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_matched_whole() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(flat_keyed(text, "oom_kill"), Some(3));
        assert_eq!(flat_keyed(text, "under"), None);
    }
}
