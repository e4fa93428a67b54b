//! Lets a guest signal its own processes, and no others of the same user, where the kernel cannot: at level `landlock`
//! before Linux 6.12, whose Landlock does not scope signals.
//!
//! **Itself.** If a process signals itself, the kernel continues the call (seccomp_unotify(2)): a process keeps its pid
//! while it is in the call.
//!
//! **Another process.** The worker's filter lets no process leave the worker's process group, and the supervisor sends
//! signals only to processes of that group. Because a pid can be reused at any time, it sends the signal through a
//! pidfd (pidfd_open(2)). If the pidfd refers to a process outside the group and the check still succeeds, the pid was
//! reused in between, so the pidfd's process has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::run::Watch;
use sandfork_jail::sys::pidfd;
use sandfork_jail::sys::seccomp::{Notification, Reply, is_valid, respond};

/// The sender of the signal.
enum Sender {
    Kernel,
    Supervisor(OwnedFd),
}

/// Answers a system call that sends a signal; returns `None` for any other call. An error means that the listener
/// failed.
pub fn answer_signal(
    listener: BorrowedFd,
    call: Notification,
    watch: &Watch,
) -> Option<Result<(), Errno>> {
    let [process, second, ..] = call.arguments.map(integer);
    let is_own = || is_of_thread(listener, call, process);
    let sender = match libc::c_long::from(call.call) {
        libc::SYS_kill | libc::SYS_tgkill if is_own() => Ok(Sender::Kernel),
        libc::SYS_kill => authorize(process, second, watch),
        libc::SYS_tgkill => Err(Errno::EPERM),
        _ => return None,
    };
    let reply = |reply| respond(listener, call.id, reply);
    Some(match sender {
        Err(errno) => reply(Reply::Error(errno)),
        Ok(Sender::Kernel) => reply(Reply::Continue),
        // Reply first: if the signal ends a child, SIGCHLD would interrupt a call that still waits.
        Ok(Sender::Supervisor(handle)) => reply(Reply::Value(0)).map(|()| {
            // Fails if the process has ended.
            _ = pidfd::signal_number(handle.as_fd(), second);
        }),
    })
}

/// Converts an argument that the kernel treats as an `int`.
fn integer(argument: u64) -> i32 {
    let low = u32::try_from(argument & u64::from(u32::MAX));
    low.unwrap_or_default().cast_signed()
}

/// Whether the thread that makes the call belongs to this process.
fn is_of_thread(listener: BorrowedFd, call: Notification, process: i32) -> bool {
    let task = format!("/proc/{process}/task/{}", call.thread);
    // The thread's number may already belong to another thread.
    Path::new(&task).exists() && is_valid(listener, call.id)
}

fn authorize(process: i32, signal: i32, watch: &Watch) -> Result<Sender, Errno> {
    // Other values refer to process groups.
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
