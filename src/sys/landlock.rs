//! Enforcing a Landlock ruleset that was built earlier (landlock_restrict_self(2)).
//!
//! The `landlock` crate builds rulesets; it enforces one only in the process that built it, while
//! ours is built once by the zygote and enforced by each worker.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::check;

/// Enforces the ruleset on this thread. Needs `no_new_privs`.
pub fn restrict_self(ruleset: BorrowedFd) -> Result<(), Errno> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
    Ok(())
}
