//! Resource limits (getrlimit(2)), soft and hard alike: a guest cannot raise what it was given.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::sysinfo::sysinfo;
use nix::unistd::Pid;

use super::program::{Rlimit, RlimitResource};
use crate::sys;

/// Raises the soft limit of open files to the hard one.
pub fn raise_open_files() -> Result<(), Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// Sets every limit but those on what the kernel counts for a user.
pub fn set_all<'a>(limits: impl Iterator<Item = &'a Rlimit>) -> Result<(), Errno> {
    limits
        .filter(|limit| !is_counted_for_user(limit.resource))
        .try_for_each(set)
}

/// Sets those.
///
/// Apart from the others because they must come after the guest's user namespace: the kernel keeps,
/// as that namespace's ceiling, the limit that its maker had, and holds what the parent's user has in
/// all against it, which is every tenant's. One would take the others' share.
pub fn set_counted(limits: &[Rlimit]) -> Result<(), Errno> {
    limits
        .iter()
        .filter(|limit| is_counted_for_user(limit.resource))
        .try_for_each(set)
}

fn set(limit: &Rlimit) -> Result<(), Errno> {
    setrlimit(kernel_resource(limit.resource), limit.value, limit.value)
}

/// What a user namespace has a ceiling of (`enum rlimit_type`, include/linux/user_namespace.h).
const fn is_counted_for_user(resource: RlimitResource) -> bool {
    matches!(
        resource,
        RlimitResource::Processes
            | RlimitResource::MessageQueues
            | RlimitResource::PendingSignals
            | RlimitResource::LockedMemory
    )
}

/// Limits the number of processes of the whole user to what the machine runs now and `headroom`.
///
/// For a worker without a user namespace of its own, whose processes the kernel counts together
/// with all others of its user. `proc` is the root of a procfs.
pub fn set_processes_beyond(proc: BorrowedFd, headroom: u64) -> Result<(), Errno> {
    let tasks = tasks_of_machine(&sys::procfs::read(proc, "loadavg")?).ok_or(Errno::EIO)?;
    // A container may be shown a load of its own, which counts too few; this call counts all, but
    // in 16 bits.
    let tasks = tasks.max(u64::from(sysinfo()?.process_count()));
    let (_, hard) = getrlimit(Resource::RLIMIT_NPROC)?;
    let ceiling = tasks.saturating_add(headroom).min(hard);
    setrlimit(Resource::RLIMIT_NPROC, ceiling, ceiling)
}

/// Existing tasks, in field 4 of `/proc/loadavg` (proc(5)): `running/existing`.
fn tasks_of_machine(loadavg: &str) -> Option<u64> {
    let field = loadavg.split_ascii_whitespace().nth(3)?;
    field.split_once('/')?.1.parse().ok()
}

/// Limits private writable memory: what the zygote already has, and the allowance.
///
/// `RLIMIT_DATA` and not `RLIMIT_AS`: address space that is only reserved (numpy's and Go's
/// arenas, thread stacks) does not count, what can be written does.
pub fn set_data(zygote_bytes: u64, allowance: u64) -> Result<(), Errno> {
    let bytes = zygote_bytes.saturating_add(allowance);
    setrlimit(Resource::RLIMIT_DATA, bytes, bytes)
}

/// Pins the caller to `cores` of its processors, starting at the `first`th.
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
