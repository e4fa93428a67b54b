//! The guest's identity: an unprivileged host user, and one id inside its user namespace.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, getegid, geteuid, setgroups, setresgid, setresuid, write};

use super::program::{HostIds, UidRange};

/// Gives up host root for good. The groups go first, then the gid, then the uid, because giving up the
/// uid takes away the right to do the first two.
pub fn drop_to(ids: HostIds) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// Takes one of the uids that the zygote's user namespace maps for its workers.
///
/// The kernel counts watches, pages of pipes and descriptors in flight per host user. A worker with a
/// uid of its own therefore uses up no other worker's share. Capabilities stay, because the old uid is
/// not root.
pub fn become_worker(uid: u32) -> Result<(), Errno> {
    let uid = Uid::from_raw(uid);
    setresuid(uid, uid, uid)
}

/// The ids of this process as its own user namespace maps them.
pub fn current() -> HostIds {
    HostIds {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    }
}

/// Maps one id of the parent namespace to one inside, in the user namespace that this process just
/// entered.
///
/// `proc` is the root of a procfs that shows this process.
pub fn map(proc: BorrowedFd, outside: HostIds, inside: HostIds) -> Result<(), Errno> {
    map_process(proc, "self", outside, inside, None)
}

/// Maps one id, and the workers' uids to themselves, in the user namespace of a process. Mapping more
/// than one id needs `CAP_SETUID` in the parent namespace.
///
/// `setgroups` must be denied first, or the kernel refuses an unprivileged gid map
/// (user_namespaces(7)).
pub fn map_process(
    proc: BorrowedFd,
    process: &str,
    outside: HostIds,
    inside: HostIds,
    workers: Option<UidRange>,
) -> Result<(), Errno> {
    let own = format!("{} {} 1\n", inside.uid, outside.uid);
    let uids = match workers {
        Some(UidRange { first, count }) => format!("{own}{first} {first} {count}\n"),
        None => own,
    };
    let gids = format!("{} {} 1\n", inside.gid, outside.gid);
    write_file(proc, &format!("{process}/setgroups"), "deny")?;
    write_file(proc, &format!("{process}/uid_map"), &uids)?;
    write_file(proc, &format!("{process}/gid_map"), &gids)
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
