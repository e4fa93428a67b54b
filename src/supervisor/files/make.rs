//! Creates directories.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, fchmod, mkdirat};

use super::beneath::{DIRECTORY, open_beneath};
use super::{Act, FileError, GuestPath, WorkDir};

/// How parent directories are handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parents {
    /// The parents must exist, and the directory itself must not.
    Required,
    /// Missing parents are created. The directory itself is created unless it exists.
    Made,
}

/// The mode of a directory that the host creates.
const MODE: Mode = Mode::S_IRWXU
    .union(Mode::S_IRGRP)
    .union(Mode::S_IXGRP)
    .union(Mode::S_IROTH)
    .union(Mode::S_IXOTH);

impl WorkDir<'_> {
    /// Creates a directory that the guest owns.
    ///
    /// # Errors
    ///
    /// When it cannot be created, or another kind of entry has the name.
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
        for name in &path.names {
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

/// Creates a directory in `above`, and returns a descriptor of it.
fn make(above: BorrowedFd, name: &str) -> Result<OwnedFd, Errno> {
    let name = c_name(name)?;
    mkdirat(above, name.as_c_str(), MODE)?;
    let made = open_beneath(above, &name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
    // Sets the mode regardless of the umask.
    fchmod(&made, MODE)?;
    Ok(made)
}

fn c_name(name: &str) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::EINVAL)
}
