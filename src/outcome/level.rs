//! How much of the sandbox a host can give, in one word.

use super::word_enum::word_enum;

word_enum! {
    /// The levels, weakest first: what holds, and the lowest that a policy accepts.
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
