//! Yama, a security module that restricts which processes may trace others
//! (Documentation/admin-guide/LSM/Yama.rst).

use std::fs;

/// What the host allows.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Tracing {
    /// At least to trace descendants.
    Allowed,
    /// Only with privilege over the other's user namespace, which its maker has (`kernel.yama.ptrace_scope=2`).
    Privileged,
    /// To no process (`kernel.yama.ptrace_scope=3`).
    Forbidden,
}

/// What the host allows at the moment.
pub fn tracing() -> Tracing {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref().map(str::trim_end) {
        Ok("2") => Tracing::Privileged,
        Ok("3") => Tracing::Forbidden,
        _ => Tracing::Allowed,
    }
}
