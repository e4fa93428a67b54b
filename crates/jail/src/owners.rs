//! Maps the owner of a writable directory to the guest of a root launcher, so that files that the guest writes there
//! belong to that owner (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
//!
//! The guest of a root launcher runs as an unprivileged user, who could write to few directories and whose files would
//! belong to a uid without an account. In an id-mapped mount the guest acts as the directory's owner, in that directory
//! only.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};
use nix::sys::wait::waitpid;
use nix::unistd::{pipe2, read};

use super::program::HostIds;
use super::{identity, namespaces};
use crate::sys;
use crate::sys::process::{Fork, SingleThreaded};

/// Creates user namespaces that map the owner of a tree to the guests of a root launcher.
pub struct Owners<'a> {
    /// Proof that the calling process may fork.
    pub single: &'a SingleThreaded,
    /// A procfs that shows the calling process.
    pub proc: BorrowedFd<'a>,
    /// The guests' ids on the host.
    pub guest: HostIds,
}

impl Owners<'_> {
    /// Creates a user namespace that swaps the tree's owner and the guest. A child enters the new namespace and waits,
    /// while this process writes the id maps. The namespace lives as long as the returned descriptor.
    pub fn map(&self, tree: impl AsFd) -> Result<OwnedFd, Errno> {
        let found = fstat(tree)?;
        let owner = HostIds {
            uid: found.st_uid,
            gid: found.st_gid,
        };
        let (ready, ready_writer) = pipe2(OFlag::O_CLOEXEC)?;
        let (release, release_writer) = pipe2(OFlag::O_CLOEXEC)?;
        match sys::process::fork(self.single)? {
            Fork::Child(_) => {
                drop((ready, release_writer));
                let entered = namespaces::unshare_user().is_ok();
                drop(ready_writer);
                _ = await_end(&release);
                sys::process::exit_now(i32::from(!entered))
            }
            Fork::Parent(child) => {
                drop((ready_writer, release));
                let process = child.to_string();
                let map = || -> Result<OwnedFd, Errno> {
                    await_end(&ready)?;
                    identity::map_swapped(self.proc, &process, owner, self.guest)?;
                    let name = format!("{process}/ns/user");
                    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
                    openat(self.proc, name.as_str(), flags, Mode::empty())
                };
                let mapped = map();
                drop(release_writer);
                _ = sys::uninterrupted(|| waitpid(child, None));
                mapped
            }
        }
    }
}

/// Waits for EOF on a pipe that carries no data.
pub fn await_end(pipe: &OwnedFd) -> Result<(), Errno> {
    sys::uninterrupted(|| read(pipe, &mut [0])).map(drop)
}
