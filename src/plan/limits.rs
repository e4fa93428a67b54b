//! Computes the resource limits of a worker, and checks that the host has the resources that the policy grants.

use crate::host::{Controller, Host, Machine};
use crate::outcome::{LimitName, Limits, Unit};
use crate::policy::{Policy, ProcVisibility};
use sandfork_jail::program::{ProcessMemory, Rlimit, RlimitResource};

use super::cgroup::CgroupPlan;
use super::words::amount;
use crate::error::Error;

/// The stack size of the main thread: the usual default of distributions, which CPython's recursion limit and
/// numpy's LAPACK assume.
const STACK_BYTES: u64 = 8 << 20;
/// The limit on locked memory, which the kernel cannot reclaim. A few pages suffice for a library that locks a key.
const LOCKED_BYTES: u64 = 64 << 10;
/// The limit on POSIX message queues, which take kernel memory. CPython has no module for them.
const MESSAGE_QUEUE_BYTES: u64 = 16 << 10;
/// The limit on queued signals, which take kernel memory. Timers and `sigqueue` need a handful.
const PENDING_SIGNALS: u64 = 1024;

/// The limit that suppresses core dumps and core handlers. If the core pattern is a pipe, the kernel ignores
/// every limit but this value (core(5), fs/coredump.c), and the handler would run as root on the host for a
/// process that a guest crashed.
const NO_CORE: u64 = 1;

/// The scope of `RLIMIT_NPROC`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ProcessCount {
    /// The processes in the worker's own user namespace. Nothing else counts them.
    Own,
    /// The processes in the worker's own user namespace, which a cgroup counts too. The cgroup's limit must be
    /// reached first: the cgroup counts its refusals, which proves that the limit was reached and not only
    /// claimed by the guest.
    OwnBehindCgroup,
    /// All processes of the user, so that a tight limit would also affect other programs. The watchdog or the
    /// worker's cgroup counts the worker's processes, and this limit is only a ceiling far above.
    WholeUser,
}

/// Returns the limits that each worker sets.
pub(super) fn rlimits(host: &Host, limits: &Limits, count: ProcessCount) -> Vec<Rlimit> {
    let hard = host.machine.limits.hard;
    let whole_seconds = limits.amount(LimitName::Cpu).div_ceil(1000);
    let mut rlimits = vec![
        // The kernel kills a process without a report, so this limit is one second above that of the
        // supervisor, which counts the whole worker and reports the limit.
        (
            RlimitResource::Cpu,
            (whole_seconds + 1).min(hard.cpu_seconds),
        ),
        (RlimitResource::OpenFiles, limits.open_files()),
        (RlimitResource::FileSize, limits.file_size()),
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
    let pids = limits.pids();
    match count {
        ProcessCount::Own => rlimits.push((RlimitResource::Processes, pids)),
        // The plan has checked that `pids` is at most the host's limit.
        ProcessCount::OwnBehindCgroup => {
            let most = (2 * pids).min(host.machine.limits.pids);
            rlimits.push((RlimitResource::Processes, most));
        }
        ProcessCount::WholeUser => {}
    }
    rlimits
        .into_iter()
        .map(|(resource, value)| Rlimit { resource, value })
        .collect()
}

/// Returns how the memory of a process is counted ([`Limits::memory_allowance`]).
///
/// Libraries map much more memory than they touch (torch, mimalloc, thread stacks), so touched memory is counted if
/// possible. Mapped memory is counted without a cgroup, or without the `/proc` in which a process measures itself.
pub(super) fn process_memory(policy: &Policy, cgroup: Option<&CgroupPlan>) -> ProcessMemory {
    let allowance = policy.limits.memory_allowance();
    let is_counted = cgroup.is_some_and(|plan| plan.limits_by(Controller::Memory));
    if is_counted && policy.filesystem.proc == ProcVisibility::Own {
        ProcessMemory::Touched(allowance)
    } else {
        ProcessMemory::Mapped(allowance)
    }
}

/// The number of processes that an ordinary user's ceiling reserves for workers that start later, including the
/// process above each (its init or its reaper).
const OTHER_WORKERS: u64 = 1024;

/// Returns the amount by which `RLIMIT_NPROC` exceeds the number of processes on the machine, if the kernel counts
/// all processes of a user together.
pub(super) fn process_headroom(limits: &Limits, count: ProcessCount) -> Option<u64> {
    let headroom = limits.pids() + OTHER_WORKERS;
    (count == ProcessCount::WholeUser).then_some(headroom)
}

/// Returns the number of processors to pin a worker to if no cpu controller limits it.
pub(super) fn pin_to_cores(host: &Host, limits: &Limits) -> Option<u32> {
    let cores = limits.processors();
    (cores < host.machine.limits.cpus).then_some(cores)
}

/// Returns an error for each limit that exceeds the host's resources.
pub(super) fn refused(policy: &Policy, machine: &Machine) -> impl Iterator<Item = Error> {
    LimitName::ALL.into_iter().filter_map(|name| {
        let wanted = policy.limits.amount(name);
        let (most, or) = available(machine, name).filter(|(most, _)| wanted > *most)?;
        let (key, unit) = (name.key(), name.spec().unit);
        let lower = match most {
            // Whole MiB are easier to read than bytes.
            MIB.. if unit == Unit::Size => most - most % MIB,
            _ => most,
        };
        Some(Error::host(format!(
            "{}`{key}` is {}, more than this host's {} {}: lower it (`--set {key}={}`){or}",
            policy.limit_origin(name).lead(),
            amount(unit, wanted),
            amount(unit, most),
            name.spec().noun,
            unit.text(lower)
        )))
    })
}

const MIB: u64 = 1 << 20;

/// Returns the amount of a resource on the host, and the alternative to lowering the limit.
fn available(machine: &Machine, name: LimitName) -> Option<(u64, &'static str)> {
    let (has, hard) = (&machine.limits, &machine.limits.hard);
    match name {
        LimitName::Cpu => Some((
            hard.cpu_seconds.saturating_mul(1000),
            ", or raise the host's hard limit (`ulimit -Ht`)",
        )),
        LimitName::Memory => Some((has.memory, "")),
        LimitName::Pids => Some((has.pids, "")),
        LimitName::OpenFiles => Some((
            hard.open_files,
            ", or raise the host's hard limit (`ulimit -Hn`)",
        )),
        LimitName::FileSize => Some((
            hard.file_size,
            ", or raise the host's hard limit (`ulimit -Hf`)",
        )),
        LimitName::Cores => Some((u64::from(has.cpus) * 1000, "")),
        _ => None,
    }
}
