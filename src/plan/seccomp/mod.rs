//! seccomp filters (seccomp(2)): rules as data, compiled to programs for the kernel.
//!
//! Filters are loaded in two stages. The zygote's filter is an allow-list of the calls that guests
//! may make and the calls that the jail's set-up still needs. It is loaded once, before modules are
//! preloaded. Each worker loads its own filter last. That filter only restores the guest's verdict
//! for the calls that the set-up needed. It is short, because loading it is part of every start. The
//! kernel runs both filters and takes the stricter answer. Of two error numbers it takes the one from
//! the filter loaded last, so together the filters answer as the guest's table says.
//!
//! A worker's supervisor hears of some calls that are refused with `EPERM`, and of those that a policy
//! denies, and answers them with that error (seccomp_unotify(2)): so an outcome tells of calls that the
//! guest's code hides, or that a program makes.

mod assemble;
mod compile;
mod error;
mod names;
mod preset;
mod rule;
#[cfg(test)]
mod tests;

use sandfork_jail::program::BpfProgram;

pub use crate::host::Arch;
#[cfg(any(test, feature = "internals"))]
pub use compile::compile;
pub use compile::{check, compile_with, egress_filter, may_be_allowed};
pub use error::SeccompError;
#[cfg(any(test, feature = "internals"))]
pub use names::syscalls;
pub use names::{known_syscall, syscall_name, syscall_number};
pub use preset::{HOST_WRITES, Preset, UNCOUNTED};
pub use rule::{Check, Errno, Grant, Rule, Verdict};

/// The other layers between the guest and the host. They decide which calls are harmless.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Surroundings {
    /// With namespaces: no process, socket, ipc object or path of the host is visible.
    Namespaces,
    /// The same, with a loopback interface in the worker's own network namespace.
    Loopback,
    /// Level `landlock`: these are visible, and only Landlock and these filters protect them.
    SharedHost {
        /// The kernel's Landlock ABI.
        landlock_abi: u32,
    },
}

/// The filters of one plan, each list in the order in which it is loaded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Filters {
    /// Loaded by the zygote, once, before `site` and the preloaded packages.
    pub zygote: Vec<BpfProgram>,
    /// Loaded by each worker as the last step of its jail.
    pub worker: Vec<BpfProgram>,
}
