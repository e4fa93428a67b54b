//! Calls that the kernel refuses in a jailed process. Their arguments have no effect even if they are
//! allowed.
//!
//! Without the filter, each kernel answers with an error other than `EPERM`, because it checks these
//! arguments before it checks any right.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::check;

/// Creates and closes a pair of internet sockets, which the kernel does not have: `EOPNOTSUPP` (socketpair(2)).
pub fn internet_pair() -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Inet, SockType::Stream, None, flags).map(drop)
}

/// Compares process 0, which does not exist, with itself: `ESRCH` (kcmp(2)). The call needs the right to trace both.
pub fn compare() -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_kcmp, 0, 0, 0, 0_usize, 0_usize) }).map(drop)
}

/// Opens a mount with flags that do not exist: `EINVAL` (open_tree(2)).
pub fn open_mount() -> Result<(), Errno> {
    // SAFETY: the kernel refuses the flags before it reads the path, a null pointer.
    check(unsafe { libc::syscall(libc::SYS_open_tree, -1, 0_usize, u32::MAX) }).map(drop)
}

/// Sets capabilities without data: `EFAULT` (capset(2)).
pub fn set_capabilities() -> Result<(), Errno> {
    // SAFETY: null pointers, which the kernel refuses to read.
    check(unsafe { libc::syscall(libc::SYS_capset, 0_usize, 0_usize) }).map(drop)
}
