//! Opens regular files for callers that transfer their contents.

use std::fs::File;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fchmod, fstat};

use super::beneath::{ATTEMPTS, HANDLE, create_beneath, kind_of, open_beneath, reopen};
use super::list::EntryKind;
use super::{Act, FileError, GuestPath, LentFiles, WorkDir};
use crate::supervisor::as_guest::as_guest;
use sandfork_jail::sys::{self, errno_of};

/// How an open treats the existing contents of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Contents {
    /// The file is truncated.
    Replaced,
    /// New bytes are appended.
    Kept,
}

/// The mode of a file that the host creates: the guest may read and write it.
const MODE: Mode = Mode::S_IRUSR
    .union(Mode::S_IWUSR)
    .union(Mode::S_IRGRP)
    .union(Mode::S_IROTH);

impl WorkDir<'_> {
    /// Opens a regular file for reading. Returns it with its current size in bytes. The guest may keep writing to the
    /// file or truncate it, so it must be read and not mapped.
    ///
    /// # Errors
    ///
    /// If the file does not exist, or is not a regular file.
    pub fn open_read(&self, path: &GuestPath) -> Result<(File, u64), FileError> {
        let failed = |errno| FileError::failed(path, Act::Read, errno);
        let handle = open_beneath(self.directory, &path.to_c(), HANDLE).map_err(failed)?;
        require_regular(path, Act::Read, kind_of(&handle).map_err(failed)?)?;
        let file = File::from(reopen(&handle, OFlag::O_RDONLY).map_err(failed)?);
        let size = file.metadata().map_err(|error| failed(errno_of(error)))?;
        Ok((file, size.len()))
    }

    /// Opens a regular file for writing. Creates one that the guest owns if none exists.
    ///
    /// # Errors
    ///
    /// If the file cannot be created, or the path names another kind of entry.
    pub fn open_write(&self, path: &GuestPath, contents: Contents) -> Result<File, FileError> {
        self.as_guest(path, Act::Write, || self.open_or_make(path, contents))
    }

    /// Removes the files from `lent` that no process has open for writing. The kernel does not report which process has
    /// a file open: if the guest opens a file before it is removed here, the file stays listed until both the caller
    /// and the guest have closed it.
    pub fn forget_unwritten(&self, lent: &mut LentFiles) {
        // If the check fails, all files stay listed.
        _ = as_guest(self.guest, || {
            lent.retain(|inode, path| self.may_be_written(*inode, path));
            Ok(())
        });
    }

    fn may_be_written(&self, inode: u64, path: &GuestPath) -> bool {
        let Ok((file, _)) = self.open_read(path) else {
            return true;
        };
        let is_same = fstat(&file).is_ok_and(|stat| stat.st_ino == inode);
        !is_same || sys::lease::is_written(file.as_fd()) != Ok(false)
    }

    fn open_or_make(&self, path: &GuestPath, contents: Contents) -> Result<File, FileError> {
        let failed = |errno| FileError::failed(path, Act::Write, errno);
        let (made, found) = match contents {
            Contents::Replaced => (OFlag::O_WRONLY, OFlag::O_WRONLY | OFlag::O_TRUNC),
            Contents::Kept => {
                let appending = OFlag::O_WRONLY | OFlag::O_APPEND;
                (appending, appending)
            }
        };
        let name = path.to_c();
        for _ in 0..ATTEMPTS {
            match create_beneath(self.directory, &name, made, MODE) {
                Ok(file) => {
                    // Sets the mode regardless of the umask.
                    fchmod(&file, MODE).map_err(failed)?;
                    return Ok(File::from(file));
                }
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            match open_beneath(self.directory, &name, HANDLE) {
                Ok(handle) => {
                    require_regular(path, Act::Write, kind_of(&handle).map_err(failed)?)?;
                    return reopen(&handle, found).map(File::from).map_err(failed);
                }
                // The file was removed meanwhile.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::EAGAIN))
    }
}

fn require_regular(path: &GuestPath, act: Act, kind: EntryKind) -> Result<(), FileError> {
    match kind {
        EntryKind::File => Ok(()),
        kind => Err(FileError::NotRegular {
            path: path.to_string(),
            act,
            kind,
        }),
    }
}
