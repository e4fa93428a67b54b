//! The layers, by name.

use std::fmt;

use serde::Serialize;

/// One layer between the guest and the host.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// User, pid, network, ipc, uts, mount and cgroup namespaces (namespaces(7)).
    Namespaces,
    /// A private root with read-only views of the host (pivot_root(2), mount_setattr(2)).
    Mounts,
    /// Landlock rules (landlock(7)).
    Landlock,
    /// seccomp filters (seccomp(2)).
    Seccomp,
    /// Empty capability sets (capabilities(7)).
    Capabilities,
    /// Resource limits (getrlimit(2)).
    Rlimits,
    /// A private cgroup (cgroups(7)).
    Cgroup,
}

impl Layer {
    /// Every layer, starting with the outermost.
    pub const ALL: [Self; 7] = [
        Self::Namespaces,
        Self::Mounts,
        Self::Landlock,
        Self::Seccomp,
        Self::Capabilities,
        Self::Rlimits,
        Self::Cgroup,
    ];

    /// The name in policies, reports and errors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Mounts => "mounts",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Capabilities => "capabilities",
            Self::Rlimits => "rlimits",
            Self::Cgroup => "cgroup",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
