//! The signals that a guest sends its own processes where the kernel cannot tell them from others of the user: at level
//! `landlock` before Linux 6.12, whose Landlock has no scope of signals.
//!
//! **Itself.** The kernel continues a call in which a process signals itself (seccomp_unotify(2)): a process that is in
//! the call keeps its number.
//!
//! **Another process.** The worker's filter lets no process leave the process group of the worker, and the supervisor
//! signals what is in that group. A number can pass to another process at any time, so the signal goes to a handle
//! (pidfd_open(2)). If that is the handle of a process outside, the group was read of a later owner of the number, and
//! the handle's process has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::run::Watch;
use sandfork_jail::sys::pidfd;
use sandfork_jail::sys::seccomp::{Asked, Reply, answer, waits};

/// What sends a signal.
enum Sender {
    Kernel,
    Supervisor(OwnedFd),
}

/// Answers a call that sends a signal; `None` if it is another one. An error means that the listener failed.
pub fn answered(listener: BorrowedFd, call: Asked, watch: &Watch) -> Option<Result<(), Errno>> {
    let [process, second, ..] = call.arguments.map(integer);
    let is_own = || is_of_thread(listener, call, process);
    let sender = match libc::c_long::from(call.call) {
        libc::SYS_kill | libc::SYS_tgkill if is_own() => Ok(Sender::Kernel),
        libc::SYS_kill => judge(process, second, watch),
        libc::SYS_tgkill => Err(Errno::EPERM),
        _ => return None,
    };
    let reply = |reply| answer(listener, call.id, reply);
    Some(match sender {
        Err(errno) => reply(Reply::Error(errno)),
        Ok(Sender::Kernel) => reply(Reply::Continue),
        // The answer comes first: the end of a child interrupts a call that still waits (SIGCHLD).
        Ok(Sender::Supervisor(handle)) => reply(Reply::Value(0)).map(|()| {
            // It may have ended.
            _ = pidfd::signal_number(handle.as_fd(), second);
        }),
    })
}

/// What the kernel takes of an argument that is an `int`.
fn integer(argument: u64) -> i32 {
    let low = u32::try_from(argument & u64::from(u32::MAX));
    low.unwrap_or_default().cast_signed()
}

/// Whether the thread that makes the call belongs to this process.
fn is_of_thread(listener: BorrowedFd, call: Asked, process: i32) -> bool {
    let task = format!("/proc/{process}/task/{}", call.thread);
    // The thread's number may already belong to another thread.
    Path::new(&task).exists() && waits(listener, call.id)
}

fn judge(process: i32, signal: i32, watch: &Watch) -> Result<Sender, Errno> {
    // The others are names of groups.
    if process <= 0 {
        return Err(Errno::EPERM);
    }
    let process = Pid::from_raw(process);
    let handle = pidfd::open(process)?;
    if !watch.has_in_group(process) {
        return Err(Errno::EPERM);
    }
    if !(0..=libc::SIGRTMAX()).contains(&signal) {
        return Err(Errno::EINVAL);
    }
    Ok(Sender::Supervisor(handle))
}
