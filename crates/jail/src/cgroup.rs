//! Joins the cgroups that the supervisor prepared (cgroups(7)).

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::write;

/// Moves the caller into cgroups, given their open `tasks` (v1) or `cgroup.procs` (v2) files.
///
/// The worker writes "0" itself: the kernel moves a single thread that is the writer without the lock that blocks every
/// fork on the machine. Moving another process takes that lock. The supervisor opened the files, and its permission to
/// move processes comes with them.
pub fn join(files: &[OwnedFd]) -> Result<(), Errno> {
    for file in files {
        write(file, b"0")?;
    }
    Ok(())
}
