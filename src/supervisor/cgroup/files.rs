//! The files of a cgroup, in both versions (Documentation/admin-guide/cgroup-v1 and cgroup-v2).

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Counts;
use crate::host::Controller;
use crate::plan::{CgroupVersion, Hierarchy};
use crate::supervisor::proc_dir;

/// The file through which a process joins by writing "0".
///
/// On version 1 `tasks`, which moves the single calling thread and so takes no global lock.
pub fn join_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "tasks",
        CgroupVersion::V2 { .. } => "cgroup.procs",
    }
}

/// Gives the text of one of a directory's files.
pub type Read<'r> = &'r mut dyn FnMut(&'static str) -> Option<String>;

/// Adds what a directory counted, in its files as `read` gives them.
pub fn read_counts(
    version: CgroupVersion,
    hierarchy: &Hierarchy,
    read: Read,
    mut counts: Counts,
) -> Counts {
    if hierarchy.controllers.contains(&Controller::Memory) {
        let (peak, kills) = match version {
            CgroupVersion::V1 => ("memory.max_usage_in_bytes", "memory.oom_control"),
            CgroupVersion::V2 { .. } => ("memory.peak", "memory.events"),
        };
        counts.peak_memory = number(read, peak);
        counts.oom_kills = entry(read, kills, "oom_kill").unwrap_or(0);
    }
    if hierarchy.controllers.contains(&Controller::Pids) {
        counts.peak_pids = number(read, "pids.peak");
        counts.refused_forks = entry(read, "pids.events", "max");
    }
    counts.cpu_us = counts.cpu_us.or_else(|| cpu_us(version, hierarchy, read));
    counts
}

fn number(read: Read, file: &'static str) -> Option<u64> {
    read(file)?.trim().parse().ok()
}

fn entry(read: Read, file: &'static str, key: &str) -> Option<u64> {
    flat_keyed(&read(file)?, key)
}

/// Processor time, where this directory counts it, microseconds.
pub fn cpu_us(version: CgroupVersion, hierarchy: &Hierarchy, read: Read) -> Option<u64> {
    if !counts_cpu(version, hierarchy) {
        return None;
    }
    match version {
        CgroupVersion::V1 => {
            let nanoseconds: u64 = read("cpuacct.usage")?.trim().parse().ok()?;
            Some(nanoseconds / 1000)
        }
        CgroupVersion::V2 { .. } => flat_keyed(&read("cpu.stat")?, "usage_usec"),
    }
}

/// Whether the directories of a hierarchy count processor time: all do on version 2.
pub fn counts_cpu(version: CgroupVersion, hierarchy: &Hierarchy) -> bool {
    version != CgroupVersion::V1 || hierarchy.controllers.contains(&Controller::Cpuacct)
}

/// Writes a setting to a file, which is never created here.
pub fn write(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
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
    let processes = proc_dir::read(&dir.join("cgroup.procs"));
    for line in processes.unwrap_or_default().lines() {
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
