//! Making directories.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fchmod, mkdirat};

use super::beneath::{DIRECTORY, open_beneath};
use super::{Act, FileError, GuestPath, WorkDir};

/// What becomes of directories above the one that is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parents {
    /// They have to be there, and the directory itself must not.
    Required,
    /// They are made too, and so is the directory itself, unless it is there.
    Made,
}

/// Rights of a directory that was made from outside.
const MODE: Mode = Mode::S_IRWXU
    .union(Mode::S_IRGRP)
    .union(Mode::S_IXGRP)
    .union(Mode::S_IROTH)
    .union(Mode::S_IXOTH);

impl WorkDir<'_> {
    /// Makes a directory, as the guest's own.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or something else is there.
    pub fn make_dir(&self, path: &GuestPath, parents: Parents) -> Result<(), FileError> {
        self.as_guest(path, Act::MakeDirectory, || {
            let made = match parents {
                Parents::Required => self.make_one(path),
                Parents::Made => self.make_all(path),
            };
            made.map_err(|errno| FileError::failed(path, Act::MakeDirectory, errno))
        })
    }

    fn make_one(&self, path: &GuestPath) -> Result<(), Errno> {
        let (above, name) = path.split().ok_or(Errno::EEXIST)?;
        let above = open_beneath(self.directory, &above.to_c(), DIRECTORY)?;
        make(above.as_fd(), name).map(drop)
    }

    fn make_all(&self, path: &GuestPath) -> Result<(), Errno> {
        let mut above: Option<OwnedFd> = None;
        for name in path.names() {
            let directory = above.as_ref().map_or(self.directory, AsFd::as_fd);
            let made = match make(directory, name) {
                Err(Errno::EEXIST) => open_beneath(directory, &c_name(name)?, DIRECTORY)?,
                other => other?,
            };
            above = Some(made);
        }
        Ok(())
    }
}

/// Makes a directory in another; a handle on it.
fn make(above: BorrowedFd, name: &str) -> Result<OwnedFd, Errno> {
    let name = c_name(name)?;
    mkdirat(above, name.as_c_str(), MODE)?;
    let made = open_beneath(above, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    // Whatever the umask.
    fchmod(&made, MODE)?;
    Ok(made)
}

fn c_name(name: &str) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::EINVAL)
}
