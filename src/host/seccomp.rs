//! Determines whether the kernel supports seccomp filters (seccomp(2)).

use nix::errno::Errno;

use sandfork_jail::sys;

/// The kernel's support for seccomp filters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SeccompSupport {
    /// Filters can be loaded, including filters that kill a process.
    Available,
    /// A filter around this process denies loading more (`EPERM`).
    Filtered,
    /// This kernel does not support seccomp filters.
    Missing,
}

impl SeccompSupport {
    pub(super) fn probe() -> Self {
        match sys::support::seccomp_filters() {
            Ok(()) => Self::Available,
            Err(Errno::EPERM) => Self::Filtered,
            Err(_) => Self::Missing,
        }
    }
}
