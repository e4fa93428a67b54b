//! Why an environment could not be made, shown or removed.

use std::io;
use std::path::{Path, PathBuf};

use super::tree::FileError;
use crate::error::{Cause, Error, ErrorKind};

/// Why an environment could not be made, shown or removed.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The store, a name in it, or the interpreter.
    #[error(transparent)]
    Host(#[from] Error),
    /// The sandbox in which packages are resolved and installed.
    #[error("packages are installed in a sandbox, and none could be provided: {0}")]
    Sandbox(Error),
    /// What the caller asks for, which it can correct.
    #[error("{0}")]
    Request(String),
    /// The interpreter's pip.
    #[error("{0}")]
    Pip(String),
    /// pip found no set of wheels.
    #[error("the packages cannot be installed: {said}{hosts}")]
    Unresolved {
        /// What pip says.
        said: String,
        /// Hosts that the sandbox may not reach.
        hosts: String,
    },
    /// The index describes what cannot be installed.
    #[error("the index is not followed: {0}")]
    Lock(String),
    /// What was found could not be installed.
    #[error("{0}")]
    Failed(String),
    /// The caller ended it.
    #[error("interrupted; nothing was installed")]
    Interrupted,
    /// The kernel refused.
    #[error("{path}: {cause}{}", full(cause), path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// The remedy of a full disk.
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
    /// As the error of a request by a session that lives: unless hosts were not reached, another attempt finds no more.
    pub(super) fn of_session(self) -> Self {
        match self {
            Self::Unresolved { ref hosts, .. } if hosts.is_empty() => {
                Self::Request(self.to_string())
            }
            other => other,
        }
    }

    /// An error of the kernel about a path.
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
    fn a_session_asks_in_vain_for_what_the_index_lacks() {
        let unresolved = |hosts: &str| EnvironmentError::Unresolved {
            said: "`absent` is not found".to_owned(),
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
    fn a_full_disk_has_a_remedy() {
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
