//! Makes calls that the kernel refuses in a jailed process. Their arguments have no effect even if a call is allowed.
//!
//! Without the filter, every kernel fails these calls with an errno other than `EPERM`, because it validates the
//! arguments before it checks permissions.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::check;

/// Creates a pair of internet sockets, which the kernel does not support: `EOPNOTSUPP` (socketpair(2)).
pub fn internet_pair() -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Inet, SockType::Stream, None, flags).map(drop)
}

/// Compares process 0, which does not exist, with itself: `ESRCH` (kcmp(2)). The call requires permission to trace both
/// processes.
pub fn compare() -> Result<(), Errno> {
    // SAFETY: integer arguments only.
    check(unsafe { libc::syscall(libc::SYS_kcmp, 0, 0, 0, 0_usize, 0_usize) }).map(drop)
}

/// Clones a mount with invalid flags: `EINVAL` (open_tree(2)).
pub fn open_mount() -> Result<(), Errno> {
    // SAFETY: the kernel rejects the flags before it reads the path, which is null.
    check(unsafe { libc::syscall(libc::SYS_open_tree, -1, 0_usize, u32::MAX) }).map(drop)
}

/// Sets capabilities without data: `EFAULT` (capset(2)).
pub fn set_capabilities() -> Result<(), Errno> {
    // SAFETY: null pointers, which the kernel refuses to read.
    check(unsafe { libc::syscall(libc::SYS_capset, 0_usize, 0_usize) }).map(drop)
}
