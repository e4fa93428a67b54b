//! Sets the guest's identity: an unprivileged host user, and the ids inside its user namespace.

use std::fmt::Write as _;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, getegid, geteuid, setgroups, setresgid, setresuid};

use super::program::{HostIds, UidRange};
use crate::sys::procfs;

/// Permanently gives up host root. The groups go first, then the gid, then the uid, because dropping the uid takes away
/// the permission for the other two.
pub fn drop_to(ids: HostIds) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// Switches to one of the uids that the zygote's user namespace maps for its workers.
///
/// The kernel counts epoll(7) watches, pipe pages and descriptors in flight per host user. A worker with its own uid
/// therefore cannot exhaust another worker's share. Capabilities stay, because the old uid is not root.
pub fn become_worker(uid: u32) -> Result<(), Errno> {
    let uid = Uid::from_raw(uid);
    setresuid(uid, uid, uid)
}

/// Returns the ids of this process, as its current user namespace maps them.
pub fn current() -> HostIds {
    HostIds {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    }
}

/// Maps one id of the parent namespace to one inside, in the user namespace that this process just entered.
///
/// `proc` is the root of a procfs that shows this process.
pub fn map(proc: BorrowedFd, outside: HostIds, inside: HostIds) -> Result<(), Errno> {
    map_process(proc, "self", outside, inside, None)
}

/// Maps one id, and the workers' uids to themselves, in the user namespace of a process. Mapping more than one id needs
/// `CAP_SETUID` in the parent namespace.
///
/// `setgroups` must be denied first, or the kernel refuses an unprivileged gid map (user_namespaces(7)).
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
    procfs::write(proc, &format!("{process}/setgroups"), "deny")?;
    procfs::write(proc, &format!("{process}/uid_map"), &uids)?;
    procfs::write(proc, &format!("{process}/gid_map"), &gids)
}

/// Maps `own` and `seen` to each other and every other id to itself, in the user namespace of a process.
pub fn map_swapped(
    proc: BorrowedFd,
    process: &str,
    own: HostIds,
    seen: HostIds,
) -> Result<(), Errno> {
    let uids = swapped(own.uid, seen.uid);
    procfs::write(proc, &format!("{process}/uid_map"), &uids)?;
    procfs::write(
        proc,
        &format!("{process}/gid_map"),
        &swapped(own.gid, seen.gid),
    )
}

/// Returns the lines of an id map that swaps two ids (user_namespaces(7)).
fn swapped(one: u32, other: u32) -> String {
    // The highest id is not a valid id (`INVALID_UID`).
    const COUNT: u32 = u32::MAX;
    let (low, high) = (one.min(other), one.max(other));
    if low == high {
        return format!("0 0 {COUNT}\n");
    }
    let ranges = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, COUNT - high - 1),
    ];
    let mut lines = String::new();
    for (inside, outside, count) in ranges.iter().filter(|(_, _, count)| *count > 0) {
        // Writing to a string cannot fail.
        _ = writeln!(lines, "{inside} {outside} {count}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapped_ids_leave_all_others_unchanged() {
        assert_eq!(swapped(0, 0), "0 0 4294967295\n");
        let around = "1 1 1998\n1999 0 1\n2000 2000 4294965295\n";
        assert_eq!(swapped(0, 1999), format!("0 1999 1\n{around}"));
        assert_eq!(swapped(1999, 0), swapped(0, 1999));
        assert_eq!(
            swapped(1000, 1001),
            "0 0 1000\n1000 1001 1\n1001 1000 1\n1002 1002 4294966293\n"
        );
    }
}
