//! Drops scheduling priority inherited from the caller.
//!
//! A fork inherits its parent's priority. The guest of a real-time process would run before everything else on its
//! processors, and cgroup weights do not cover real-time processes. A priority lower than normal is kept.

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

use crate::sys::scheduling::{self, Policy};

/// Gives up the calling process's raised priorities and the permission to regain them.
pub fn drop_priority() -> Result<(), Errno> {
    if scheduling::policy()?.is_real_time() {
        scheduling::set_policy(Policy::OTHER)?;
    }
    if scheduling::nice()? < 0 {
        scheduling::set_nice(0)?;
    }
    match scheduling::is_real_time_io() {
        Ok(true) => scheduling::set_ordinary_io()?,
        // A kernel without block devices has no I/O classes.
        Ok(false) | Err(Errno::ENOSYS) => {}
        Err(errno) => return Err(errno),
    }
    // These two limits would let any process regain the first two priorities, as host settings for audio programs
    // allow.
    setrlimit(Resource::RLIMIT_RTPRIO, 0, 0)?;
    setrlimit(Resource::RLIMIT_NICE, 0, 0)
}
