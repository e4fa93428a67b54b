//! Whether the kernel has Landlock (Documentation/userspace-api/landlock.rst).

use nix::errno::Errno;

use sandfork_jail::sys;

/// The kernel's support for Landlock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LandlockSupport {
    /// Landlock is available, with this ABI. Holds the ABI, from 1.
    Abi(u32),
    /// Landlock is built in, but not among the security modules chosen at boot (`EOPNOTSUPP`).
    NotEnabled,
    /// A seccomp filter around this process refuses its calls (`EPERM`).
    Filtered,
    /// Landlock is missing in this kernel, or hidden by such a filter (`ENOSYS`).
    NotBuilt,
}

impl LandlockSupport {
    /// The ABI, if Landlock can be used.
    pub fn abi(self) -> Option<u32> {
        match self {
            Self::Abi(abi) => Some(abi),
            Self::NotEnabled | Self::Filtered | Self::NotBuilt => None,
        }
    }

    pub(super) fn probe() -> Self {
        match sys::support::landlock_abi() {
            Ok(abi @ 1..) => Self::Abi(abi),
            Err(Errno::EOPNOTSUPP) => Self::NotEnabled,
            Err(Errno::EPERM) => Self::Filtered,
            Ok(0) | Err(_) => Self::NotBuilt,
        }
    }
}
