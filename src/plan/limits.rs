//! Resource limits of a worker, and the check that the host has the resources that the policy
//! promises.

use crate::host::Host;
use crate::policy::{LimitName, Limits, Policy};
use sandfork_jail::program::{Rlimit, RlimitResource};

use super::PlanError;
use super::words::{bytes, processors};

/// The stack of a main thread: the usual default of distributions. CPython's recursion limit and
/// numpy's LAPACK assume it.
const STACK_BYTES: u64 = 8 << 20;
/// Locked memory cannot be reclaimed. A few pages are enough for a library that keeps a key there.
const LOCKED_BYTES: u64 = 64 << 10;
/// POSIX message queues are kernel memory, and CPython has no module for them.
const MESSAGE_QUEUE_BYTES: u64 = 16 << 10;
/// Queued signals are kernel memory; timers and `sigqueue` use a handful.
const PENDING_SIGNALS: u64 = 1024;

/// Suppresses core dumps and core handlers. A core pattern that is a pipe ignores every limit but
/// this value (core(5), fs/coredump.c), and the handler would run as the host's root on a process
/// that a guest crashed.
const NO_CORE: u64 = 1;

fn whole_seconds(limits: &Limits) -> u64 {
    limits.cpu.as_secs() + u64::from(limits.cpu.subsec_nanos() > 0)
}

/// How processes are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ProcessCount {
    /// In the worker's own user namespace, where they are counted by nothing else.
    Own,
    /// In the worker's own user namespace, behind a cgroup that counts them too. The cgroup's limit
    /// must be reached first: it counts its refusals, which shows that the limit was really reached
    /// and not only claimed by the guest.
    OwnBehindCgroup,
    /// Over everything that the user runs, so that a tight limit would also hit other programs. The
    /// watchdog or the worker's cgroup counts the worker's own processes, and this limit is only a
    /// ceiling far above.
    WholeUser,
}

/// The limits that each worker sets.
pub(super) fn rlimits(host: &Host, limits: &Limits, count: ProcessCount) -> Vec<Rlimit> {
    let hard = host.machine.limits.hard;
    let mut rlimits = vec![
        // The kernel ends a process without a report, so its limit is one second above the
        // supervisor's. The supervisor counts the whole worker and reports the limit.
        (
            RlimitResource::Cpu,
            (whole_seconds(limits) + 1).min(hard.cpu_seconds),
        ),
        (RlimitResource::OpenFiles, u64::from(limits.open_files)),
        (RlimitResource::FileSize, limits.file_size),
        (RlimitResource::Core, NO_CORE.min(hard.core)),
        (
            RlimitResource::LockedMemory,
            LOCKED_BYTES.min(hard.locked_memory),
        ),
        (
            RlimitResource::MessageQueues,
            MESSAGE_QUEUE_BYTES.min(hard.message_queues),
        ),
        (
            RlimitResource::PendingSignals,
            PENDING_SIGNALS.min(hard.pending_signals),
        ),
        (RlimitResource::Stack, STACK_BYTES.min(hard.stack)),
    ];
    let pids = u64::from(limits.pids);
    match count {
        ProcessCount::Own => rlimits.push((RlimitResource::Processes, pids)),
        ProcessCount::OwnBehindCgroup => rlimits.push((RlimitResource::Processes, 2 * pids)),
        ProcessCount::WholeUser => {}
    }
    rlimits
        .into_iter()
        .map(|(resource, value)| Rlimit { resource, value })
        .collect()
}

/// Bytes that `RLIMIT_DATA` adds to the zygote's size: the limit, minus a reserve for the kernel's
/// own use and the session's files. If it is reached first, the guest gets a `MemoryError`; at the
/// whole limit it would be killed.
pub(super) fn data_allowance(limits: &Limits) -> u64 {
    const LEAST_RESERVE: u64 = 8 << 20;
    limits
        .memory
        .saturating_sub((limits.memory / 16).max(LEAST_RESERVE))
}

/// How many processes an ordinary user's ceiling leaves to the other workers that start while one
/// runs, including the process above each.
const OTHER_WORKERS: u64 = 1024;

/// What `RLIMIT_NPROC` adds to the number of processes on the machine, if the kernel counts all
/// processes of a user together.
pub(super) fn process_headroom(limits: &Limits, count: ProcessCount) -> Option<u64> {
    let headroom = u64::from(limits.pids) + OTHER_WORKERS;
    (count == ProcessCount::WholeUser).then_some(headroom)
}

/// The number of processors to pin a worker to, if no cpu cgroup limits its share.
pub(super) fn pin_to_cores(host: &Host, limits: &Limits) -> Option<u32> {
    let cores = limits.cores.millicores().div_ceil(1000);
    (cores < host.machine.limits.cpus).then_some(cores)
}

/// Refuses limits above what the host has.
pub(super) fn check(policy: &Policy, host: &Host) -> Result<(), PlanError> {
    let limits = policy.limits();
    let (has, hard) = (&host.machine.limits, &host.machine.limits.hard);
    let count = |wanted: u32| u64::from(wanted);
    let thousandths = |cpus: u32| u64::from(cpus) * 1000;
    let checks = [
        Check::new(LimitName::Memory, limits.memory, has.memory, "of memory"),
        Check::new(
            LimitName::Cpu,
            whole_seconds(limits),
            hard.cpu_seconds,
            "seconds",
        )
        .with_remedy(", or raise the host's hard limit (`ulimit -Ht`)"),
        Check::new(LimitName::Pids, count(limits.pids), has.pids, "processes"),
        Check::new(
            LimitName::OpenFiles,
            count(limits.open_files),
            hard.open_files,
            "open files",
        )
        .with_remedy(", or raise the host's hard limit (`ulimit -Hn`)"),
        Check::new(
            LimitName::FileSize,
            limits.file_size,
            hard.file_size,
            "file size",
        )
        .with_remedy(", or raise the host's hard limit (`ulimit -Hf`)"),
        Check::new(
            LimitName::Cores,
            u64::from(limits.cores.millicores()),
            thousandths(has.cpus),
            "processors",
        ),
    ];
    match checks
        .into_iter()
        .find(|check| check.wanted > check.available)
    {
        Some(broken) => Err(broken.into_error(policy)),
        None => Ok(()),
    }
}

struct Check {
    name: LimitName,
    wanted: u64,
    available: u64,
    of: &'static str,
    remedy: &'static str,
}

impl Check {
    fn new(name: LimitName, wanted: u64, available: u64, of: &'static str) -> Self {
        Self {
            name,
            wanted,
            available,
            of,
            remedy: "",
        }
    }

    fn with_remedy(self, remedy: &'static str) -> Self {
        Self { remedy, ..self }
    }

    fn into_error(self, policy: &Policy) -> PlanError {
        let (show, suggestion): (fn(u64) -> String, String) = match self.name {
            LimitName::Memory | LimitName::FileSize => {
                (bytes, format!("{}MiB", (self.available >> 20).max(1)))
            }
            LimitName::Cores => (processors, processors(self.available)),
            LimitName::Cpu => (|n| n.to_string(), format!("{}s", self.available)),
            _ => (|n| n.to_string(), self.available.to_string()),
        };
        let key = self.name.key();
        PlanError::QuotaAboveHost {
            origin: policy.limit_origin(self.name).clone(),
            key,
            wanted: show(self.wanted),
            available: format!("{} {}", show(self.available), self.of),
            remedy: format!("lower it (`--set {key}={suggestion}`){}", self.remedy),
        }
    }
}
