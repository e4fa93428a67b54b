//! Joining the cgroups that the supervisor prepared (cgroups(7)).

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::unistd::write;

/// Moves the caller into the cgroups whose `tasks` (v1) or `cgroup.procs` (v2) files these are.
///
/// The worker writes "0", itself: the kernel moves a single current thread without the lock that
/// stops every fork on the machine, which moving another process takes. The files were opened by
/// the supervisor, whose right to move processes they carry.
pub fn join(files: &[OwnedFd]) -> Result<(), Errno> {
    for file in files {
        write(file, b"0")?;
    }
    Ok(())
}
