//! Defines seccomp filters (seccomp(2)) as data, and compiles them to programs for the kernel.
//!
//! Filters are loaded in two stages. The zygote's filter is an allow-list of the calls that guests may make
//! and the calls that the jail's set-up still needs. It is loaded once, before modules are preloaded. Each
//! worker loads a second filter last, which only restores the guest's verdict for the calls that the set-up
//! needed. That filter is short, because loading it is part of every start. The kernel runs both filters and
//! takes the stricter answer. Of two error numbers it takes the one of the filter that was loaded last, so
//! together the filters implement the guest's table.
//!
//! Some calls that are refused with `EPERM`, and those that a policy denies, are reported to the worker's
//! supervisor, which answers them with that error (seccomp_unotify(2)). An outcome can therefore list calls
//! whose refusal the guest's code hides, and calls of programs.

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

/// The other layers between the guest and the host, which decide which calls are harmless.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Surroundings {
    /// With namespaces: the host's processes, sockets, IPC objects and paths are invisible.
    Namespaces,
    /// Like `Namespaces`, with a loopback interface in the worker's network namespace.
    Loopback,
    /// Level `landlock`: the host is visible, and only Landlock and these filters protect it.
    SharedHost {
        /// The kernel's Landlock ABI.
        landlock_abi: u32,
    },
}

/// The filters of one plan, each list in the order of loading.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Filters {
    /// The filters that the zygote loads once, before `site` and the preloaded packages.
    pub zygote: Vec<BpfProgram>,
    /// The filters that each worker loads as the last step of its jail.
    pub worker: Vec<BpfProgram>,
}
