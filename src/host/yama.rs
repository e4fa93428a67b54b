//! Reads the setting of Yama, a security module that restricts which processes may trace others
//! (Documentation/admin-guide/LSM/Yama.rst).

use std::fs;

/// Which processes may trace others on this host.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Tracing {
    /// Every process may trace at least its descendants.
    Allowed,
    /// Only a process with privilege over the target's user namespace, which the namespace's creator has
    /// (`kernel.yama.ptrace_scope=2`).
    Privileged,
    /// No process may trace another (`kernel.yama.ptrace_scope=3`).
    Forbidden,
}

/// Reads the current setting.
pub fn tracing() -> Tracing {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref().map(str::trim_end) {
        Ok("2") => Tracing::Privileged,
        Ok("3") => Tracing::Forbidden,
        _ => Tracing::Allowed,
    }
}
