//! The files of a live session, read and written from outside while its guest runs.
//!
//! The guest controls everything beneath the work directory. It may replace any name at any moment:
//! a directory by a link to `/etc`, a file by a fifo without a writer. So every path starts at a
//! handle on the directory itself, taken before guest code ran. One call, openat2(2), resolves the
//! path: it follows no link, stays in the directory and in its file system, and fails if the path
//! leads elsewhere. The host inspects an entry through a handle that does not open it (`O_PATH`).
//! Only a regular file is then opened, by that handle and not by its name again.
//!
//! A supervisor that is root creates, writes and removes as the guest's own user, so that it can do
//! no more than the guest could.

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

/// Files that a caller got for writing: their paths by the numbers of their inodes.
pub type LentFiles = BTreeMap<u64, GuestPath>;

/// The work directory of a live session.
#[derive(Clone, Copy, Debug)]
pub struct WorkDir<'a> {
    directory: BorrowedFd<'a>,
    root: &'a Path,
    guest: Option<HostIds>,
}

impl<'a> WorkDir<'a> {
    /// The directory behind this handle, which the guest sees at `root`.
    ///
    /// `guest` is the owner of its files if the supervisor is root. The guests of an ordinary user
    /// run as that user.
    pub const fn new(directory: BorrowedFd<'a>, root: &'a Path, guest: Option<HostIds>) -> Self {
        Self {
            directory,
            root,
            guest,
        }
    }

    /// Parses a path in the directory: relative to it, or as the guest writes it.
    ///
    /// # Errors
    ///
    /// When it leads out of the directory, or no file can have it.
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
