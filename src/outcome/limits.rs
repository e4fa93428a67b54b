//! The table of limits. The key of a policy file, `--set`, the JSON Schema, the range, what a request may
//! override, the line in `sandfork plan` and the sentence at the limit all follow from its row here.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use super::Status;

/// Thirty days, more than any run needs.
const MONTH: u64 = 30 * 24 * 60 * 60 * 1000;
/// More than any host has.
const PIB: u64 = 1 << 50;

/// The unit of a limit. An amount is a whole number of its base.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Milliseconds. A policy file writes `"2s"`.
    Duration,
    /// Bytes. A policy file writes `"256MiB"`.
    Size,
    /// A number of things.
    Count,
    /// Thousandths of a processor. A policy file writes `0.5`.
    Cores,
}

/// What a limit applies to, which decides what enforces it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// One run. The supervisor enforces it, so a request may ask for less.
    Run,
    /// All processes of a worker together. The supervisor enforces it where no cgroup does.
    Worker,
    /// Each process, or a file system. The jail enforces it.
    Jail,
    /// The network of a worker. The egress process enforces it, and ends connections but no run.
    Network,
    /// The snapshots of a session. The supervisor enforces it, and refuses a snapshot.
    Snapshot,
}

/// The properties of a limit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LimitSpec {
    /// The dotted key in a policy file.
    pub key: &'static str,
    /// The unit of its amounts.
    pub unit: Unit,
    /// The minimum and the maximum. The minimum is the least that a sandbox can run under. The maximum is
    /// the most that the kernel accepts, or more than any user means. Zero is never in range, because to
    /// tmpfs(5) and to many readers it means "no limit".
    pub range: RangeInclusive<u64>,
    /// What it applies to.
    pub scope: Scope,
    /// The status of a run that reaches it.
    pub status: Status,
    /// Its name in `sandfork plan`. A quota has none: its directory's line shows it.
    pub label: &'static str,
    /// What follows the amount in a sentence: "its limit of 512MiB of memory".
    pub noun: &'static str,
    /// Its description, in a sentence.
    pub about: &'static str,
}

