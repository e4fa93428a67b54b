//! seccomp filters (seccomp(2)): rules as data, compiled to programs for the kernel.
//!
//! Two loads. The zygote's filter is an allow-list: what guests may call and what the jail's set-up
//! still needs; it is loaded once, before anything is preloaded. The worker's filter comes last in
//! each worker and only puts the guest's verdict back where the set-up had more: it is short, because
//! its load is part of every start. The kernel asks both and takes the stricter answer, and of two
//! error numbers that of the filter loaded last, so together they answer as the guest's table says.

mod assemble;
mod compile;
mod error;
mod names;
mod preset;
mod rule;
#[cfg(test)]
mod tests;

use crate::jail::program::BpfProgram;

pub use crate::host::Arch;
pub use compile::compile;
pub use error::SeccompError;
pub use names::{known_syscall, syscall_number, syscalls};
pub use preset::Preset;
pub use rule::{Check, Errno, Grant, Rule, Verdict};

/// What else stands between the guest and the host: it decides which calls are harmless.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Surroundings {
    /// Namespaces of its own: no process, socket, ipc object or path of the host is in sight.
    Namespaces,
    /// Level `landlock`: they are in sight, and only Landlock and these filters protect them.
    SharedHost {
        /// What this kernel's Landlock can handle.
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

impl Filters {
    /// How many instructions the zygote loads. The kernel accepts 4096 a program.
    pub fn zygote_instructions(&self) -> usize {
        self.zygote.iter().map(Vec::len).sum()
    }

    /// How many instructions each worker loads: the longer, the slower every start.
    pub fn worker_instructions(&self) -> usize {
        self.worker.iter().map(Vec::len).sum()
    }
}
