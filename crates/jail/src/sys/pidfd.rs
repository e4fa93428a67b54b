//! Refers to processes by pidfd (pidfd_open(2)): a pid may be reused, a pidfd refers to one process.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::check;
use super::descriptors::owned;

/// Opens a pidfd of a process in this pid namespace.
pub fn open(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: integer arguments only.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    Ok(owned(fd))
}

/// Sends a signal to the process that a pidfd refers to.
pub fn signal(pidfd: BorrowedFd, signal: Signal) -> Result<(), Errno> {
    send(pidfd, signal as libc::c_int)
}

/// Sends a signal by number. `EINVAL` if the kernel has no such signal.
pub fn signal_number(pidfd: BorrowedFd, number: libc::c_int) -> Result<(), Errno> {
    send(pidfd, number)
}

/// Checks that the process has not been reaped. `ESRCH` if it has.
pub fn is_there(pidfd: BorrowedFd) -> Result<(), Errno> {
    // The null signal only checks that the process exists.
    send(pidfd, 0)
}

/// The result of `PIDFD_GET_INFO` (`struct pidfd_info` of `linux/pidfd.h`), in its first version.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: u32,
    others: [u32; 11],
}

/// `_IOWR(0xFF, 11, struct pidfd_info)`.
const GET_INFO: libc::Ioctl = 0xC040_FF0B_u32 as libc::Ioctl;

/// Returns the process's pid in this pid namespace. `ESRCH` if it was reaped, another error before Linux 6.13, which
/// lacks the request.
pub fn number(pidfd: BorrowedFd) -> Result<i32, Errno> {
    let mut info = Info::default();
    // SAFETY: the kernel writes at most the size encoded in the request, which is the size of `Info`.
    Errno::result(unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO, &raw mut info) })?;
    i32::try_from(info.pid)
        .ok()
        .filter(|pid| *pid > 0)
        .ok_or(Errno::ESRCH)
}

fn send(pidfd: BorrowedFd, signal: libc::c_int) -> Result<(), Errno> {
    // SAFETY: integers and a null `siginfo_t`, which means an ordinary kill(2).
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
