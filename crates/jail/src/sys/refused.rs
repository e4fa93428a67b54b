//! Calls that the kernel refuses in a jailed process. Their arguments have no effect even if they are
//! allowed.
//!
//! Without the filter, each kernel answers with an error other than `EPERM`, because it checks these
//! arguments before it checks any right.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::check;

/// Creates and closes an internet socket (socket(2)).
pub fn internet_socket() -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Inet, SockType::Stream, flags, None).map(drop)
}

/// Creates and closes a socket by which network interfaces are configured (rtnetlink(7)).
pub fn netlink_socket() -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let route = SockProtocol::NetlinkRoute;
    socket(AddressFamily::Netlink, SockType::Raw, flags, route).map(drop)
}

/// Calls mount(2) without a source or target: `EFAULT`.
pub fn mount() -> Result<(), Errno> {
    // SAFETY: null pointers, which the kernel reads as an absent device, type and data, and refuses
    // as a path.
    check(unsafe { libc::syscall(libc::SYS_mount, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) })
        .map(drop)
}

/// Attaches to process 0, which does not exist: `ESRCH` (ptrace(2)).
pub fn trace() -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_ATTACH, 0, 0_usize, 0_usize) })
        .map(drop)
}

/// Sets capabilities without data: `EFAULT` (capset(2)).
pub fn set_capabilities() -> Result<(), Errno> {
    // SAFETY: null pointers, which the kernel refuses to read.
    check(unsafe { libc::syscall(libc::SYS_capset, 0_usize, 0_usize) }).map(drop)
}