/// Declares the names, their properties and the accessors of the amounts.
macro_rules! limits {
    ($(
        #[doc = $about:literal]
        $Name:ident, $get:ident: $Unit:ident, $key:literal, $range:expr, $Scope:ident, $Status:ident, $label:literal, $noun:literal;
    )+) => {
        /// A limit or quota, by name. In JSON, its key in a policy file.
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

/// The type of an amount, and the conversion to it.
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
    // name, accessor: unit, key, range, scope, status, label in `sandfork plan`, noun at the limit

    /// Wall time of each cell or run.
    Wall, wall: Duration, "limits.wall", 1..=MONTH, Run, Timeout, "wall time", "on the clock";

    /// Processor time of all threads and processes together.
    // The cgroup (`cpuacct`, `cpu.stat`) or the supervisor, from `/proc`, counts it. `RLIMIT_CPU` additionally
    // limits each process.
    Cpu, cpu: Duration, "limits.cpu", 1..=MONTH, Run, CpuLimit, "processor time", "of processor time";

    /// Memory of all processes together, their files in `/work` and `/tmp` included.
    // The memory controller of cgroups(7) limits it, and shortly before that the interpreter's allocators refuse
    // objects. Without it, `RLIMIT_DATA` limits each process (getrlimit(2)), and the watchdog limits the sum over all
    // of them, without the session's files, which have quotas of their own. CPython alone needs most of the minimum.
    Memory, memory: Size, "limits.memory", 16 << 20..=PIB, Worker, MemoryLimit, "memory", "of memory";

    /// Processes and threads at once.
    // The pids controller of cgroups(7) limits them, else `RLIMIT_NPROC` in the worker's own user namespace. The
    // maximum is the kernel's PID_MAX_LIMIT.
    Pids, pids: Count, "limits.pids", 1..=1 << 22, Worker, PidsLimit, "processes", "processes and threads";

    /// Open file descriptors of each process.
    // `RLIMIT_NOFILE`. The minimum covers the standard streams, the worker's own descriptors and a few files. The
    // maximum is the kernel's default fs.nr_open.
    OpenFiles, open_files: Count, "limits.open_files", 16..=1 << 20, Jail, FileLimit, "open files", "open files in one process";

    /// Size of any one file.
    // `RLIMIT_FSIZE`.
    FileSize, file_size: Size, "limits.file_size", 1..=PIB, Jail, FileLimit, "largest file", "for one file";

    /// Standard output and standard error together.
    // The supervisor counts them as it reads them.
    Output, output: Size, "limits.output", 1..=PIB, Run, OutputLimit, "output", "of output";

    /// Share of the processors: 0.5 is half of one processor, 2 is two.
    // The cpu controller of cgroups(7) limits it. Without it, the worker is pinned to that many whole processors,
    // rounded up (sched_setaffinity(2)). A share ends nothing by itself: the work that it slows runs out of time.
    // The smallest quota is 1 ms in a period of 100 ms; 8192 is the largest NR_CPUS.
    Cores, millicores: Cores, "limits.cores", 10..=8_192_000, Worker, Timeout, "processors", "processors";

    /// Size of the session's private `/work`.
    // tmpfs(5) counts in pages.
    WorkSize, work_size: Size, "filesystem.work_size", 4096..=PIB, Jail, FileLimit, "", "in /work";

    /// Files and directories in the session's private `/work`.
    WorkInodes, work_inodes: Count, "filesystem.work_inodes", 16..=4_294_967_295, Jail, FileLimit, "", "files in /work";

    /// Size of the session's private `/tmp`.
    TmpSize, tmp_size: Size, "filesystem.tmp_size", 4096..=PIB, Jail, FileLimit, "", "in each of /tmp and /dev/shm";

    /// Files and directories in the session's private `/tmp`.
    TmpInodes, tmp_inodes: Count, "filesystem.tmp_inodes", 16..=4_294_967_295, Jail, FileLimit, "", "files in each of /tmp and /dev/shm";

    /// Connections of a session to other hosts at once.
    // Each takes descriptors and memory of the egress process, and ports of the host.
    Connections, connections: Count, "network.connections", 1..=4096, Network, Timeout, "", "connections at once";

    /// What a session sends to other hosts and receives from them, together.
    NetworkBytes, network_bytes: Size, "network.bytes", 1..=PIB, Network, Timeout, "", "of traffic";

    /// Snapshots of a session at once.
    Snapshots, snapshots: Count, "session.snapshots", 1..=4096, Snapshot, Timeout, "", "snapshots at once";

    /// Memory of a session's snapshots together.
    // The images are files in memory. They are the supervisor's, so that no limit of a worker counts them.
    SnapshotBytes, snapshot_bytes: Size, "session.snapshot_bytes", 1 << 20..=PIB, Snapshot, Timeout, "", "of snapshots";
}

impl LimitName {
    /// Its row in the table.
    pub(crate) const fn spec(self) -> &'static LimitSpec {
        &SPECS[self as usize]
    }

    /// The dotted key in a policy file.
    pub const fn key(self) -> &'static str {
        self.spec().key
    }
}

/// What the limit on processor time is of a cell that has a wall time of its own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum CpuRule {
    /// The policy's: the user has set it.
    #[default]
    OfPolicy,
    /// What the cell's wall time has room for, if that is more than the policy's.
    FollowsWall,
}

/// The amount of each limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits([u64; SPECS.len()]);

impl Limits {
    /// Limits with these amounts.
    pub fn new(amount: impl FnMut(LimitName) -> u64) -> Self {
        Self(LimitName::ALL.map(amount))
    }

    /// The processors that a guest sees: `limits.cores`, rounded up.
    pub(crate) fn processors(&self) -> u32 {
        u32::try_from(self.millicores().div_ceil(1000)).unwrap_or(u32::MAX)
    }

    /// What one process may have beyond the zygote's size, bytes: the limit, minus a reserve for the kernel's own use
    /// and the session's files. If it is reached first, the guest gets a `MemoryError`; at the whole limit it would be
    /// killed.
    pub(crate) fn memory_allowance(&self) -> u64 {
        const LEAST_RESERVE: u64 = 8 << 20;
        let memory = self.memory();
        memory.saturating_sub((memory / 16).max(LEAST_RESERVE))
    }

    /// A limit as sentences name it: `512MiB of memory`.
    pub(crate) fn named(&self, name: LimitName) -> String {
        format!("{} {}", self.text(name), name.spec().noun)
    }

    /// The processor time for a cell with this wall time.
    ///
    /// A limit that follows the wall time lets every processor of the policy compute for all of it.
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

    /// The same limits, with another one on time.
    pub(crate) fn with_time(mut self, name: LimitName, time: Duration) -> Self {
        self.0[name as usize] = u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(MONTH);
        self
    }

    /// The amount of one limit, in the base of its unit.
    pub const fn amount(&self, name: LimitName) -> u64 {
        self.0[name as usize]
    }
}
