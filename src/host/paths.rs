//! What exists at a path that a policy names.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Errno, Reach};

/// One path of the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PathFact {
    /// It exists.
    Found {
        /// The kind of file after following symbolic links.
        kind: PathKind,
        /// The path without symbolic links.
        resolved: PathBuf,
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
        let found = fs::canonicalize(path)
            .and_then(|resolved| Ok((fs::metadata(&resolved)?.file_type(), resolved)));
        match found {
            Ok((kind, resolved)) => Self::Found {
                kind: PathKind::of(kind),
                reach: Reach::to_read(&resolved),
                resolved,
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
