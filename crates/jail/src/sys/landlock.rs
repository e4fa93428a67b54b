//! Enforces a Landlock ruleset that was built earlier (landlock_restrict_self(2)).
//!
//! The `landlock` crate builds rulesets. Its own enforcement also sets `no_new_privs` and reports degrees of success.
//! The jail has a separate step for each and needs only success or failure.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::check;

/// Enforces the ruleset on the calling thread. Requires `no_new_privs`.
pub fn restrict_self(ruleset: BorrowedFd) -> Result<(), Errno> {
    // SAFETY: integer arguments only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
    Ok(())
}
