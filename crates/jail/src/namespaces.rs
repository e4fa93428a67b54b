//! Namespaces (namespaces(7)): the ones that zygote and worker create, in one place.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

/// Creates the zygote's namespaces, one of each kind, so that not even preloaded code can see the
/// host.
pub fn unshare_zygote() -> Result<(), Errno> {
    unshare(
        CloneFlags::CLONE_NEWUSER
            | CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS,
    )
}

/// Creates the worker's namespaces, while the worker still has its privileges over the zygote's
/// user namespace. The zygote's user namespace then owns them, so that the guest's own user
/// namespace, created later, has no power over them. The cgroup namespace is created here too,
/// after the worker joined its cgroup, because that cgroup becomes the namespace's root.
pub fn unshare_worker() -> Result<(), Errno> {
    unshare(
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )
}

/// Enters the network namespace that the zygote lends to the worker. Creating one takes longer than
/// all other steps together.
pub fn enter_network(lent: BorrowedFd) -> Result<(), Errno> {
    setns(lent, CloneFlags::CLONE_NEWNET)
}

/// Creates a network namespace for this worker alone. The zygote's user namespace owns it.
pub fn unshare_network() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWNET)
}

/// Creates the guest's user namespace.
pub fn unshare_user() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWUSER)
}
