//! Drops scheduling priority inherited from the caller.
//!
//! A fork inherits all of it: the guest of a real-time process would run before everything else on
//! its processors, and no cgroup limits a process that its weights do not cover. A lower than
//! normal priority stays.

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

use crate::sys::scheduling::{self, Policy};

/// Gives up the calling process's raised priorities and the right to regain them.
pub fn drop_priority() -> Result<(), Errno> {
    if scheduling::policy()?.is_real_time() {
        scheduling::set_policy(Policy::OTHER)?;
    }
    if scheduling::nice()? < 0 {
        scheduling::set_nice(0)?;
    }
    match scheduling::is_real_time_io() {
        Ok(true) => scheduling::set_ordinary_io()?,
        // A kernel without block devices has no classes.
        Ok(false) | Err(Errno::ENOSYS) => {}
        Err(errno) => return Err(errno),
    }
    // These two limits would let any process regain the first two, as host limits for audio
    // programs allow.
    setrlimit(Resource::RLIMIT_RTPRIO, 0, 0)?;
    setrlimit(Resource::RLIMIT_NICE, 0, 0)
}
