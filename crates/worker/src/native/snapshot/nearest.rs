//! Opens the directories of a tree relative to the directory that was opened last.
//!
//! Resolving every path from the root would take a number of steps that grows with the square of a tree's depth. (What
//! remains of that growth is Landlock's: it checks all directories above a file that is renamed.)

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// Flags that open a directory as a path descriptor: Landlock checks every directory above one that is opened for
/// reading, but none for a path descriptor.
const DIRECTORY: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

/// The directory of a tree that was opened last.
pub struct Nearest {
    root: OwnedFd,
    /// The directory's path in the tree, and its descriptor. `None` until a directory other than the root is opened.
    last: Option<(PathBuf, OwnedFd)>,
}

impl Nearest {
    pub fn new(root: OwnedFd) -> Self {
        Self { root, last: None }
    }

    /// Returns a path descriptor (`O_PATH`) of a directory of the tree, opened without following symbolic links or
    /// crossing mount points.
    pub fn open(&mut self, path: &Path) -> Result<&OwnedFd, Errno> {
        if path.as_os_str().is_empty() {
            return Ok(&self.root);
        }
        let reopened = match &self.last {
            Some((last, _)) if last == path => None,
            Some((last, directory)) => {
                let opened = open_in(directory, &route(last, path));
                // Modes are restored from the bottom up: the last directory may not be searchable any more.
                Some(opened.or_else(|_| open_in(&self.root, path))?)
            }
            None => Some(open_in(&self.root, path)?),
        };
        if let Some(directory) = reopened {
            self.last = Some((path.to_owned(), directory));
        }
        let last = self.last.as_ref();
        Ok(last.map_or(&self.root, |(_, directory)| directory))
    }
}

fn open_in(directory: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new().flags(DIRECTORY).resolve(resolve);
    openat2(directory, path, how)
}

/// Returns the shortest path from one directory of the tree to another.
fn route(from: &Path, to: &Path) -> PathBuf {
    let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let up = from.iter().skip(shared).map(|_| OsStr::from_bytes(b".."));
    up.chain(to.iter().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_leads_over_the_common_parent() {
        for (from, to, expected) in [
            ("a", "a/b", "b"),
            ("a/b", "a", ".."),
            ("a/b/c", "a/d", "../../d"),
            ("a", "b/c", "../b/c"),
        ] {
            assert_eq!(route(from.as_ref(), to.as_ref()), Path::new(expected));
        }
    }
}
