//! Limits and quotas, and the range that each one has to be in.

use std::time::Duration;

use super::numbers::Cores;

/// How much of everything a guest may use.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Time on the wall for each cell or run. The supervisor's clock.
    pub wall: Duration,
    /// Processor time of all threads and processes together. Counted by the cgroup (`cpuacct`,
    /// `cpu.stat`) or in `/proc`; `RLIMIT_CPU` stands behind it for each process.
    pub cpu: Duration,
    /// Memory of all processes and of the session's files together, bytes: the memory controller of
    /// cgroups(7). Where there is none, `RLIMIT_DATA` for each process (getrlimit(2)) and the watchdog's
    /// sum over all of them, which the session's files are not in: they have quotas of their own.
    pub memory: u64,
    /// Processes and threads at once: the pids controller of cgroups(7), else `RLIMIT_NPROC` in a user
    /// namespace of the worker's own.
    pub pids: u32,
    /// Open file descriptors of each process: `RLIMIT_NOFILE`.
    pub open_files: u32,
    /// Size of any one file, bytes: `RLIMIT_FSIZE`.
    pub file_size: u64,
    /// Standard output and standard error together, bytes. Counted by the supervisor, who reads them.
    pub output: u64,
    /// Share of the processors: the cpu controller of cgroups(7). Where there is none, the worker is
    /// pinned to so many whole processors, rounded up (sched_setaffinity(2)).
    pub cores: Cores,
}

/// Quota of a private file system (tmpfs(5)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Quota {
    /// Bytes.
    pub size: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

/// A limit or quota, by name.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LimitName {
    /// `limits.wall`
    Wall,
    /// `limits.cpu`
    Cpu,
    /// `limits.memory`
    Memory,
    /// `limits.pids`
    Pids,
    /// `limits.open_files`
    OpenFiles,
    /// `limits.file_size`
    FileSize,
    /// `limits.output`
    Output,
    /// `limits.cores`
    Cores,
    /// `filesystem.work_size`
    WorkSize,
    /// `filesystem.work_inodes`
    WorkInodes,
    /// `filesystem.tmp_size`
    TmpSize,
    /// `filesystem.tmp_inodes`
    TmpInodes,
}

impl LimitName {
    /// The dotted key in a policy file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Wall => "limits.wall",
            Self::Cpu => "limits.cpu",
            Self::Memory => "limits.memory",
            Self::Pids => "limits.pids",
            Self::OpenFiles => "limits.open_files",
            Self::FileSize => "limits.file_size",
            Self::Output => "limits.output",
            Self::Cores => "limits.cores",
            Self::WorkSize => "filesystem.work_size",
            Self::WorkInodes => "filesystem.work_inodes",
            Self::TmpSize => "filesystem.tmp_size",
            Self::TmpInodes => "filesystem.tmp_inodes",
        }
    }

    /// Least and greatest value, in the base unit of the key. The least is what a sandbox can
    /// live under; the greatest is what the kernel takes or what nobody means. Zero is never in
    /// range: to tmpfs(5) and to many a reader it means "no limit".
    pub(super) fn range(self) -> (u64, u64) {
        const MONTH_MS: u64 = 30 * 24 * 60 * 60 * 1000;
        const PIB: u64 = 1 << 50;
        match self {
            Self::Wall | Self::Cpu => (1, MONTH_MS),
            // CPython alone takes most of this.
            Self::Memory => (16 << 20, PIB),
            // PID_MAX_LIMIT of the kernel.
            Self::Pids => (1, 1 << 22),
            // The standard streams, the worker's own descriptors and a few files; the most is the
            // kernel's default fs.nr_open.
            Self::OpenFiles => (16, 1 << 20),
            Self::FileSize | Self::Output => (1, PIB),
            // The least cpu quota is 1 ms in a period of 100 ms; 8192 is the largest NR_CPUS.
            Self::Cores => (10, 8_192_000),
            // tmpfs counts in pages.
            Self::WorkSize | Self::TmpSize => (4096, PIB),
            Self::WorkInodes | Self::TmpInodes => (16, u64::from(u32::MAX)),
        }
    }
}
