//! What a guest must not have of a caller that the host prefers.
//!
//! All of it is inherited by fork: a guest of a real-time process would run before everything else
//! on its processors, and no cgroup holds back what is not weighed by one. What is preferred less
//! than usual stays so.

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

use crate::sys::scheduling::{self, Policy};

/// Gives up whatever the calling process is preferred for, and the right to have it again.
pub fn give_up() -> Result<(), Errno> {
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
    // By these anybody may take the first two, as the host's limits for sound programs have it.
    setrlimit(Resource::RLIMIT_RTPRIO, 0, 0)?;
    setrlimit(Resource::RLIMIT_NICE, 0, 0)
}
