//! Enforcing a Landlock ruleset that was built earlier (landlock_restrict_self(2)).
//!
//! The `landlock` crate builds rulesets; its own way of enforcing one also sets `no_new_privs` and
//! reports degrees of success, where the jail has one step for each and only two answers.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::check;

/// Enforces the ruleset on this thread. Needs `no_new_privs`.
pub fn restrict_self(ruleset: BorrowedFd) -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
    Ok(())
}
