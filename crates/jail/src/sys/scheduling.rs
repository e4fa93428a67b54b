//! Reads and sets the scheduling priority of the calling thread: policy, nice value and I/O class (sched(7),
//! setpriority(2), ioprio_set(2)).

use nix::errno::Errno;

use super::check;

/// A scheduling policy, without the flag `SCHED_RESET_ON_FORK`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy(libc::c_int);

impl Policy {
    /// The default policy.
    pub const OTHER: Self = Self(libc::SCHED_OTHER);

    /// Returns whether threads with this policy run before all threads without a real-time policy.
    pub fn is_real_time(self) -> bool {
        [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE].contains(&self.0)
    }
}

/// Returns the caller's scheduling policy.
pub fn policy() -> Result<Policy, Errno> {
    // SAFETY: integer arguments only; 0 is the caller.
    let policy = check(libc::c_long::from(unsafe { libc::sched_getscheduler(0) }))?;
    let policy = libc::c_int::try_from(policy).map_err(|_| Errno::EINVAL)?;
    Ok(Policy(policy & !libc::SCHED_RESET_ON_FORK))
}

/// Sets a scheduling policy that has no static priority.
pub fn set_policy(Policy(policy): Policy) -> Result<(), Errno> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live local of the right type.
    let set = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    check(libc::c_long::from(set)).map(drop)
}

/// Returns the caller's nice value: -20 is the highest priority, 19 the lowest.
pub fn nice() -> Result<libc::c_long, Errno> {
    // The raw system call returns 1 to 40, without the negative values of the C library's wrapper.
    // SAFETY: integer arguments only; 0 is the caller.
    let preference = check(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) })?;
    Ok(20 - preference)
}

/// Sets the caller's nice value.
pub fn set_nice(nice: libc::c_int) -> Result<(), Errno> {
    // SAFETY: integer arguments only; 0 is the caller.
    let set = unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice) };
    check(set).map(drop)
}

/// `IOPRIO_WHO_PROCESS`, `IOPRIO_CLASS_RT` and `IOPRIO_CLASS_SHIFT` of linux/ioprio.h.
const PROCESS: libc::c_int = 1;
const REAL_TIME: libc::c_long = 1;
const CLASS_SHIFT: u32 = 13;

/// Returns whether the caller's I/O is served before that of ordinary processes.
pub fn is_real_time_io() -> Result<bool, Errno> {
    // SAFETY: integer arguments only; 0 is the caller.
    let priority = check(unsafe { libc::syscall(libc::SYS_ioprio_get, PROCESS, 0) })?;
    Ok(priority >> CLASS_SHIFT == REAL_TIME)
}

/// Resets the caller's I/O class, so that its nice value determines its I/O priority.
pub fn set_ordinary_io() -> Result<(), Errno> {
    // SAFETY: integer arguments only; 0 is the caller, and then `IOPRIO_CLASS_NONE`.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, PROCESS, 0, 0) }).map(drop)
}
