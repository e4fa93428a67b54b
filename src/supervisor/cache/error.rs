//! The reasons for which a cache file is not used.

use std::io;
use std::path::{Path, PathBuf};

use crate::host::Exposed;

/// Why a file is not read or not written. Holds the path of the file, its directory or a parent, and the kernel's error
/// if there is one. Every text names the path and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Unused {
    /// The environment does not name a cache directory.
    #[error(
        "neither XDG_CACHE_HOME nor HOME is an absolute path, or HOME does not exist: set one to a directory of this user"
    )]
    NoHome,
    /// Other users can access the file.
    #[error(
        "{path} is not a regular file that only this user can open: it is replaced", path = .0.display()
    )]
    NotPrivate(PathBuf),
    /// Other users can write to the directory, or replace it.
    #[error(
        "{path} can be written by others: close it with `chmod go-w {path}`, or set XDG_CACHE_HOME", path = .0.display()
    )]
    Writable(PathBuf),
    /// The directory belongs to another user, or another user can replace it.
    #[error(
        "{path} belongs to another user: set XDG_CACHE_HOME or HOME to a directory of this user", path = .0.display()
    )]
    Foreign(PathBuf),
    /// This user cannot create the directory, or cannot write to it.
    #[error("{path}: {1}: set XDG_CACHE_HOME or HOME to a directory of this user", path = .0.display())]
    Closed(PathBuf, io::Error),
    /// The file is larger than its kind allows.
    #[error("{path} is too large: it is replaced", path = .0.display())]
    TooLarge(PathBuf),
    /// The file is damaged, or another version of Sandfork wrote it.
    #[error("{path} is damaged, or was not written by this version: it is replaced", path = .0.display())]
    Torn(PathBuf),
    /// A system call failed.
    #[error("{path}: {1}", path = .0.display())]
    Io(PathBuf, io::Error),
}

impl From<Exposed> for Unused {
    fn from(exposed: Exposed) -> Self {
        match exposed {
            Exposed::Foreign(path) => Self::Foreign(path),
            Exposed::Writable(path) => Self::Writable(path),
            Exposed::Closed(path, cause) => Self::Closed(path, cause),
            Exposed::Io(path, cause) => Self::Io(path, cause),
        }
    }
}

impl Unused {
    pub(super) fn io(path: &Path, cause: io::Error) -> Self {
        Self::Io(path.to_owned(), cause)
    }

    /// Whether the file does not exist yet.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Io(_, cause) if cause.kind() == io::ErrorKind::NotFound)
    }
}
