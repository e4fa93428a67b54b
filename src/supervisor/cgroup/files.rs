//! Names, reads and writes the files of a cgroup, in both versions (Documentation/admin-guide/cgroup-v1 and cgroup-v2).

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Counts;
use crate::host::Controller;
use crate::plan::{CgroupVersion, Hierarchy};
use crate::supervisor::proc_dir;
use sandfork_jail::sys::process::page_size;

/// Returns the file through which a process joins by writing "0".
///
/// On version 1 it is `tasks`, which moves only the calling thread and so takes no global lock.
pub fn join_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "tasks",
        CgroupVersion::V2 { .. } => "cgroup.procs",
    }
}

/// Returns the text of one of a directory's files.
pub type Read<'r> = &'r mut dyn FnMut(&'static str) -> Option<String>;

/// Returns the files with the counters of a directory. A kernel may lack some of them: `memory.peak` came with Linux
/// 5.19, `pids.peak` with 6.1.
pub fn counters(version: CgroupVersion, hierarchy: &Hierarchy) -> Vec<&'static str> {
    let mut files = Vec::new();
    if hierarchy.controllers.contains(&Controller::Memory) {
        files.extend(memory_counters(version));
    }
    if hierarchy.controllers.contains(&Controller::Pids) {
        files.extend(PIDS_COUNTERS);
    }
    if counts_cpu(version, hierarchy) {
        files.push(cpu_counter(version));
    }
    files
}

/// Returns the files with the memory peak and the OOM kills.
pub fn memory_counters(version: CgroupVersion) -> [&'static str; 2] {
    match version {
        CgroupVersion::V1 => ["memory.max_usage_in_bytes", "memory.oom_control"],
        CgroupVersion::V2 { .. } => ["memory.peak", "memory.events"],
    }
}

/// Returns the file with the memory charged now.
pub fn memory_charged(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "memory.usage_in_bytes",
        CgroupVersion::V2 { .. } => "memory.current",
    }
}

/// Returns the part of the charged memory that is kernel memory, in bytes. Version 1 does not report it before Linux
/// 5.18.
pub fn kernel_memory(version: CgroupVersion, dir: &Path) -> Option<u64> {
    let text = |name| proc_dir::read(&dir.join(name)).ok();
    match version {
        CgroupVersion::V1 => text("memory.kmem.usage_in_bytes")?.trim().parse().ok(),
        CgroupVersion::V2 { .. } => flat_keyed(&text("memory.stat")?, "kernel"),
    }
}

/// Asks the kernel to reclaim up to `charged` bytes of a directory's memory.
pub fn reclaim(version: CgroupVersion, dir: &Path, charged: u64) -> io::Result<()> {
    match version {
        CgroupVersion::V1 => write(&dir.join("memory.force_empty"), "0"),
        // Available since Linux 5.19.
        CgroupVersion::V2 { .. } => write(&dir.join("memory.reclaim"), &charged.to_string()),
    }
}

/// The files with the peak number of tasks and the refused forks.
const PIDS_COUNTERS: [&str; 2] = ["pids.peak", "pids.events"];

fn cpu_counter(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "cpuacct.usage",
        CgroupVersion::V2 { .. } => "cpu.stat",
    }
}

/// Adds the counters of a directory, whose files `read` returns.
pub fn read_counts(
    version: CgroupVersion,
    hierarchy: &Hierarchy,
    read: Read,
    mut counts: Counts,
) -> Counts {
    if hierarchy.controllers.contains(&Controller::Memory) {
        let [peak, kills] = memory_counters(version);
        counts.peak_memory = number(read, peak);
        counts.oom_kills = entry(read, kills, "oom_kill").unwrap_or(0);
    }
    if hierarchy.controllers.contains(&Controller::Pids) {
        let [peak, refusals] = PIDS_COUNTERS;
        counts.peak_pids = number(read, peak);
        counts.refused_forks = entry(read, refusals, "max");
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

/// Returns the CPU time in microseconds, if this directory counts it.
pub fn cpu_us(version: CgroupVersion, hierarchy: &Hierarchy, read: Read) -> Option<u64> {
    if !counts_cpu(version, hierarchy) {
        return None;
    }
    let text = read(cpu_counter(version))?;
    match version {
        CgroupVersion::V1 => {
            let nanoseconds: u64 = text.trim().parse().ok()?;
            Some(nanoseconds / 1000)
        }
        CgroupVersion::V2 { .. } => flat_keyed(&text, "usage_usec"),
    }
}

/// Whether the directories of a hierarchy count CPU time. On version 2 all do.
pub fn counts_cpu(version: CgroupVersion, hierarchy: &Hierarchy) -> bool {
    version != CgroupVersion::V1 || hierarchy.controllers.contains(&Controller::Cpuacct)
}

/// Writes a setting to an existing file.
pub fn write(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
}

/// Returns the value of a key in a file with `key value` lines.
fn flat_keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

/// Whether a limit's file holds the value that was written. The kernel rounds a memory limit down to whole pages.
pub fn holds(file: &str, found: &str, written: &str) -> bool {
    let unit = if file.starts_with("memory.") {
        page_size()
    } else {
        1
    };
    let is_kept = |(found, written): (&str, &str)| {
        let kept = written.parse::<u64>().map(|bytes| bytes - bytes % unit);
        found == written || found.parse() == kept
    };
    let words = str::split_ascii_whitespace;
    words(found).count() == words(written).count() && words(found).zip(words(written)).all(is_kept)
}

/// Enables controllers for the children of a version 2 directory.
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
        // 0 is a process of another pid namespace, which is never a member here.
        if let Some(pid) = line.parse().ok().filter(|pid| *pid > 0) {
            _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_matches_when_rounded_to_pages() {
        assert!(holds("memory.max", "67108864\n", "67108864"));
        assert!(holds("memory.max", "67108864\n", "67108865"));
        for found in ["67104768", "67112960", "max", "", "67108864 1"] {
            assert!(!holds("memory.max", found, "67108864"), "{found}");
        }
        assert!(holds("cpu.max", "50000 100000\n", "50000 100000"));
        for found in ["max 100000\n", "50000", "49152 100000"] {
            assert!(!holds("cpu.max", found, "50000 100000"), "{found}");
        }
    }

    #[test]
    fn keys_are_matched_whole() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(flat_keyed(text, "oom_kill"), Some(3));
        assert_eq!(flat_keyed(text, "under"), None);
    }
}
