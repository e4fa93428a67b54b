//! The levels of protection that a host can provide.

use super::word_enum::word_enum;

word_enum! {
    /// A level of protection: the one that holds, or the lowest that a policy accepts. The variants start with the
    /// weakest level.
    pub enum Level {
        /// Without namespaces: Landlock, seccomp and rlimits. For hosts and containers that
        /// forbid user namespaces.
        Landlock = "landlock",
        /// Every layer but the cgroup: rlimits and the supervisor's watchdog limit memory.
        Standard = "standard",
        /// Every layer.
        Full = "full",
    }
}
