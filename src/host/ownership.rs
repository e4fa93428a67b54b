//! Who can write to a directory, or put another one in its place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use std::os::unix::fs::MetadataExt;

use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, eaccess, geteuid};

/// Why what is in a directory may be others' work.
#[derive(Debug)]
pub(crate) enum Exposed {
    /// Another user owns it, or a directory above it.
    Foreign(PathBuf),
    /// Other users can write to it, or to a directory above it.
    Writable(PathBuf),
    /// This user cannot make it, or write to it.
    Closed(PathBuf, io::Error),
    /// The kernel did not say.
    Io(PathBuf, io::Error),
}

/// Checks that this user alone can have put files into an open directory.
pub fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), Exposed> {
    if metadata.uid() != geteuid().as_raw() {
        return Err(Exposed::Foreign(path.into()));
    }
    check_writers(path, metadata)?;
    // Another user who may write to a directory above may put another directory of this user there.
    let parent = path.parent().unwrap_or(path);
    let parent = fs::canonicalize(parent).map_err(|error| Exposed::Io(parent.to_owned(), error))?;
    parent.ancestors().try_for_each(check_above)
}

/// Whether only root and this user can rename what is in a directory.
fn check_above(path: &Path) -> Result<(), Exposed> {
    let metadata = fs::metadata(path).map_err(|error| Exposed::Io(path.to_owned(), error))?;
    check_owner(path, &metadata)?;
    // In a sticky directory, such as /tmp, only its owner renames a file.
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

/// Checks that this user can make a directory. One that another user's directory is to hold is not made: with `sudo`,
/// `HOME` may be another user's, who could then keep nothing there.
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
    fn a_directory_that_this_user_cannot_make_is_named() {
        let place = tempfile::tempdir().unwrap();
        may_be_made(&place.path().join("a/b")).unwrap();
        // Permissions of directories do not bind root.
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let wanted = file.join("a");
        match may_be_made(&wanted) {
            Err(Exposed::Closed(path, _)) => assert_eq!(path, wanted),
            other => panic!("{other:?}"),
        }
    }
}
