//! Processes by handle (pidfd_open(2)): a number may be reused, a descriptor refers to one process.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::check;
use super::descriptors::owned;

/// A handle on a process of this pid namespace.
pub fn open(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: integers only.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    Ok(owned(fd))
}

/// Sends a signal to the process behind a handle.
pub fn signal(pidfd: BorrowedFd, signal: Signal) -> Result<(), Errno> {
    send(pidfd, signal as libc::c_int)
}

/// `ESRCH` when the process behind a handle has ended and was reaped.
pub fn is_there(pidfd: BorrowedFd) -> Result<(), Errno> {
    // The null signal only checks that the process exists.
    send(pidfd, 0)
}

fn send(pidfd: BorrowedFd, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: integers and a null pointer, which stands for an ordinary kill(2).
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })?;
    Ok(())
}
