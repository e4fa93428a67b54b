//! Opens host files that the supervisor reads for a guest.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading. Other files are refused, because opening a pipe blocks, and opening some devices
/// has side effects.
///
/// # Errors
/// An error of kind `InvalidInput` for a pipe, a socket or a device, and of kind `IsADirectory` for a directory.
pub fn open_regular(path: &Path) -> io::Result<File> {
    check(&fs::metadata(path)?)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    // The file may have been replaced between the check and the open.
    check(&file.metadata()?)?;
    Ok(file)
}

fn check(found: &Metadata) -> io::Result<()> {
    match found {
        _ if found.is_file() => Ok(()),
        _ if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => {
            let why = "it is not a regular file";
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}
