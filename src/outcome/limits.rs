//! The table of limits. Each row defines a limit's policy key, range, JSON Schema, line in `sandfork plan` and message,
//! and whether `--set` and requests may override it.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use super::Status;

/// Thirty days in milliseconds, more than any run needs.
const MONTH: u64 = 30 * 24 * 60 * 60 * 1000;
/// One pebibyte in bytes, more than any host has.
const PIB: u64 = 1 << 50;

/// The unit of a limit. Amounts are whole numbers of the unit that the variant names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Milliseconds. A policy file writes `"2s"`.
    Duration,
    /// Bytes. A policy file writes `"256MiB"`.
    Size,
    /// A plain count.
    Count,
    /// Thousandths of a processor. A policy file writes `0.5`.
    Cores,
}

/// The scope of a limit, which decides who enforces it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// One run. The supervisor enforces the limit, so a request may lower it.
    Run,
    /// All processes of a worker together. A cgroup enforces the limit, or else the supervisor.
    Worker,
    /// Each process, or a file system. The jail enforces the limit.
    Jail,
    /// The network of a worker. The egress process enforces the limit by closing connections; the run continues.
    Network,
    /// The snapshots of a session. The supervisor enforces the limit by refusing snapshots.
    Snapshot,
}

/// The properties of a limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitSpec {
    /// The dotted key in a policy file.
    pub key: &'static str,
    /// The unit of the amounts.
    pub unit: Unit,
    /// The minimum and the maximum. The minimum is the least that a sandbox can run under. The maximum is
    /// the most that the kernel accepts, or more than any user means. Zero is never in range, because
    /// tmpfs(5) and many readers take it for "no limit".
    pub range: RangeInclusive<u64>,
    /// What the limit applies to.
    pub scope: Scope,
    /// The status of a run that reaches the limit.
    pub status: Status,
    /// The label in `sandfork plan`. Empty for a quota, which the line of its directory shows.
    pub label: &'static str,
    /// The words after the amount in a message: "its limit of 512MiB of memory".
    pub noun: &'static str,
    /// A one-sentence description.
    pub about: &'static str,
}

/// Declares the limits, with their properties and the accessors of their amounts.
macro_rules! limits {
    ($(
        #[doc = $about:literal]
        $Name:ident, $get:ident: $Unit:ident, $key:literal, $range:expr, $Scope:ident, $Status:ident, $label:literal, $noun:literal;
    )+) => {
        /// The name of a limit or quota. In JSON, its policy key.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
        pub enum LimitName {
            $(#[doc = $about] #[serde(rename = $key)] $Name,)+
        }

        const SPECS: &[LimitSpec] = &[$(LimitSpec {
            key: $key,
            unit: Unit::$Unit,
            range: $range,
            scope: Scope::$Scope,
            status: Status::$Status,
            label: $label,
            noun: $noun,
            about: $about.trim_ascii_start(),
        },)+];

        impl LimitName {
            /// Every limit, in the order of a policy file.
            pub const ALL: [Self; SPECS.len()] = [$(Self::$Name),+];
        }

        impl Limits {
            $(
                #[doc = $about]
                pub fn $get(&self) -> amount_type!($Unit) {
                    amount_type!($Unit, self.amount(LimitName::$Name))
                }
            )+
        }
    };
}

/// Expands to the type of an amount, or converts a `u64` to that type.
macro_rules! amount_type {
    (Duration) => {
        Duration
    };
    (Duration, $amount:expr) => {
        Duration::from_millis($amount)
    };
    ($Unit:ident) => {
        u64
    };
    ($Unit:ident, $amount:expr) => {
        $amount
    };
}

limits! {
    // name, accessor: unit, key, range, scope, status, label in `sandfork plan`, noun in messages

    /// Wall time of each cell or run.
    Wall, wall: Duration, "limits.wall", 1..=MONTH, Run, Timeout, "wall time", "on the clock";

    /// CPU time of all threads and processes together.
    // The cgroup (`cpuacct`, `cpu.stat`) counts it, or the supervisor from `/proc`. `RLIMIT_CPU` additionally limits
    // each process.
    Cpu, cpu: Duration, "limits.cpu", 1..=MONTH, Run, CpuLimit, "processor time", "of processor time";

    /// Memory of all processes together, including their files in `/work` and `/tmp`.
    // The memory controller of cgroups(7) enforces it; the interpreter's allocators fail shortly before. Without that
    // controller, `RLIMIT_DATA` limits each process (getrlimit(2)) and the watchdog limits the sum over all processes,
    // excluding the session's files, which have separate quotas. CPython alone needs most of the minimum.
    Memory, memory: Size, "limits.memory", 16 << 20..=PIB, Worker, MemoryLimit, "memory", "of memory";

    /// Number of processes and threads at once.
    // The pids controller of cgroups(7) enforces it, or else `RLIMIT_NPROC` in the worker's user namespace. The
    // maximum is the kernel's PID_MAX_LIMIT.
    Pids, pids: Count, "limits.pids", 1..=1 << 22, Worker, PidsLimit, "processes", "processes and threads";

    /// Number of open file descriptors of each process.
    // `RLIMIT_NOFILE`. The minimum covers the standard streams, the worker's own descriptors and a few files. The
    // maximum is the kernel's default fs.nr_open.
    OpenFiles, open_files: Count, "limits.open_files", 16..=1 << 20, Jail, FileLimit, "open files", "open files in one process";

    /// Size of any one file.
    // `RLIMIT_FSIZE`.
    FileSize, file_size: Size, "limits.file_size", 1..=PIB, Jail, FileLimit, "largest file", "for one file";

    /// Size of standard output and standard error together.
    // The supervisor counts the bytes as it reads them.
    Output, output: Size, "limits.output", 1..=PIB, Run, OutputLimit, "output", "of output";

    /// Share of the processors: 0.5 is half of one processor, 2 is two.
    // The cpu controller of cgroups(7) enforces it. Without that controller, the worker is pinned to that many whole
    // processors, rounded up (sched_setaffinity(2)). A share ends no run: slowed work reaches its time limit.
    // The smallest quota is 1 ms in a period of 100 ms; 8192 is the largest NR_CPUS.
    Cores, millicores: Cores, "limits.cores", 10..=8_192_000, Worker, Timeout, "processors", "processors";

    /// Size of the session's private `/work`.
    // tmpfs(5) counts in pages.
    WorkSize, work_size: Size, "filesystem.work_size", 4096..=PIB, Jail, FileLimit, "", "in /work";

    /// Number of files and directories in the session's private `/work`.
    WorkInodes, work_inodes: Count, "filesystem.work_inodes", 16..=4_294_967_295, Jail, FileLimit, "", "files in /work";

    /// Size of the session's private `/tmp`.
    TmpSize, tmp_size: Size, "filesystem.tmp_size", 4096..=PIB, Jail, FileLimit, "", "in each of /tmp and /dev/shm";

    /// Number of files and directories in the session's private `/tmp`.
    TmpInodes, tmp_inodes: Count, "filesystem.tmp_inodes", 16..=4_294_967_295, Jail, FileLimit, "", "files in each of /tmp and /dev/shm";

    /// Number of a session's connections to other hosts at once.
    // Each connection takes descriptors and memory of the egress process, and ports of the host.
    Connections, connections: Count, "network.connections", 1..=4096, Network, Timeout, "", "connections at once";

    /// Bytes that a session sends to other hosts and receives from them, together.
    NetworkBytes, network_bytes: Size, "network.bytes", 1..=PIB, Network, Timeout, "", "of traffic";

    /// Number of a session's snapshots at once.
    Snapshots, snapshots: Count, "session.snapshots", 1..=4096, Snapshot, Timeout, "", "snapshots at once";

    /// Memory of all snapshots of a session together.
    // The images are files in memory that belong to the supervisor, so no limit of the worker counts them.
    SnapshotBytes, snapshot_bytes: Size, "session.snapshot_bytes", 1 << 20..=PIB, Snapshot, Timeout, "", "of snapshots";
}

impl LimitName {
    /// Returns the row of the table.
    pub(crate) const fn spec(self) -> &'static LimitSpec {
        &SPECS[self as usize]
    }

    /// Returns the dotted key in a policy file.
    pub const fn key(self) -> &'static str {
        self.spec().key
    }
}

