//! Keys of a policy file that accept one of a few words.

use crate::outcome::word_enum;

word_enum! {
    /// The host's system directories that the guest sees, read-only.
    pub enum SystemFiles {
        /// Programs and libraries: `/usr`, `/bin`, `/sbin`, `/lib*`.
        Programs = "programs",
        /// Only libraries and data, with no executable programs.
        Libraries = "libraries",
    }
}

word_enum! {
    /// The network that the guest has.
    pub enum NetworkMode {
        /// No network: an empty network namespace (network_namespaces(7)), if namespaces are available,
        /// and only unix sockets.
        None = "none",
        /// TCP and UDP among the guest's own processes, over the loopback interface of a network namespace that no
        /// other worker has.
        Loopback = "loopback",
        /// The same, and connections to the hosts that the policy names, through a process that compares names and
        /// addresses with the policy.
        Allow = "allow",
    }
}

word_enum! {
    /// What the guest reads on its standard input.
    pub enum Stdin {
        /// Nothing: end of file immediately.
        Closed = "closed",
        /// The caller's standard input.
        Pass = "pass",
    }
}
