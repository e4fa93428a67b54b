//! Defines the errors of creating, showing and removing environments.

use std::io;
use std::path::{Path, PathBuf};

use super::tree::FileError;
use crate::error::{Cause, Error, ErrorKind};

/// The reason why an environment could not be created, shown or removed.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// An error of the store, of a name in it, or of the interpreter.
    #[error(transparent)]
    Host(#[from] Error),
    /// The sandbox for resolving and installing could not be provided.
    #[error("packages are installed in a sandbox, and none could be provided: {0}")]
    Sandbox(Error),
    /// The caller's request is invalid.
    #[error("{0}")]
    Request(String),
    /// The interpreter's pip is missing or too old.
    #[error("{0}")]
    Pip(String),
    /// The resolver found no set of wheels.
    #[error("the packages cannot be installed: {message}{hosts}")]
    Unresolved {
        /// The resolver's message.
        message: String,
        /// Hosts that the sandbox could not reach.
        hosts: String,
    },
    /// The index describes a package that cannot be installed.
    #[error("the index cannot be used: {0}")]
    Lock(String),
    /// The resolved packages could not be installed.
    #[error("{0}")]
    Failed(String),
    /// The caller cancelled it.
    #[error("interrupted; nothing was installed")]
    Interrupted,
    /// A system call failed.
    #[error("{path}: {cause}{}", full(cause), path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
}

/// Returns the remedy for a full or read-only disk.
fn full(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "; free space there, `sandfork env prune` removes unnamed environments, or set XDG_DATA_HOME"
        }
        Some(libc::EROFS) => "; set XDG_DATA_HOME to a directory that can be written",
        _ => "",
    }
}

impl From<FileError> for EnvironmentError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { path, cause } => Self::Io { path, cause },
            FileError::Refused(why) => Self::Failed(format!("{why}; nothing was installed")),
        }
    }
}

impl EnvironmentError {
    /// Converts to the error of a session's request. Without unreachable hosts, another attempt would find nothing
    /// more.
    pub(super) fn of_session(self) -> Self {
        match self {
            Self::Unresolved { ref hosts, .. } if hosts.is_empty() => {
                Self::Request(self.to_string())
            }
            other => other,
        }
    }

    /// Returns a function that creates the error of a system call on a path.
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |cause| Self::Io { path, cause }
    }
}

impl Cause for EnvironmentError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Host(error) | Self::Sandbox(error) => error.kind(),
            Self::Request(_) => ErrorKind::Request,
            Self::Pip(_) => ErrorKind::Interpreter,
            Self::Unresolved { .. }
            | Self::Lock(_)
            | Self::Failed(_)
            | Self::Interrupted
            | Self::Io { .. } => ErrorKind::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_missing_from_the_index_is_a_request_error() {
        let unresolved = |hosts: &str| EnvironmentError::Unresolved {
            message: "`absent` is not found".to_owned(),
            hosts: hosts.to_owned(),
        };
        let text = unresolved("").to_string();
        let absent = unresolved("").of_session();
        assert_eq!(
            (absent.kind(), absent.to_string()),
            (ErrorKind::Request, text)
        );
        let unreached = unresolved(" (pypi.org: failed)").of_session();
        assert_eq!(unreached.kind(), ErrorKind::System);
    }

    #[test]
    fn full_disk_has_a_remedy() {
        let full = FileError::Io {
            path: "/data/a.py".into(),
            cause: io::Error::from_raw_os_error(libc::ENOSPC),
        };
        assert_eq!(
            EnvironmentError::from(full).to_string(),
            "/data/a.py: No space left on device (os error 28); free space there, `sandfork env prune` removes unnamed \
             environments, or set XDG_DATA_HOME"
        );
    }
}
