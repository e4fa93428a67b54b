//! Describes and lists entries.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};

use super::beneath::{DIRECTORY, HANDLE, kind, open_beneath};
use super::{Act, FileError, GuestPath, WorkDir};
use crate::protocol::caller::FileEntry;

/// The maximum number of entries that are listed, because the list takes memory of the host.
const MAX_ENTRIES: usize = 50_000;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, to any target.
    Symlink,
    /// Any other kind, such as a FIFO or a socket.
    Other,
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "a regular file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Other => "a fifo, a socket or the like",
        })
    }
}

/// Describes an entry. Its name may contain any bytes, and the guest can set any time.
fn entry(name: &[u8], stat: &FileStat) -> FileEntry {
    #[allow(clippy::cast_precision_loss, reason = "no time is that exact")]
    let modified = stat.st_mtime as f64 + stat.st_mtime_nsec as f64 / 1e9;
    FileEntry {
        name: String::from_utf8_lossy(name).into_owned(),
        kind: match kind(SFlag::from_bits_truncate(stat.st_mode)) {
            EntryKind::File => "file",
            EntryKind::Directory => "dir",
            EntryKind::Symlink => "symlink",
            EntryKind::Other => "other",
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified,
    }
}

impl WorkDir<'_> {
    /// Describes the entry at a path. Describes a symbolic link itself, not its target.
    ///
    /// # Errors
    ///
    /// If there is no such entry.
    pub fn stat(&self, path: &GuestPath) -> Result<FileEntry, FileError> {
        let failed = |errno| FileError::failed(path, Act::Look, errno);
        let handle = open_beneath(self.directory, &path.to_c(), HANDLE).map_err(failed)?;
        let name = path.names.last().cloned().unwrap_or_default();
        let stat = fstat(&handle).map_err(failed)?;
        Ok(entry(name.as_bytes(), &stat))
    }

    /// Returns a descriptor of a directory, to watch it.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub fn watched(&self, path: &GuestPath) -> Result<OwnedFd, FileError> {
        let handle = open_beneath(self.directory, &path.to_c(), DIRECTORY);
        handle.map_err(|errno| FileError::failed(path, Act::Watch, errno))
    }

    /// Returns the entries of a directory, sorted by name.
    ///
    /// # Errors
    ///
    /// If there is no such directory, or it has more than 50,000 entries.
    pub fn list(&self, path: &GuestPath) -> Result<Vec<FileEntry>, FileError> {
        let failed = |errno| FileError::failed(path, Act::List, errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        let directory = open_beneath(self.directory, &path.to_c(), flags).map_err(failed)?;
        let mut listing = Dir::from_fd(directory).map_err(failed)?;
        let mut names = names(&mut listing, MAX_ENTRIES + 1).map_err(failed)?;
        if names.len() > MAX_ENTRIES {
            return Err(FileError::TooMany {
                path: path.to_string(),
                act: Act::List,
                limit: MAX_ENTRIES,
            });
        }
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            match fstatat(
                listing.as_fd(),
                name.as_c_str(),
                AtFlags::AT_SYMLINK_NOFOLLOW,
            ) {
                Ok(stat) => entries.push(entry(name.to_bytes(), &stat)),
                // The entry was removed meanwhile.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(entries)
    }
}

/// Returns the first `most` names in a directory.
pub fn names(listing: &mut Dir, most: usize) -> Result<Vec<std::ffi::CString>, Errno> {
    let is_name = |name: &std::ffi::CStr| !matches!(name.to_bytes(), b"." | b"..");
    let named = listing.iter().filter_map(|entry| match entry {
        Ok(entry) if is_name(entry.file_name()) => Some(Ok(entry.file_name().to_owned())),
        Ok(_) => None,
        Err(errno) => Some(Err(errno)),
    });
    named.take(most).collect()
}
