//! Determines whether the kernel supports Landlock (Documentation/userspace-api/landlock.rst).

use nix::errno::Errno;

use sandfork_jail::sys;

/// The kernel's support for Landlock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LandlockSupport {
    /// Landlock is available. Holds the ABI version, from 1.
    Abi(u32),
    /// Landlock is built in but was not enabled at boot (`EOPNOTSUPP`).
    NotEnabled,
    /// A seccomp filter around this process denies the Landlock system calls (`EPERM`).
    Filtered,
    /// This kernel lacks Landlock, or a seccomp filter hides it (`ENOSYS`).
    NotBuilt,
}

impl LandlockSupport {
    /// Returns the ABI version, if Landlock can be used.
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
