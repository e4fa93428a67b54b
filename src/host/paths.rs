//! Examines the paths that a policy names.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::route::{Links, Route};
use super::{Errno, Reach};

/// The maximum size of a script that the jail copies, in bytes.
const LONGEST_COPY: u64 = 256 << 10;

/// The state of a path on the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathFact {
    /// The path exists.
    Found {
        /// The kind of file after following symbolic links.
        kind: PathKind,
        /// The directory entries through which the path is found.
        route: Route,
        /// Who can read the file.
        reach: Reach,
    },
    /// The path does not exist, or this user cannot see it. Holds the error of the lookup.
    Unreachable(Errno),
}

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A device, socket or fifo.
    Special,
}

impl PathFact {
    /// Returns the text of a script that not every user can read, if it is short enough for the jail to copy.
    pub(super) fn closed_text(path: &Path) -> Option<String> {
        let found = fs::metadata(path).ok()?;
        let is_closed = found.permissions().mode() & 0o004 == 0;
        let is_meant = found.is_file() && is_closed && found.len() <= LONGEST_COPY;
        is_meant.then(|| fs::read_to_string(path).ok())?
    }

    /// Examines a path.
    pub fn probe(path: &Path) -> Self {
        let route = Links::default().route(path);
        match fs::metadata(&route.end) {
            Ok(found) => Self::Found {
                kind: PathKind::of(found.file_type()),
                reach: match found.permissions().mode() & 0o077 {
                    0 if found.uid() == 0 => Reach::Root,
                    _ => Reach::to_read(&route.end),
                },
                route,
            },
            Err(error) => Self::Unreachable(Errno::of(&error)),
        }
    }
}

impl PathKind {
    fn of(kind: fs::FileType) -> Self {
        match kind {
            _ if kind.is_dir() => Self::Directory,
            _ if kind.is_file() => Self::File,
            _ => Self::Special,
        }
    }
}
