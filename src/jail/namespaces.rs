//! Namespaces (namespaces(7)): which ones each side makes, in one place.

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

use super::program::NetworkNamespace;

/// The zygote's: all of its own, so that not even preloading can see the host.
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

/// The worker's, while it still has its privileges over the zygote's user namespace: these stay
/// owned by that one, so that the guest's own user namespace, made later, has no power over them.
/// The cgroup namespace is made here too, after the cgroup was joined, which becomes its root.
pub fn unshare_worker(network: NetworkNamespace) -> Result<(), Errno> {
    let mut flags = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    if network == NetworkNamespace::PerWorker {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    unshare(flags)
}

/// The guest's user namespace.
pub fn unshare_user() -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWUSER)
}
