//! Makes the owner of a writable directory the owner of the files that a guest of root writes there
//! (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
//!
//! Root's guests are an unprivileged user, who could write to few directories, and whose files would
//! belong to a user that no account has. In an id-mapped mount the guest takes the place of the
//! directory's owner, in that directory and nowhere else.

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

/// Makes user namespaces that map the owner of a tree to the guests of root.
pub struct Owners<'a> {
    /// The calling process may fork.
    pub single: &'a SingleThreaded,
    /// A procfs that shows the calling process.
    pub proc: BorrowedFd<'a>,
    /// The guests' ids on the host.
    pub guest: HostIds,
}

impl Owners<'_> {
    /// A user namespace lives as long as its descriptor. The process that makes it does nothing else.
    pub fn map(&self, tree: impl AsFd) -> Result<OwnedFd, Errno> {
        let found = fstat(tree)?;
        let owner = HostIds {
            uid: found.st_uid,
            gid: found.st_gid,
        };
        let (made, tell) = pipe2(OFlag::O_CLOEXEC)?;
        let (wait, go) = pipe2(OFlag::O_CLOEXEC)?;
        match sys::process::fork(self.single)? {
            Fork::Child(_) => {
                drop((made, go));
                let entered = namespaces::unshare_user().is_ok();
                drop(tell);
                _ = await_end(&wait);
                sys::process::exit_now(i32::from(!entered))
            }
            Fork::Parent(child) => {
                drop((tell, wait));
                let process = child.to_string();
                let map = || -> Result<OwnedFd, Errno> {
                    await_end(&made)?;
                    identity::map_swapped(self.proc, &process, owner, self.guest)?;
                    let name = format!("{process}/ns/user");
                    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
                    openat(self.proc, name.as_str(), flags, Mode::empty())
                };
                let mapped = map();
                drop(go);
                _ = sys::uninterrupted(|| waitpid(child, None));
                mapped
            }
        }
    }
}

/// Waits for the end of file of a pipe that carries no data.
pub fn await_end(pipe: &OwnedFd) -> Result<(), Errno> {
    sys::uninterrupted(|| read(pipe, &mut [0])).map(drop)
}
