//! Calls that the zygote and a worker need to set up the jail after the zygote's filter is loaded.
//! The worker's filter restores the guest's verdict for each of them.

use super::super::rule::{Rule, allow};

/// Needed with and without namespaces.
pub(super) const ALWAYS: &[Rule] = &[
    allow("load the worker's filter", "seccomp"),
    allow(
        "bounding set, ambient set, no_new_privs, pdeathsig, dumpable; seccomp by its old name",
        "prctl",
    ),
    allow("empty the capability sets", "capset"),
    allow("pin the worker to its processors", "sched_setaffinity"),
    allow(
        "copy at the fork what every worker writes to",
        "io_uring_setup io_uring_register",
    ),
];

/// Needed if workers have their own namespaces.
pub(super) const NAMESPACES: &[Rule] = &[
    allow(
        "give birth to the worker's init in a pid namespace",
        "clone",
    ),
    allow(
        "the worker's namespaces, and the way back after unshare(CLONE_NEWPID)",
        "unshare setns",
    ),
    allow("become a user that no other worker is", "setresuid"),
    allow(
        "private tmpfs and /proc of the worker",
        "mount mount_setattr move_mount open_tree fsopen fsconfig fsmount",
    ),
];

/// Needed if workers have their own loopback interface.
pub(super) const LOOPBACK: &[Rule] = &[allow("bring the loopback interface up", "socket")];

/// Needed if there are no namespaces and Landlock does not scope signals: see `jail::reaper`.
pub(super) const SIGNALS: &[Rule] = &[
    allow(
        "stop and kill what a worker has left",
        "kill pidfd_send_signal",
    ),
    allow("the worker's filter asks about it", "tgkill"),
    allow("give the worker a process group", "setsid"),
];
