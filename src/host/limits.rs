//! Determines the machine's resources, so that a policy cannot promise more.

use std::fs;
use std::num::NonZeroUsize;

use nix::sys::resource::{Resource, getrlimit};

use super::cgroup::memory_limit;
use super::headroom::{field, kibibytes};

/// The upper bounds of this machine and of this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HostLimits {
    /// Physical memory (`MemTotal` of proc_meminfo(5)), or the cgroup's limit if that is lower, in bytes.
    pub memory: u64,
    /// The number of processes that this user may have (`RLIMIT_NPROC`, `/proc/sys/kernel/pid_max`).
    pub pids: u64,
    /// The number of processors on which this process may run.
    pub cpus: u32,
    /// The hard limits, which an unprivileged process cannot raise.
    pub hard: HardLimits,
}

/// Hard resource limits (getrlimit(2)); `u64::MAX` means unlimited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HardLimits {
    /// `RLIMIT_CPU`, seconds.
    pub cpu_seconds: u64,
    /// `RLIMIT_NOFILE`, descriptors of one process.
    pub open_files: u64,
    /// `RLIMIT_FSIZE`, bytes.
    pub file_size: u64,
    /// `RLIMIT_STACK`, bytes.
    pub stack: u64,
    /// `RLIMIT_MEMLOCK`, bytes.
    pub locked_memory: u64,
    /// `RLIMIT_CORE`, bytes.
    pub core: u64,
    /// `RLIMIT_MSGQUEUE`, bytes.
    pub message_queues: u64,
    /// `RLIMIT_SIGPENDING`, signals.
    pub pending_signals: u64,
}

impl HardLimits {
    fn probe() -> Self {
        Self {
            cpu_seconds: hard(Resource::RLIMIT_CPU),
            open_files: hard(Resource::RLIMIT_NOFILE),
            file_size: hard(Resource::RLIMIT_FSIZE),
            stack: hard(Resource::RLIMIT_STACK),
            locked_memory: hard(Resource::RLIMIT_MEMLOCK),
            core: hard(Resource::RLIMIT_CORE),
            message_queues: hard(Resource::RLIMIT_MSGQUEUE),
            pending_signals: hard(Resource::RLIMIT_SIGPENDING),
        }
    }
}

/// Returns how many processors this process may use, by its affinity and its cgroups' quotas.
pub(crate) fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

impl HostLimits {
    pub(super) fn probe() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let pid_max = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
        Self {
            memory: total_memory(&meminfo)
                .into_iter()
                .chain(memory_limit())
                .min()
                .unwrap_or(u64::MAX),
            pids: hard(Resource::RLIMIT_NPROC).min(pid_max.trim().parse().unwrap_or(u64::MAX)),
            cpus: u32::try_from(processors().get()).unwrap_or(u32::MAX),
            hard: HardLimits::probe(),
        }
    }
}

fn hard(resource: Resource) -> u64 {
    getrlimit(resource).map_or(u64::MAX, |(_, hard)| hard)
}

fn total_memory(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemTotal:").and_then(kibibytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_is_parsed() {
        assert_eq!(
            total_memory("MemTotal:       24684084 kB\nMemFree: 1 kB\n"),
            Some(25_276_502_016)
        );
        assert_eq!(total_memory(""), None);
    }

    #[test]
    fn this_machine_has_limits() {
        let limits = HostLimits::probe();
        assert!(
            limits.memory > 1 << 20 && limits.memory < u64::MAX,
            "{limits:?}"
        );
        assert!(
            limits.pids > 0 && limits.hard.open_files > 0 && limits.cpus > 0,
            "{limits:?}"
        );
    }
}
