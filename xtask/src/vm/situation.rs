//! The kinds of host that the matrix shows.

use super::job::User;

/// A kind of host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Situation {
    /// The user who starts Sandfork.
    pub user: User,
    /// The user's description in the document.
    pub who: &'static str,
    /// The cgroup's description in the document.
    pub cgroup: &'static str,
    /// What the host lacks, as described in the document; empty if it lacks nothing.
    pub without: &'static str,
    /// Settings beneath `/proc/sys`.
    pub settings: &'static [(&'static str, &'static str)],
    /// Added to the kernel's command line.
    pub boot_options: &'static str,
    /// The extent of the tests.
    pub extent: Extent,
}

/// The extent of the tests in a situation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// One run at each level, and all the tests.
    Tests,
    /// One run at each level.
    Levels,
}

const FULL: Situation = Situation {
    user: User::Root,
    who: "root, logged in",
    cgroup: "any",
    without: "",
    settings: &[],
    boot_options: "",
    extent: Extent::Tests,
};

/// All situations.
pub const SITUATIONS: [Situation; 9] = [
    FULL,
    Situation {
        user: User::Delegated,
        who: "ordinary user",
        cgroup: "delegated: `systemd-run --user --scope -p Delegate=yes`",
        ..FULL
    },
    Situation {
        user: User::Plain,
        who: "ordinary user, logged in",
        cgroup: "none",
        ..FULL
    },
    Situation {
        user: User::Subgroup,
        who: "service of an ordinary user, beside its own process",
        cgroup: "delegated: `Delegate=yes`, `DelegateSubgroup=main`",
        extent: Extent::Levels,
        ..FULL
    },
    Situation {
        user: User::Service,
        who: "service of an ordinary user, beside its own process",
        cgroup: "delegated: `Delegate=yes`",
        extent: Extent::Levels,
        ..FULL
    },
    Situation {
        user: User::Plain,
        who: "ordinary user, logged in",
        cgroup: "none",
        without: "user namespaces for ordinary users (`kernel.unprivileged_userns_clone=0`)",
        settings: &[("kernel/unprivileged_userns_clone", "0")],
        extent: Extent::Levels,
        ..FULL
    },
    Situation {
        without: "any user namespaces (`user.max_user_namespaces=0`)",
        settings: &[("user/max_user_namespaces", "0")],
        extent: Extent::Levels,
        ..FULL
    },
    Situation {
        without: "the memory controller (booted with `cgroup_disable=memory`)",
        boot_options: "cgroup_disable=memory",
        extent: Extent::Levels,
        ..FULL
    },
    Situation {
        without: "Landlock (booted with `lsm=apparmor`)",
        boot_options: "lsm=apparmor",
        extent: Extent::Levels,
        ..FULL
    },
];
