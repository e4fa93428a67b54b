//! Removes a directory tree that a guest created. The tree may be deeper than the descriptor limit, its directories may
//! deny access to their owner, and its links may point anywhere.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::DIRECTORY;
use crate::supervisor::files::names;
use sandfork_jail::sys::errno_of;

/// Removes the directory of an ended supervisor, with the directories of its sessions.
pub fn remove_root(place: BorrowedFd, name: &CStr) -> Result<(), Errno> {
    let root = open_up(place, name)?;
    for session in entries(&root)? {
        remove_tree(root.as_fd(), &session)?;
    }
    unlinkat(place, name, UnlinkatFlags::RemoveDir)
}

/// Removes the directory `name` of `parent` with its contents.
///
/// Subdirectories are first moved up into `parent`, where no guest can write. No path then has more than one component,
/// a few descriptors suffice for any depth, and links are removed without being followed.
pub fn remove_tree(parent: BorrowedFd, name: &CStr) -> Result<(), Errno> {
    let mut left = vec![name.to_owned()];
    while let Some(name) = left.pop() {
        let dir = open_up(parent, &name)?;
        for entry in entries(&dir)? {
            match unlinkat(&dir, entry.as_c_str(), UnlinkatFlags::NoRemoveDir) {
                Err(Errno::EISDIR) => left.push(move_up(&dir, &entry, parent)?),
                other => other?,
            }
        }
        unlinkat(parent, name.as_c_str(), UnlinkatFlags::RemoveDir)?;
    }
    Ok(())
}

/// Opens a directory, restoring its owner's access if the guest has removed it.
fn open_up(parent: BorrowedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let handle = openat(parent, name, flags, Mode::empty())?;
    if fstat(&handle)?.st_mode & 0o700 != 0o700 {
        make_usable(handle.as_fd())?;
    }
    openat(&handle, c".", DIRECTORY, Mode::empty())
}

/// Sets the mode of a directory to 0700. Works on the descriptor, so that no name is looked up.
pub fn make_usable(handle: BorrowedFd) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(errno_of)
}

fn entries(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut listing = Dir::openat(dir, c".", DIRECTORY, Mode::empty())?;
    names(&mut listing, usize::MAX)
}

/// Moves a directory into `parent`, under an unused name.
fn move_up(dir: &OwnedFd, entry: &CStr, parent: BorrowedFd) -> Result<CString, Errno> {
    static MOVED: AtomicU64 = AtomicU64::new(0);
    // Moving a directory to another parent updates its `..` entry, for which the kernel requires write access to it.
    drop(open_up(dir.as_fd(), entry)?);
    loop {
        let number = MOVED.fetch_add(1, Ordering::Relaxed);
        let name =
            CString::new(format!("r{}-{number}", std::process::id())).map_err(|_| Errno::EINVAL)?;
        match renameat(dir, entry, parent, name.as_c_str()) {
            // Left over from a removal that failed.
            Err(Errno::EEXIST | Errno::ENOTEMPTY) => {}
            other => return other.map(|()| name),
        }
    }
}
