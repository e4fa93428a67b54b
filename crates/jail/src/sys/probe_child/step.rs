//! The steps of the chain, in the order in which the jail makes them.

use std::fmt;

/// One call of the chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
#[repr(u32)]
pub enum ChainStep {
    /// clone(2) of the child itself.
    Clone,
    /// open_tree(2) with `OPEN_TREE_CLONE`. Root makes this call before it gives up its ids.
    OpenTree,
    /// mount_setattr(2).
    MountSetattr,
    /// setgroups(2), as root only.
    DropGroups,
    /// setresgid(2), as root only.
    DropGid,
    /// setresuid(2), as root only.
    DropUid,
    /// unshare(2) of user, mount, pid, network, ipc, uts and cgroup namespaces.
    Unshare,
    /// Writing `/proc/self/setgroups` (user_namespaces(7)).
    DenySetgroups,
    /// Writing `/proc/self/uid_map`.
    UidMap,
    /// Writing `/proc/self/gid_map`.
    GidMap,
    /// The first process of the pid namespace.
    EnterPidNamespace,
    /// Making mount propagation private.
    PrivateMounts,
    /// A procfs of the new pid namespace (fsopen(2), fsmount(2)).
    MountProc,
    /// Mounting a tmpfs.
    MountTmpfs,
    /// move_mount(2).
    MoveMount,
    /// pivot_root(2).
    PivotRoot,
}

const STEPS: [ChainStep; 16] = [
    ChainStep::Clone,
    ChainStep::OpenTree,
    ChainStep::MountSetattr,
    ChainStep::DropGroups,
    ChainStep::DropGid,
    ChainStep::DropUid,
    ChainStep::Unshare,
    ChainStep::DenySetgroups,
    ChainStep::UidMap,
    ChainStep::GidMap,
    ChainStep::EnterPidNamespace,
    ChainStep::PrivateMounts,
    ChainStep::MountProc,
    ChainStep::MountTmpfs,
    ChainStep::MoveMount,
    ChainStep::PivotRoot,
];

impl ChainStep {
    pub(super) fn from_number(number: u32) -> Option<Self> {
        STEPS.into_iter().find(|step| *step as u32 == number)
    }

    /// Whether the step is about mounts; the others are about ids and namespaces.
    pub fn is_of_mounts(self) -> bool {
        matches!(
            self,
            Self::OpenTree
                | Self::MountSetattr
                | Self::PrivateMounts
                | Self::MountProc
                | Self::MountTmpfs
                | Self::MoveMount
                | Self::PivotRoot
        )
    }

    /// What the step does, in plain words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Clone => "start a child process (clone)",
            Self::OpenTree => "copy a mount of the host (open_tree)",
            Self::MountSetattr => "make a mount read-only (mount_setattr)",
            Self::DropGroups => "give up root's groups (setgroups)",
            Self::DropGid => "give up root's gid (setresgid)",
            Self::DropUid => "give up root's uid (setresuid)",
            Self::Unshare => "make namespaces (unshare)",
            Self::DenySetgroups => "write /proc/self/setgroups",
            Self::UidMap => "write /proc/self/uid_map",
            Self::GidMap => "write /proc/self/gid_map",
            Self::EnterPidNamespace => "enter a new pid namespace (clone)",
            Self::PrivateMounts => "make mounts private (mount)",
            Self::MountProc => "make a new /proc (fsmount)",
            Self::MountTmpfs => "mount a tmpfs (mount)",
            Self::MoveMount => "attach a mount (move_mount)",
            Self::PivotRoot => "change the root (pivot_root)",
        }
    }
}

impl fmt::Display for ChainStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_in_the_order_of_the_chain() {
        for (number, step) in (0_u32..).zip(STEPS) {
            assert_eq!(ChainStep::from_number(number), Some(step));
        }
        assert_eq!(ChainStep::from_number(u32::MAX), None);
    }
}
