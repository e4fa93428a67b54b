//! What exists at a path that a policy names.

use std::fs;
use std::path::Path;

use super::route::{Links, Route};
use super::{Errno, Reach};

/// One path of the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathFact {
    /// It exists.
    Found {
        /// The kind of file after following symbolic links.
        kind: PathKind,
        /// How it is found.
        route: Route,
        /// Whether any user can read it.
        reach: Reach,
    },
    /// The path does not exist, or this user cannot see it.
    Unreachable {
        /// The error of the lookup.
        errno: Errno,
    },
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
    /// Examines a path.
    pub fn probe(path: &Path) -> Self {
        let route = Links::default().route(path);
        match fs::metadata(&route.end) {
            Ok(found) => Self::Found {
                kind: PathKind::of(found.file_type()),
                reach: Reach::to_read(&route.end),
                route,
            },
            Err(error) => Self::Unreachable {
                errno: Errno::of(&error),
            },
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
