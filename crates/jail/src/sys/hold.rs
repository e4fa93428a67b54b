//! Holds a task of another process still from outside (ptrace(2)).
//!
//! A stop signal would not do: a task may arrange that another one, or a timer, continues it. A task that
//! is held by a tracer runs no code of its own until the tracer releases it. All calls for one task have
//! to come from the same thread.

use nix::errno::Errno;
use nix::unistd::Pid;

use super::check;

/// What happened to a task that is being held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The task stands still. It was about to receive this signal, or 0.
    Stopped(libc::c_int),
    /// The task has ended.
    Ended,
}

/// Begins to hold a task, which dies with the thread that holds it. It runs on until [`interrupt`]. What it
/// starts from now on is held too, before its first instruction.
pub fn seize(task: Pid) -> Result<(), Errno> {
    let started = libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
    request(libc::PTRACE_SEIZE, task, libc::PTRACE_O_EXITKILL | started)
}

/// Stops a task before its next instruction outside of the kernel.
pub fn interrupt(task: Pid) -> Result<(), Errno> {
    request(libc::PTRACE_INTERRUPT, task, 0)
}

/// Lets a task that stands still go on with a signal, or with 0: `ESRCH` while it does not stand still.
pub fn release(task: Pid, signal: libc::c_int) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, task, signal)
}

/// What happened to one of the tasks that this thread holds, if anything did since the last call.
pub fn event() -> Option<(Pid, Event)> {
    let flags = libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG;
    let mut status = 0;
    // SAFETY: the pointer is to a live local of the right type. The flags leave the children of other
    // threads alone.
    let found = unsafe { libc::waitpid(-1, &raw mut status, flags) };
    if found <= 0 {
        return None;
    }
    // Only a stop before a signal is no event of ptrace(2); the signal has not been delivered yet.
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
    // SAFETY: integers only: none of the requests above reads or writes memory of this process.
    check(unsafe { libc::ptrace(request, task.as_raw(), address, data) })?;
    Ok(())
}
