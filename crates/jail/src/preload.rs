//! Directories for packages to write to while the zygote preloads them.
//!
//! Some packages make a cache at their import, and joblib tests semaphores, which are files in `/dev/shm`.
//! The zygote has them in a mount namespace of its own, which ends before the first worker: what a package
//! writes there reaches no worker, and so is no channel between tenants.

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

/// The largest size of each directory, bytes: whatever workers may have, a cache is smaller.
const MAX_SIZE: u64 = 64 << 20;
/// The largest number of files in each.
const MAX_INODES: u64 = 4096;

const MOUNT_NAMESPACE: &str = "self/ns/mnt";

/// The way back out of the mount namespace in which packages are preloaded.
pub struct Preload {
    home: OwnedFd,
    link: String,
}

impl Preload {
    /// Enters a mount namespace with empty directories where workers have theirs. Modules also find there the files
    /// that describe the machine to workers.
    pub(super) fn enter(
        worker: &WorkerJail,
        modules: &[PreloadModule],
        proc: BorrowedFd,
    ) -> Result<Self, Failure> {
        let preload = Self::unshare(proc).in_step(Step::PreloadDirectories)?;
        let bounded: Vec<Tmpfs> = worker.tmpfs.iter().map(bounded).collect();
        root::mount_directories(&bounded)?;
        // Packages keep what they read at their import.
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
        // Otherwise the mounts would stay, where workers start from.
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
