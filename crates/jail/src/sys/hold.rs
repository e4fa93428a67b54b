//! Stops a task of another process from outside (ptrace(2)).
//!
//! A stop signal does not suffice: the task may arrange for another task or a timer to continue it. A ptrace-stopped
//! task runs no user code until the tracer releases it. All calls for one task must come from the same thread.

use nix::errno::Errno;
use nix::unistd::Pid;

use super::check;

/// A change in the state of a traced task.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The task has stopped. Contains the signal that it was about to receive, or 0.
    Stopped(libc::c_int),
    /// The task has ended.
    Ended,
}

/// Attaches to a task, which dies with the calling thread (`PTRACE_O_EXITKILL`). The task keeps running until
/// [`interrupt`]. Its later children and threads are traced too, from before their first instruction.
pub fn seize(task: Pid) -> Result<(), Errno> {
    let started = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    request(libc::PTRACE_SEIZE, task, libc::PTRACE_O_EXITKILL | started)
}

/// Stops a task before its next instruction in user mode.
pub fn interrupt(task: Pid) -> Result<(), Errno> {
    request(libc::PTRACE_INTERRUPT, task, 0)
}

/// Detaches from a stopped task and delivers `signal` to it, or none if 0. `ESRCH` if the task is not stopped.
pub fn release(task: Pid, signal: libc::c_int) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, task, signal)
}

/// Returns a pending event of one of the tasks that this thread traces, if there is one.
pub fn event() -> Option<(Pid, Event)> {
    let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    let mut status = 0;
    // SAFETY: the pointer is to a live local of the right type. The flags exclude the children of other threads.
    let found = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    if found <= 0 {
        return None;
    }
    // A signal-delivery stop has no ptrace event in its status; the signal has not been delivered yet.
    let is_before_signal = status >> 16 == 0;
    let event = if libc::WIFSTOPPED(status) {
        Event::Stopped(libc::WSTOPSIG(status) * libc::c_int::from(is_before_signal))
    } else {
        Event::Ended
    };
    Some((Pid::from_raw(found), event))
}

fn request(request: libc::c_uint, task: Pid, data: libc::c_int) -> Result<(), Errno> {
    let (address, data) = (0_usize, libc::c_long::from(data));
    // SAFETY: integer arguments only. None of the requests above accesses memory of this process.
    check(unsafe { libc::ptrace(request, task.as_raw(), address, data) })?;
    Ok(())
}