/// The rule for the CPU limit of a cell that sets its own wall time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CpuRule {
    /// The policy's limit applies, because the user set it.
    #[default]
    OfPolicy,
    /// The limit rises with the cell's wall time, so that all its processors can compute for all of that time.
    FollowsWall,
}

/// The amounts of all limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits([u64; SPECS.len()]);

impl Limits {
    /// Creates limits with the amount that the function returns for each name.
    pub fn new(amount: impl FnMut(LimitName) -> u64) -> Self {
        Self(LimitName::ALL.map(amount))
    }

    /// Returns the number of processors that a guest sees: `limits.cores`, rounded up.
    pub(crate) fn processors(&self) -> u32 {
        u32::try_from(self.millicores().div_ceil(1000)).unwrap_or(u32::MAX)
    }

    /// Returns the memory that one process may use beyond the zygote's size, in bytes: the limit, minus a reserve for
    /// the kernel and for the session's files. A guest that reaches this amount gets a `MemoryError`; at the whole
    /// limit it would be killed.
    pub(crate) fn memory_allowance(&self) -> u64 {
        const LEAST_RESERVE: u64 = 8 << 20;
        let memory = self.memory();
        memory.saturating_sub((memory / 16).max(LEAST_RESERVE))
    }

    /// Returns a limit as messages name it: `512MiB of memory`.
    pub(crate) fn named(&self, name: LimitName) -> String {
        format!("{} {}", self.text(name), name.spec().noun)
    }

    /// Returns the CPU limit for a cell with this wall time.
    ///
    /// With [`CpuRule::FollowsWall`], every processor of the policy may compute for the whole wall time.
    pub(crate) fn cpu_within(&self, wall: Duration, rule: CpuRule) -> Duration {
        match rule {
            CpuRule::OfPolicy => self.cpu(),
            CpuRule::FollowsWall => {
                let longest = Duration::from_millis(MONTH);
                self.cpu()
                    .max(wall.saturating_mul(self.processors()).min(longest))
            }
        }
    }

    /// Replaces a time limit.
    pub(crate) fn with_time(mut self, name: LimitName, time: Duration) -> Self {
        self.0[name as usize] = u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(MONTH);
        self
    }

    /// Returns the amount of one limit, in the base of its unit.
    pub const fn amount(&self, name: LimitName) -> u64 {
        self.0[name as usize]
    }
}
