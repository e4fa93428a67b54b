//! Describes and lists entries.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};

use super::beneath::{DIRECTORY, HANDLE, kind, open_beneath};
use super::{Act, FileError, GuestPath, WorkDir};

/// The most entries of a directory that are listed: the list takes the host's memory.
const MOST_ENTRIES: usize = 50_000;

/// One entry of a directory, at the time it was read.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The name, which may be any bytes.
    pub name: OsString,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The size of a file, bytes.
    pub size: u64,
    /// When the entry was last written to. The guest can set any time.
    pub modified: SystemTime,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, to any target.
    Symlink,
    /// Any other kind, such as a fifo or a socket.
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

impl Entry {
    fn new(name: Vec<u8>, stat: &FileStat) -> Self {
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        // The guest can set any time. A time that the clock cannot represent becomes the epoch.
        let modified = match u64::try_from(stat.st_mtime) {
            Ok(seconds) => UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)),
            Err(_) => UNIX_EPOCH
                .checked_sub(Duration::from_secs(stat.st_mtime.unsigned_abs()))
                .and_then(|second| second.checked_add(Duration::new(0, nanoseconds))),
        };
        Self {
            name: OsString::from_vec(name),
            kind: kind(SFlag::from_bits_truncate(stat.st_mode)),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: modified.unwrap_or(UNIX_EPOCH),
        }
    }
}

impl WorkDir<'_> {
    /// Describes the entry at a path; for a link, the link itself.
    ///
    /// # Errors
    ///
    /// When nothing is there.
    pub fn stat(&self, path: &GuestPath) -> Result<Entry, FileError> {
        let failed = |errno| FileError::failed(path, Act::Look, errno);
        let handle = open_beneath(self.directory, &path.to_c(), HANDLE).map_err(failed)?;
        let name = path.names().last().cloned().unwrap_or_default();
        let stat = fstat(&handle).map_err(failed)?;
        Ok(Entry::new(name.into_bytes(), &stat))
    }

    /// A handle on a directory, to watch it.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn watched(&self, path: &GuestPath) -> Result<OwnedFd, FileError> {
        let handle = open_beneath(self.directory, &path.to_c(), DIRECTORY);
        handle.map_err(|errno| FileError::failed(path, Act::Watch, errno))
    }

    /// The entries of a directory, by name.
    ///
    /// # Errors
    ///
    /// When there is none, or it has more entries than a host should hold in memory.
    pub fn list(&self, path: &GuestPath) -> Result<Vec<Entry>, FileError> {
        let failed = |errno| FileError::failed(path, Act::List, errno);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        let directory = open_beneath(self.directory, &path.to_c(), flags).map_err(failed)?;
        let mut listing = Dir::from_fd(directory).map_err(failed)?;
        let names = names(&mut listing, MOST_ENTRIES + 1).map_err(failed)?;
        if names.len() > MOST_ENTRIES {
            return Err(FileError::TooMany {
                path: path.to_string(),
                act: Act::List,
                limit: MOST_ENTRIES,
            });
        }
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            match fstatat(
                listing.as_fd(),
                name.as_c_str(),
                AtFlags::AT_SYMLINK_NOFOLLOW,
            ) {
                Ok(stat) => entries.push(Entry::new(name.into_bytes(), &stat)),
                // The entry was removed meanwhile.
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
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
