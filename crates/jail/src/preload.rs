//! Provides writable directories to packages while the zygote preloads them.
//!
//! Some packages create a cache when they are imported, and joblib tests semaphores, which are files in `/dev/shm`. The
//! directories are mounted in a separate mount namespace, which the zygote leaves before it forks the first worker.
//! Files that a package writes there reach no worker, and so are no channel between tenants.

use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;

use super::control::PreloadModule;
use super::failure::{Failure, InStep, NOT_REFUSED, Step};
use super::program::{ProcMount, Programs, Tmpfs, WorkerJail};
use super::root;
use crate::sys::procfs;

/// The maximum size of each directory, bytes. It does not depend on the policy, because caches of imports are small.
const MAX_SIZE: u64 = 64 << 20;
/// The maximum number of inodes in each directory.
const MAX_INODES: u64 = 4096;

const MOUNT_NAMESPACE: &str = "self/ns/mnt";

/// The zygote's original mount namespace, to return to after preloading.
pub struct Preload {
    home: OwnedFd,
    link: String,
}

impl Preload {
    /// Enters a mount namespace with empty directories where workers have theirs. If there are modules to preload, it
    /// also has the files that describe the machine to workers.
    pub(super) fn enter(
        worker: &WorkerJail,
        modules: &[PreloadModule],
        proc: BorrowedFd,
    ) -> Result<Self, Failure> {
        let preload = Self::unshare(proc).in_step(Step::PreloadDirectories)?;
        let bounded: Vec<Tmpfs> = worker.tmpfs.iter().map(bounded).collect();
        root::mount_directories(&bounded)?;
        // Packages retain what they read from these files when they are imported.
        if worker.proc == ProcMount::Own && !modules.is_empty() {
            root::mount_proc_files()?;
        }
        Ok(preload)
    }

    fn unshare(proc: BorrowedFd) -> Result<Self, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let home = openat(proc, MOUNT_NAMESPACE, flags, Mode::empty())?;
        let link = procfs::link(proc, MOUNT_NAMESPACE)?;
        unshare(CloneFlags::CLONE_NEWNS)?;
        // If the kernel ignored the call, the mounts would stay in the namespace that workers start from.
        if procfs::link(proc, MOUNT_NAMESPACE)? == link {
            return Err(NOT_REFUSED);
        }
        Ok(Self { home, link })
    }

    pub(super) fn leave(self, proc: BorrowedFd) -> Result<(), Errno> {
        setns(&self.home, CloneFlags::CLONE_NEWNS)?;
        if procfs::link(proc, MOUNT_NAMESPACE)? == self.link {
            Ok(())
        } else {
            Err(NOT_REFUSED)
        }
    }
}

fn bounded(tmpfs: &Tmpfs) -> Tmpfs {
    Tmpfs {
        size: tmpfs.size.min(MAX_SIZE),
        inodes: tmpfs.inodes.min(MAX_INODES),
        programs: Programs::Refused,
        ..tmpfs.clone()
    }
}
