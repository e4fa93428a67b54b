//! Sets resource limits (getrlimit(2)). Soft and hard limit are equal, so a guest cannot raise its limits.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::sysinfo::sysinfo;
use nix::unistd::Pid;

use serde::{Deserialize, Serialize};

use crate::sys;

/// The mechanism that refuses a single process more memory before the limit of all processes together ends the worker.
/// Amounts are bytes beyond the zygote's own size at the fork.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessMemory {
    /// `RLIMIT_DATA`, which counts mapped memory, touched or not. It is the hard bound where no cgroup counts memory.
    Mapped(u64),
    /// The interpreter's allocators, which count touched memory and refuse further allocations of Python objects. A
    /// guest can evade them, and libraries with their own allocators bypass them: the cgroup is the hard bound.
    Touched(u64),
}

/// One resource limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Rlimit {
    /// The limited resource.
    pub resource: RlimitResource,
    /// The soft and hard limit, in the resource's unit.
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

/// Raises the soft limit of open files to the hard limit. The usual soft limit is low for the sake of programs that use
/// select(2).
pub fn raise_open_files() -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// Sets every limit except `RLIMIT_NOFILE` and those that the kernel counts per user.
pub fn set_all<'a>(limits: impl Iterator<Item = &'a Rlimit>) -> Result<(), Errno> {
    limits
        .filter(|limit| !is_counted_for_user(limit.resource))
        .filter(|limit| limit.resource != RlimitResource::OpenFiles)
        .try_for_each(set)
}

/// Sets `RLIMIT_NOFILE`, after the last descriptor was passed to the supervisor. On sendmsg(2) the kernel compares this
/// limit with all descriptors that the user has in flight in sockets, including those of other guests.
pub fn set_open_files(limits: &[Rlimit]) -> Result<(), Errno> {
    limits
        .iter()
        .filter(|limit| limit.resource == RlimitResource::OpenFiles)
        .try_for_each(set)
}

/// Sets the limits that the kernel counts per user.
///
/// They must be set after the guest's user namespace is created. The kernel keeps the creator's limit as the ceiling of
/// that namespace, and compares the ceiling with the usage of the parent's user, which is the usage of all tenants
/// together. If the limits were set earlier, one tenant could use up the others' share.
pub fn set_counted(limits: &[Rlimit]) -> Result<(), Errno> {
    limits
        .iter()
        .filter(|limit| is_counted_for_user(limit.resource))
        .try_for_each(set)
}

fn set(limit: &Rlimit) -> Result<(), Errno> {
    setrlimit(kernel_resource(limit.resource), limit.value, limit.value)
}

/// Returns whether a user namespace has a ceiling for the resource (`enum rlimit_type`,
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

/// Limits the number of processes of the whole user to the number of tasks on the machine plus `headroom`.
///
/// For a worker without its own user namespace, whose processes the kernel counts together with all others of its user.
/// `proc` is the root of a procfs.
pub fn set_processes_beyond(proc: BorrowedFd, headroom: u64) -> Result<(), Errno> {
    let tasks = match sys::procfs::read(proc, "loadavg") {
        // A procfs with `subset=pid` has no loadavg.
        Err(Errno::ENOENT) => 0,
        found => tasks_of_machine(&found?).ok_or(Errno::EIO)?,
    };
    // A container may see its own load figures, which count too few tasks. sysinfo(2) counts all tasks, but in 16 bits.
    let tasks = tasks.max(u64::from(sysinfo()?.process_count()));
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let ceiling = tasks.saturating_add(headroom).min(hard);
    setrlimit(Resource::RLIMIT_NPROC, ceiling, ceiling)
}

/// Parses the number of existing tasks from field 4 of `/proc/loadavg` (proc(5)): `running/existing`.
fn tasks_of_machine(loadavg: &str) -> Option<u64> {
    let field = loadavg.split_ascii_whitespace().nth(3)?;
    field.split_once('/')?.1.parse().ok()
}

/// Limits private writable memory to the zygote's plus `allowance`.
///
/// Sets `RLIMIT_DATA` and not `RLIMIT_AS`, so that reserved address space (`PROT_NONE`) does not count. Writable memory
/// counts whether it is touched or not.
pub fn set_data(zygote_bytes: u64, allowance: u64) -> Result<(), Errno> {
    let bytes = zygote_bytes.saturating_add(allowance);
    setrlimit(Resource::RLIMIT_DATA, bytes, bytes)
}

/// Pins the caller to `cores` of its allowed processors, starting at index `first` and wrapping around.
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
