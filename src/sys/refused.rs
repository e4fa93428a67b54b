//! Calls that a jailed process is refused, with arguments for which nothing happens where it is not.
//!
//! Each kernel without the filter that refuses them answers otherwise than `EPERM`: it looks at these
//! arguments before it looks at any right.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::check;

/// Makes a socket of the internet, and closes it (socket(2)).
pub fn internet_socket() -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socket(AddressFamily::Inet, SockType::Stream, flags, None).map(drop)
}

/// Mounts nothing nowhere: `EFAULT` (mount(2)).
pub fn mount() -> Result<(), Errno> {
    // SAFETY: null pointers, which the kernel reads as an absent device, type and data, and refuses
    // as a path.
    check(unsafe { libc::syscall(libc::SYS_mount, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) })
        .map(drop)
}

/// Attaches to the process 0, which is none: `ESRCH` (ptrace(2)).
pub fn trace() -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_ATTACH, 0, 0_usize, 0_usize) })
        .map(drop)
}

/// Sets capabilities without saying which: `EFAULT` (capset(2)).
pub fn set_capabilities() -> Result<(), Errno> {
    // SAFETY: null pointers, which the kernel refuses to read.
    check(unsafe { libc::syscall(libc::SYS_capset, 0_usize, 0_usize) }).map(drop)
}

/// Takes a capability out of the bounding set, which asks for `CAP_SETPCAP` (prctl(2)).
pub fn drop_from_bounding_set() -> Result<(), Errno> {
    const CAP_CHOWN: libc::c_ulong = 0;
    // SAFETY: integers only.
    check(libc::c_long::from(unsafe {
        libc::prctl(libc::PR_CAPBSET_DROP, CAP_CHOWN, 0, 0, 0)
    }))
    .map(drop)
}
