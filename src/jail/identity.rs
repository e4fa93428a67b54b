//! Who the guest is: an unprivileged host user, and one id inside its user namespace.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, getegid, geteuid, setgroups, setresgid, setresuid, write};

use super::program::HostIds;

/// Gives up root on the host for good: no groups, then the gid, then the uid, which takes away the
/// right to do the first two.
pub fn drop_to(ids: HostIds) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// The ids of this process, as its own user namespace sees them.
pub fn current() -> HostIds {
    HostIds {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    }
}

/// Maps one id of the parent namespace to one inside, in the user namespace just entered.
///
/// `proc` is the root of a procfs that shows this process. `setgroups` must be denied first, or
/// the kernel refuses an unprivileged gid map (user_namespaces(7)).
pub fn map(proc: BorrowedFd, outside: HostIds, inside: HostIds) -> Result<(), Errno> {
    write_file(proc, "self/setgroups", "deny")?;
    write_file(
        proc,
        "self/uid_map",
        &format!("{} {} 1", inside.uid, outside.uid),
    )?;
    write_file(
        proc,
        "self/gid_map",
        &format!("{} {} 1", inside.gid, outside.gid),
    )
}

fn write_file(directory: BorrowedFd, path: &str, text: &str) -> Result<(), Errno> {
    let file = openat(
        directory,
        path,
        OFlag::O_WRONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    match write(&file, text.as_bytes())? {
        n if n == text.len() => Ok(()),
        _ => Err(Errno::EIO),
    }
}
