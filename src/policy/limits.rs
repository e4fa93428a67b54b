//! Limits and quotas, and the valid range of each.

use std::time::Duration;

use super::numbers::Cores;
use crate::outcome::LimitName;

/// How much of each resource a guest may use.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Wall time of each cell or run, measured by the supervisor's clock.
    pub wall: Duration,
    /// Processor time of all threads and processes together. The cgroup (`cpuacct`, `cpu.stat`) or the
    /// supervisor, from `/proc`, counts it. `RLIMIT_CPU` additionally limits each process.
    pub cpu: Duration,
    /// Memory of all processes and of the session's files together, bytes, limited by the memory
    /// controller of cgroups(7). Without it, `RLIMIT_DATA` limits each process (getrlimit(2)), and the
    /// watchdog limits the sum over all of them. That sum does not include the session's files, which
    /// have quotas of their own.
    pub memory: u64,
    /// The number of processes and threads at a time, limited by the pids controller of cgroups(7), else
    /// by `RLIMIT_NPROC` in the worker's own user namespace.
    pub pids: u32,
    /// Open file descriptors of each process: `RLIMIT_NOFILE`.
    pub open_files: u32,
    /// Size of any one file, bytes: `RLIMIT_FSIZE`.
    pub file_size: u64,
    /// Standard output and standard error together, bytes. The supervisor counts them as it reads them.
    pub output: u64,
    /// Share of the processors, limited by the cpu controller of cgroups(7). Without it, the worker is
    /// pinned to that many whole processors, rounded up (sched_setaffinity(2)).
    pub cores: Cores,
}

/// Quota of a private file system (tmpfs(5)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quota {
    /// Size, bytes.
    pub size: u64,
    /// Number of files, directories and links.
    pub inodes: u64,
}

impl LimitName {
    /// The minimum and the maximum, in the base unit of the key. The minimum is the least that a sandbox
    /// can run under. The maximum is the most that the kernel accepts, or more than any user means. Zero
    /// is never in range, because to tmpfs(5) and to many readers it means "no limit".
    pub(super) fn range(self) -> (u64, u64) {
        const MONTH_MS: u64 = 30 * 24 * 60 * 60 * 1000;
        const PIB: u64 = 1 << 50;
        match self {
            Self::Wall | Self::Cpu => (1, MONTH_MS),
            // CPython alone needs most of this.
            Self::Memory => (16 << 20, PIB),
            // PID_MAX_LIMIT of the kernel.
            Self::Pids => (1, 1 << 22),
            // The minimum covers the standard streams, the worker's own descriptors and a few files. The
            // maximum is the kernel's default fs.nr_open.
            Self::OpenFiles => (16, 1 << 20),
            Self::FileSize | Self::Output => (1, PIB),
            // The smallest cpu quota is 1 ms in a period of 100 ms; 8192 is the largest NR_CPUS.
            Self::Cores => (10, 8_192_000),
            // tmpfs counts in pages.
            Self::WorkSize | Self::TmpSize => (4096, PIB),
            Self::WorkInodes | Self::TmpInodes => (16, u64::from(u32::MAX)),
        }
    }
}
