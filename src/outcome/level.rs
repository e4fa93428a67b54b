//! How much of the sandbox a host can give, in one word.

use std::fmt;

/// The levels, weakest first: what holds, and the lowest that a policy accepts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// Without namespaces: Landlock, seccomp and rlimits. For hosts and containers that
    /// forbid user namespaces.
    Landlock,
    /// Every layer but the cgroup: rlimits and the supervisor's watchdog limit memory.
    Standard,
    /// Every layer.
    Full,
}

impl Level {
    /// Every level, weakest first.
    pub const ALL: [Self; 3] = [Self::Landlock, Self::Standard, Self::Full];

    /// The name in policies, reports and errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl serde::Serialize for Level {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
