//! The calls that the zygote and a worker need for the jail's set-up after the zygote's filter is loaded.
//! The worker's filter restores the guest's verdict for each of them.

use super::super::rule::{Rule, allow};

/// The calls that are needed with and without namespaces.
pub(super) const ALWAYS: &[Rule] = &[
    allow("load the worker's filter", "seccomp"),
    allow(
        "set the bounding set, ambient set, no_new_privs, pdeathsig, dumpable and seccomp mode",
        "prctl",
    ),
    allow("empty the capability sets", "capset"),
    allow("pin the worker to its processors", "sched_setaffinity"),
    allow(
        "copy eagerly, at the fork, the pages that every worker writes to",
        "io_uring_setup io_uring_register",
    ),
];

/// The calls that are needed if workers have their own namespaces.
pub(super) const NAMESPACES: &[Rule] = &[
    allow("create the worker's init in a pid namespace", "clone"),
    allow(
        "enter the worker's namespaces, and return after unshare(CLONE_NEWPID)",
        "unshare setns",
    ),
    allow("become a user that only this worker is", "setresuid"),
    allow(
        "mount the worker's private tmpfs and /proc",
        "mount mount_setattr move_mount open_tree fsopen fsconfig fsmount",
    ),
];

/// The calls that are needed if workers have their own loopback interface.
pub(super) const LOOPBACK: &[Rule] = &[allow("bring the loopback interface up", "socket")];

/// The calls that are needed if there are no namespaces and Landlock does not scope signals: see `jail::reaper`.
pub(super) const SIGNALS: &[Rule] = &[
    allow(
        "stop and kill processes that a worker leaves behind",
        "kill pidfd_send_signal",
    ),
    allow(
        "passed on to the worker's filter, which asks the supervisor",
        "tgkill",
    ),
    allow("give the worker a process group", "setsid"),
];
