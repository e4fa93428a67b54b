//! Checks who can write to a directory, or replace it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use std::os::unix::fs::MetadataExt;

use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, eaccess, geteuid};

/// The reason why other users may have written a directory's contents.
#[derive(Debug)]
pub(crate) enum Exposed {
    /// Another user owns the directory or one above it.
    Foreign(PathBuf),
    /// Other users can write to the directory or to one above it.
    Writable(PathBuf),
    /// This user cannot create the directory or write to it.
    Closed(PathBuf, io::Error),
    /// The directory could not be examined.
    Io(PathBuf, io::Error),
}

/// Checks that only this user can have put files into an open directory.
pub fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), Exposed> {
    if metadata.uid() != geteuid().as_raw() {
        return Err(Exposed::Foreign(path.into()));
    }
    check_writers(path, metadata)?;
    // A user who may write to a parent may move another directory of this user there.
    let parent = path.parent().unwrap_or(path);
    let parent = fs::canonicalize(parent).map_err(|error| Exposed::Io(parent.to_owned(), error))?;
    parent.ancestors().try_for_each(check_above)
}

/// Checks that only root and this user can rename entries of a directory.
fn check_above(path: &Path) -> Result<(), Exposed> {
    let metadata = fs::metadata(path).map_err(|error| Exposed::Io(path.to_owned(), error))?;
    check_owner(path, &metadata)?;
    // In a sticky directory such as /tmp, only the owner of a file can rename it.
    if metadata.mode() & Mode::S_ISVTX.bits() != 0 {
        return Ok(());
    }
    check_writers(path, &metadata)
}

fn check_writers(path: &Path, metadata: &fs::Metadata) -> Result<(), Exposed> {
    let mode = Mode::from_bits_truncate(metadata.mode());
    if mode.intersects(Mode::S_IWGRP | Mode::S_IWOTH) {
        return Err(Exposed::Writable(path.into()));
    }
    Ok(())
}

fn check_owner(path: &Path, metadata: &fs::Metadata) -> Result<(), Exposed> {
    let owner = metadata.uid();
    if owner == 0 || owner == geteuid().as_raw() {
        Ok(())
    } else {
        Err(Exposed::Foreign(path.into()))
    }
}

/// Checks that this user can create a directory. The directory must not be inside another user's: with `sudo`, `HOME`
/// may belong to another user, who could then create nothing there.
pub fn may_be_made(directory: &Path) -> Result<(), Exposed> {
    let there = directory.ancestors().find_map(|path| {
        let metadata = fs::metadata(path).ok()?;
        Some((path, metadata))
    });
    let Some((path, metadata)) = there else {
        return Ok(());
    };
    check_owner(path, &metadata)?;
    let writable = AccessFlags::W_OK | AccessFlags::X_OK;
    eaccess(path, writable).map_err(|errno| Exposed::Closed(directory.to_owned(), errno.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn uncreatable_directory_is_named() {
        let place = tempfile::tempdir().unwrap();
        may_be_made(&place.path().join("a/b")).unwrap();
        // Uses a file as the parent, because directory permissions do not bind root.
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let wanted = file.join("a");
        match may_be_made(&wanted) {
            Err(Exposed::Closed(path, _)) => assert_eq!(path, wanted),
            other => panic!("{other:?}"),
        }
    }
}
