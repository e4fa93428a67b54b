//! The files of a cgroup, in both versions (Documentation/admin-guide/cgroup-v1 and cgroup-v2).

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{CgroupLimits, Counts};
use crate::host::Controller;

/// Which files a directory has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Version {
    /// One controller's hierarchy.
    One(Controller),
    /// The unified hierarchy.
    Two,
}

/// A file with a limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitFile {
    /// Its name.
    pub name: &'static str,
    presence: Presence,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Presence {
    Always,
    /// Only where the kernel accounts swap.
    WithSwap,
}

impl LimitFile {
    const fn always(name: &'static str) -> Self {
        Self { name, presence: Presence::Always }
    }

    const fn with_swap(name: &'static str) -> Self {
        Self { name, presence: Presence::WithSwap }
    }

    /// Whether a kernel may lack it.
    pub fn is_optional(self) -> bool {
        self.presence == Presence::WithSwap
    }
}

/// The scheduler's period, microseconds; the kernel's default.
const PERIOD_US: u64 = 100_000;

impl Version {
    /// What to write where, in this order.
    pub fn limits(self, limits: CgroupLimits) -> Vec<(LimitFile, String)> {
        let memory = limits.memory.to_string();
        let quota = (PERIOD_US * u64::from(limits.millicores) / 1000).max(1000);
        match self {
            Self::One(Controller::Memory) => vec![
                (LimitFile::always("memory.limit_in_bytes"), memory.clone()),
                // Memory and swap together: what is not resident does not escape the limit.
                (LimitFile::with_swap("memory.memsw.limit_in_bytes"), memory),
            ],
            Self::One(Controller::Pids) => {
                vec![(LimitFile::always("pids.max"), limits.pids.to_string())]
            }
            Self::One(Controller::Cpu) => vec![
                (LimitFile::always("cpu.cfs_period_us"), PERIOD_US.to_string()),
                (LimitFile::always("cpu.cfs_quota_us"), quota.to_string()),
            ],
            Self::One(Controller::Cpuacct) => vec![],
            Self::Two => vec![
                (LimitFile::always("memory.max"), memory),
                (LimitFile::with_swap("memory.swap.max"), "0".into()),
                (LimitFile::always("pids.max"), limits.pids.to_string()),
                (LimitFile::always("cpu.max"), format!("{quota} {PERIOD_US}")),
            ],
        }
    }

    /// The file through which a process joins by writing "0".
    ///
    /// On version 1 `tasks`, which moves the single calling thread and so takes no global lock.
    pub fn join_file(self) -> &'static str {
        match self {
            Self::One(_) => "tasks",
            Self::Two => "cgroup.procs",
        }
    }

    /// Adds what this directory counted.
    pub fn read(self, dir: &Path, mut counts: Counts) -> Counts {
        let number = |file: &str| read(dir, file)?.trim().parse::<u64>().ok();
        let entry = |file: &str, key: &str| flat_keyed(&read(dir, file)?, key);
        if matches!(self, Self::One(Controller::Memory)) {
            counts.peak_memory = number("memory.max_usage_in_bytes");
            counts.oom_kills = entry("memory.oom_control", "oom_kill").unwrap_or(0);
        }
        if matches!(self, Self::Two) {
            counts.peak_memory = number("memory.peak");
            counts.oom_kills = entry("memory.events", "oom_kill").unwrap_or(0);
        }
        if matches!(self, Self::One(Controller::Pids) | Self::Two) {
            counts.peak_pids = number("pids.peak");
            counts.refused_forks = entry("pids.events", "max").unwrap_or(0);
        }
        counts.cpu_us = counts.cpu_us.or_else(|| self.cpu_us(dir));
        counts
    }

    /// Processor time, where this directory counts it, microseconds.
    pub fn cpu_us(self, dir: &Path) -> Option<u64> {
        match self {
            Self::One(Controller::Cpuacct) => {
                let nanoseconds: u64 = read(dir, "cpuacct.usage")?.trim().parse().ok()?;
                Some(nanoseconds / 1000)
            }
            Self::One(_) => None,
            Self::Two => flat_keyed(&read(dir, "cpu.stat")?, "usage_usec"),
        }
    }
}

fn read(dir: &Path, file: &str) -> Option<String> {
    fs::read_to_string(dir.join(file)).ok()
}

/// One value of a file with `key value` lines.
fn flat_keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Hands memory, pids and cpu down to the children of a version 2 directory.
pub fn enable_controllers(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.subtree_control"), "+memory +pids +cpu")
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

    #[test]
    fn half_a_processor_is_half_a_period() {
        let limits = CgroupLimits { memory: 1 << 28, pids: 64, millicores: 500 };
        let written = Version::Two.limits(limits);
        let cpu = written.iter().find(|(file, _)| file.name == "cpu.max").map(|(_, v)| v.as_str());
        assert_eq!(cpu, Some("50000 100000"));
    }
}
