//! The names of the layers.

use super::word_enum::word_enum;

word_enum! {
    /// A layer between the guest and the host. The variants start with the outermost layer.
    pub enum Layer {
        /// User, pid, network, ipc, uts, mount and cgroup namespaces (namespaces(7)).
        Namespaces = "namespaces",
        /// A private root with read-only views of the host (pivot_root(2), mount_setattr(2)).
        Mounts = "mounts",
        /// Landlock rules (landlock(7)).
        Landlock = "landlock",
        /// seccomp filters (seccomp(2)).
        Seccomp = "seccomp",
        /// Empty capability sets (capabilities(7)).
        Capabilities = "capabilities",
        /// Resource limits (getrlimit(2)).
        Rlimits = "rlimits",
        /// A private cgroup (cgroups(7)).
        Cgroup = "cgroup",
    }
}
