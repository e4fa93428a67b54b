//! Removes a guest's files while the guest may create more.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::beneath::{DIRECTORY, HANDLE, open_beneath};
use super::list::names;
use super::{Act, FileError, GuestPath, WorkDir};
use crate::supervisor::session_dir::make_usable;

/// The extent of a removal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Removal {
    /// One entry, which must be empty if it is a directory.
    Single,
    /// A directory with everything in it.
    Tree,
}

/// The maximum number of entries that one request removes or revisits: a guest could create entries as fast as they are
/// removed.
const MAX_ENTRIES: usize = 100_000;

/// The maximum number of names of a directory held in memory at once.
const BATCH: usize = 1024;

impl WorkDir<'_> {
    /// Removes the entry at a path. Removes a symbolic link itself, not its target.
    ///
    /// # Errors
    ///
    /// If no entry exists, or it cannot be removed. Part of a tree may have been removed by then.
    pub fn remove(&self, path: &GuestPath, removal: Removal) -> Result<(), FileError> {
        if path.names.is_empty() {
            return Err(FileError::Root(Act::Remove));
        }
        self.as_guest(path, Act::Remove, || match removal {
            Removal::Single => self
                .remove_single(path)
                .map_err(|errno| FileError::failed(path, Act::Remove, errno)),
            Removal::Tree => self.remove_tree(path),
        })
    }

    fn remove_single(&self, path: &GuestPath) -> Result<(), Errno> {
        let (above, name) = path.split().ok_or(Errno::EBUSY)?;
        let above = open_beneath(self.directory, &above.to_c(), DIRECTORY)?;
        let name = CString::new(name).map_err(|_| Errno::EINVAL)?;
        match unlink(above.as_fd(), &name) {
            Err(Errno::EISDIR) => unlinkat(&above, name.as_c_str(), UnlinkatFlags::RemoveDir),
            other => other,
        }
    }

    fn remove_tree(&self, path: &GuestPath) -> Result<(), FileError> {
        let failed = |errno| FileError::failed(path, Act::Remove, errno);
        match self.remove_single(path) {
            Err(Errno::ENOTEMPTY) => {}
            other => return other.map_err(failed),
        }
        let mut tree = Tree {
            work: *self,
            path: path.to_string().into_bytes(),
            above: Vec::new(),
            left: MAX_ENTRIES,
        };
        match tree.remove() {
            Ok(()) => Ok(()),
            Err(Stopped::Failed(errno)) => Err(failed(errno)),
            Err(Stopped::TooMany) => Err(FileError::TooMany {
                path: path.to_string(),
                act: Act::Remove,
                limit: MAX_ENTRIES,
            }),
        }
    }
}

/// Removes an entry that is neither a directory nor a mount point. From outside the guest's mount namespace, the kernel
/// would otherwise remove a mount point together with its mount.
fn unlink(directory: BorrowedFd, name: &CStr) -> Result<(), Errno> {
    open_beneath(directory, name, HANDLE)?;
    unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)
}

enum Stopped {
    Failed(Errno),
    TooMany,
}

impl From<Errno> for Stopped {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// A tree under removal. Every directory is opened by its whole path from the work directory: a directory that was
/// moved away is then not found, and one descriptor suffices at any depth.
struct Tree<'a> {
    work: WorkDir<'a>,
    /// The directory being emptied.
    path: Vec<u8>,
    /// For each directory between the tree's root and the current one: the length of its path, and its subdirectories
    /// still to visit.
    above: Vec<(usize, Vec<CString>)>,
    /// The number of entries after which the removal gives up.
    left: usize,
}

impl Tree<'_> {
    fn remove(&mut self) -> Result<(), Stopped> {
        loop {
            self.count()?;
            let inner = self.empty()?;
            if let Some(next) = self.descend(inner) {
                self.enter(&next);
                continue;
            }
            // Not empty if there was more than one batch, or if the guest added an entry.
            let emptied = match self.remove_directory() {
                Err(Errno::ENOTEMPTY) => false,
                // The guest removed or replaced the directory first. A replacement is removed with the rest of its
                // parent, if that is in this tree.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => true,
                other => other.map(|()| true)?,
            };
            if emptied && !self.ascend() {
                return Ok(());
            }
        }
    }

    /// Counts one more entry, or one more visit to a directory.
    fn count(&mut self) -> Result<(), Stopped> {
        self.left = self.left.checked_sub(1).ok_or(Stopped::TooMany)?;
        Ok(())
    }

    /// Removes the directory's entries other than subdirectories. Returns some of the subdirectories.
    fn empty(&mut self) -> Result<Vec<CString>, Stopped> {
        let mut listing = match self.open() {
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(Vec::new()),
            other => other?,
        };
        let mut inner = Vec::new();
        for name in names(&mut listing, BATCH)? {
            self.count()?;
            match unlink(listing.as_fd(), &name) {
                Err(Errno::EISDIR) => inner.push(name),
                Err(Errno::ENOENT) => {}
                other => other?,
            }
        }
        Ok(inner)
    }

    /// Opens the directory, even if its owner has removed its own access.
    fn open(&self) -> Result<Dir, Errno> {
        let path = self.c_path()?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        let handle = open_beneath(self.work.directory, &path, DIRECTORY)?;
        if !Mode::from_bits_truncate(fstat(&handle)?.st_mode).contains(Mode::S_IRWXU) {
            // Uses the descriptor, because the path may lead elsewhere by now.
            make_usable(handle.as_fd())?;
        }
        Dir::from_fd(open_beneath(&handle, c".", flags)?)
    }

    fn c_path(&self) -> Result<CString, Errno> {
        CString::new(self.path.as_slice()).map_err(|_| Errno::EINVAL)
    }

    /// Records the subdirectories of this directory. Returns the first one to visit.
    fn descend(&mut self, mut inner: Vec<CString>) -> Option<CString> {
        let first = inner.pop()?;
        self.above.push((self.path.len(), inner));
        Some(first)
    }

    fn enter(&mut self, name: &CStr) {
        self.path.push(b'/');
        self.path.extend_from_slice(name.to_bytes());
    }

    /// Moves to the next sibling directory, or else to the parent. Returns false at the tree's root.
    fn ascend(&mut self) -> bool {
        let Some((length, beside)) = self.above.last_mut() else {
            return false;
        };
        self.path.truncate(*length);
        match beside.pop() {
            Some(name) => self.enter(&name),
            None => drop(self.above.pop()),
        }
        true
    }

    fn remove_directory(&self) -> Result<(), Errno> {
        let slash = self.path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match slash {
            Some(slash) => (&self.path[..slash], &self.path[slash + 1..]),
            None => (b".".as_slice(), self.path.as_slice()),
        };
        let above = CString::new(above).map_err(|_| Errno::EINVAL)?;
        let above = open_beneath(self.work.directory, &above, DIRECTORY)?;
        unlinkat(&above, name, UnlinkatFlags::RemoveDir)
    }
}
