//! Reads and writes the files of a live session from outside, while its guest runs.
//!
//! The guest controls everything beneath the work directory. It may replace any name at any moment: a directory by a
//! link to `/etc`, a file by a FIFO without a writer. Every path is therefore resolved from a descriptor of the work
//! directory that was opened before guest code ran, by a single openat2(2), which follows no link, stays in the
//! directory and its file system, and fails otherwise. An entry is inspected through an `O_PATH` descriptor. Only a
//! regular file is then opened, through that descriptor instead of its name.
//!
//! A supervisor that runs as root creates, writes and removes files as the guest's user, so that it can do no more than
//! the guest could.

mod beneath;
mod error;
mod fit;
mod list;
mod make;
mod open;
mod path;
mod put;
mod remove;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;

pub(super) use self::beneath::{open_beneath, reopen};
pub use self::error::{Act, FileError};
pub use self::fit::check as check_fit;
pub use self::list::EntryKind;
pub(super) use self::list::names;
pub use self::make::Parents;
pub use self::open::Contents;
pub use self::path::{GuestPath, PathError};
pub use self::remove::Removal;

use super::as_guest::as_guest;
use sandfork_jail::program::HostIds;

/// Files that a caller has opened for writing: paths by inode number.
pub type LentFiles = BTreeMap<u64, GuestPath>;

/// The work directory of a live session.
#[derive(Clone, Copy, Debug)]
pub struct WorkDir<'a> {
    directory: BorrowedFd<'a>,
    root: &'a Path,
    guest: Option<HostIds>,
}

impl<'a> WorkDir<'a> {
    /// Returns the directory behind this descriptor, which the guest sees at `root`.
    ///
    /// `guest` is the owner of its files if the supervisor is root. The guests of an ordinary user run as that user.
    pub const fn new(directory: BorrowedFd<'a>, root: &'a Path, guest: Option<HostIds>) -> Self {
        Self {
            directory,
            root,
            guest,
        }
    }

    /// Parses a path in the directory: relative to it, or absolute as the guest sees it.
    ///
    /// # Errors
    ///
    /// If the path leads out of the directory, or cannot exist.
    pub fn path(&self, text: &str) -> Result<GuestPath, FileError> {
        GuestPath::parse(text, self.root).map_err(FileError::Path)
    }

    /// Runs an operation as the guest's user.
    fn as_guest<T: Send>(
        &self,
        path: &GuestPath,
        act: Act,
        what: impl FnOnce() -> Result<T, FileError> + Send,
    ) -> Result<T, FileError> {
        let done = as_guest(self.guest, || Ok(what()));
        done.map_err(|errno| FileError::failed(path, act, errno))?
    }
}

#[cfg(test)]
mod tests;
