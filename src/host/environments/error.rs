//! Defines the errors of the environment store.

use std::io;
use std::path::Path;

use crate::error::Error;
use crate::host::Exposed;

/// Returns the error for a system call on a path of the store.
pub fn io_error(path: &Path, cause: &io::Error) -> Error {
    Error::host(format!("{}: {cause}", path.display()))
}

/// Returns the error for a file that Sandfork did not write.
pub fn torn(path: &Path, problem: &str) -> Error {
    Error::host(format!(
        "{} is not what Sandfork wrote there ({problem}): remove it, and create the environment again",
        path.display()
    ))
}

impl From<Exposed> for Error {
    fn from(exposed: Exposed) -> Self {
        Self::host(match exposed {
            Exposed::Foreign(path) => format!(
                "{} belongs to another user, who could change environments in it: set XDG_DATA_HOME or HOME to a directory \
                 of this user",
                path.display()
            ),
            Exposed::Writable(path) => format!(
                "{path} can be written by others, who could change environments in it: close it with `chmod go-w {path}`, \
                 or set XDG_DATA_HOME",
                path = path.display()
            ),
            Exposed::Closed(path, cause) => format!(
                "{}: {cause}: set XDG_DATA_HOME or HOME to a directory of this user",
                path.display()
            ),
            Exposed::Io(path, cause) => return io_error(&path, &cause),
        })
    }
}
