//! The steps of the chain, in the order in which the jail executes them.

use std::fmt;

steps! {
    /// A call of the chain.
    #[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
    #[repr(u32)]
    pub enum ChainStep: u32 {
        Clone => "start a child process (clone)",
        OpenTree => "copy a mount of the host (open_tree)",
        MountSetattr => "make a mount read-only (mount_setattr)",
        DropGroups => "give up root's groups (setgroups)",
        DropGid => "give up root's gid (setresgid)",
        DropUid => "give up root's uid (setresuid)",
        Unshare => "make namespaces (unshare)",
        DenySetgroups => "write /proc/self/setgroups",
        UidMap => "write /proc/self/uid_map",
        GidMap => "write /proc/self/gid_map",
        EnterPidNamespace => "enter a new pid namespace (clone)",
        PrivateMounts => "make mounts private (mount)",
        MountProc => "make a new /proc (fsmount)",
        MountTmpfs => "mount a tmpfs (mount)",
        MoveMount => "attach a mount (move_mount)",
        PivotRoot => "change the root (pivot_root)",
    }
}

impl ChainStep {
    /// Returns whether the step is about mounts; the others are about ids and namespaces.
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
        for (number, step) in (0_u32..).zip(ChainStep::ALL.iter().copied()) {
            assert_eq!(ChainStep::from_number(number), Some(step));
        }
        assert_eq!(ChainStep::from_number(u32::MAX), None);
    }
}
