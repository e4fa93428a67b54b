//! The keywords that some keys of a policy file accept.

use crate::outcome::word_enum;

word_enum! {
    /// The system directories of the host that the guest sees, read-only.
    pub enum SystemFiles {
        /// Programs and libraries: `/usr`, `/bin`, `/sbin`, `/lib*`.
        Programs = "programs",
        /// Only libraries and data, without programs to execute.
        Libraries = "libraries",
    }
}

word_enum! {
    /// The guest's network access.
    pub enum NetworkMode {
        /// No network: only Unix sockets, in an empty network namespace (network_namespaces(7)) if namespaces
        /// are available.
        None = "none",
        /// TCP and UDP among the guest's own processes, over the loopback interface of a network namespace that only
        /// this worker uses.
        Loopback = "loopback",
        /// Like `loopback`, plus connections to the hosts that the policy names, through the egress process, which
        /// checks names and addresses against the policy.
        Allow = "allow",
    }
}

word_enum! {
    /// The guest's standard input.
    pub enum Stdin {
        /// Empty: the guest reads EOF immediately.
        Closed = "closed",
        /// The caller's standard input.
        Pass = "pass",
    }
}
