//! What exists at a path that a policy names.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Errno;

/// One path of the host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PathFact {
    /// It exists.
    Found {
        /// The kind of file after following symbolic links.
        kind: PathKind,
        /// The path without symbolic links.
        resolved: PathBuf,
    },
    /// The path does not exist, or this user cannot see it.
    Unreachable {
        /// The error of the lookup.
        errno: Errno,
    },
}

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
            Ok((kind, resolved)) if kind.is_dir() => Self::Found {
                kind: PathKind::Directory,
                resolved,
            },
            Ok((kind, resolved)) if kind.is_file() => Self::Found {
                kind: PathKind::File,
                resolved,
            },
            Ok((_, resolved)) => Self::Found {
                kind: PathKind::Special,
                resolved,
            },
            Err(error) => Self::Unreachable {
                errno: Errno(error.raw_os_error().unwrap_or(libc::EIO)),
            },
        }
    }
}
