//! Resource limits (getrlimit(2)). The soft and hard values are equal, so a guest cannot raise its limits.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::sysinfo::sysinfo;
use nix::unistd::Pid;

use serde::{Deserialize, Serialize};

use crate::sys;

/// What refuses a process more memory than the limit of all processes together, before that limit ends it.
/// The amounts are bytes beyond the zygote's own size at the fork.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessMemory {
    /// `RLIMIT_DATA`, which counts what is mapped, also where nothing is touched. Where no cgroup counts
    /// memory, it is the wall.
    Mapped(u64),
    /// The interpreter's allocators, which count what is touched and refuse Python's objects more. A guest can
    /// evade them, and libraries with allocators of their own do: the cgroup is the wall.
    Touched(u64),
}

/// One resource limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Rlimit {
    /// The resource to limit.
    pub resource: RlimitResource,
    /// Soft and hard value, in the resource's unit.
    pub value: u64,
}

/// The resources that a plan limits (getrlimit(2)).
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RlimitResource {
    /// `RLIMIT_CPU`, seconds.
    Cpu,
    /// `RLIMIT_NOFILE`, descriptors.
    OpenFiles,
    /// `RLIMIT_FSIZE`, bytes.
    FileSize,
    /// `RLIMIT_NPROC`, tasks of the worker's own user namespace.
    Processes,
    /// `RLIMIT_CORE`, bytes.
    Core,
    /// `RLIMIT_MEMLOCK`, bytes.
    LockedMemory,
    /// `RLIMIT_MSGQUEUE`, bytes.
    MessageQueues,
    /// `RLIMIT_SIGPENDING`, signals.
    PendingSignals,
    /// `RLIMIT_STACK`, bytes.
    Stack,
}

/// Raises the soft limit of open files to the hard limit. The usual soft one is for programs that use select(2).
pub fn raise_open_files() -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// Sets every limit except the descriptor limit and those that the kernel counts per user.
pub fn set_all<'a>(limits: impl Iterator<Item = &'a Rlimit>) -> Result<(), Errno> {
    limits
        .filter(|limit| !is_counted_for_user(limit.resource))
        .filter(|limit| limit.resource != RlimitResource::OpenFiles)
        .try_for_each(set)
}

/// Sets the limit on descriptors, after the last one was passed to the supervisor. The kernel compares
/// this limit with all descriptors that a user has in flight in its sockets, other guests' included.
pub fn set_open_files(limits: &[Rlimit]) -> Result<(), Errno> {
    limits
        .iter()
        .filter(|limit| limit.resource == RlimitResource::OpenFiles)
        .try_for_each(set)
}

/// Sets the limits that the kernel counts per user.
///
/// They are separate because they must come after the guest's user namespace. The kernel keeps the
/// creator's limit as the ceiling of that namespace. It compares that ceiling with everything that the
/// parent's user has, which is what all tenants have together. One tenant would take the others' share.
pub fn set_counted(limits: &[Rlimit]) -> Result<(), Errno> {
    limits
        .iter()
        .filter(|limit| is_counted_for_user(limit.resource))
        .try_for_each(set)
}

fn set(limit: &Rlimit) -> Result<(), Errno> {
    setrlimit(kernel_resource(limit.resource), limit.value, limit.value)
}

/// Whether a user namespace has a ceiling for the resource (`enum rlimit_type`,
/// include/linux/user_namespace.h).
const fn is_counted_for_user(resource: RlimitResource) -> bool {
    matches!(
        resource,
        RlimitResource::Processes
            | RlimitResource::MessageQueues
            | RlimitResource::PendingSignals
            | RlimitResource::LockedMemory
    )
}

/// Limits the number of processes of the whole user to the number that the machine runs now plus
/// `headroom`.
///
/// This is for a worker without its own user namespace, whose processes the kernel counts together with
/// all others of its user. `proc` is the root of a procfs.
pub fn set_processes_beyond(proc: BorrowedFd, headroom: u64) -> Result<(), Errno> {
    let tasks = match sys::procfs::read(proc, "loadavg") {
        // A procfs with `subset=pid` has none.
        Err(Errno::ENOENT) => 0,
        found => tasks_of_machine(&found?).ok_or(Errno::EIO)?,
    };
    // A container may see its own load figures, which count too few tasks. sysinfo(2) counts all, but in
    // 16 bits.
    let tasks = tasks.max(u64::from(sysinfo()?.process_count()));
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let ceiling = tasks.saturating_add(headroom).min(hard);
    setrlimit(Resource::RLIMIT_NPROC, ceiling, ceiling)
}

/// The number of existing tasks, in field 4 of `/proc/loadavg` (proc(5)): `running/existing`.
fn tasks_of_machine(loadavg: &str) -> Option<u64> {
    let field = loadavg.split_ascii_whitespace().nth(3)?;
    field.split_once('/')?.1.parse().ok()
}

/// Limits private writable memory to what the zygote already has plus the allowance.
///
/// It sets `RLIMIT_DATA` and not `RLIMIT_AS`: address space that is only reserved (`PROT_NONE`) does not
/// count. What can be written counts whether it is touched or not.
pub fn set_data(zygote_bytes: u64, allowance: u64) -> Result<(), Errno> {
    let bytes = zygote_bytes.saturating_add(allowance);
    setrlimit(Resource::RLIMIT_DATA, bytes, bytes)
}

/// Pins the caller to `cores` of its processors, starting at number `first`.
pub fn pin(cores: u32, first: usize) -> Result<(), Errno> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let usable: Vec<usize> = (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu) == Ok(true))
        .collect();
    let mut chosen = CpuSet::new();
    for cpu in usable
        .iter()
        .cycle()
        .skip(first % usable.len().max(1))
        .take(cores as usize)
    {
        chosen.set(*cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &chosen)
}

fn kernel_resource(resource: RlimitResource) -> Resource {
    match resource {
        RlimitResource::Cpu => Resource::RLIMIT_CPU,
        RlimitResource::OpenFiles => Resource::RLIMIT_NOFILE,
        RlimitResource::FileSize => Resource::RLIMIT_FSIZE,
        RlimitResource::Processes => Resource::RLIMIT_NPROC,
        RlimitResource::Core => Resource::RLIMIT_CORE,
        RlimitResource::LockedMemory => Resource::RLIMIT_MEMLOCK,
        RlimitResource::MessageQueues => Resource::RLIMIT_MSGQUEUE,
        RlimitResource::PendingSignals => Resource::RLIMIT_SIGPENDING,
        RlimitResource::Stack => Resource::RLIMIT_STACK,
    }
}
