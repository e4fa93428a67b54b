//! Why an environment cannot be used.

use std::io;
use std::path::Path;

use crate::error::{Cause, ErrorKind};
use crate::host::Exposed;

/// Why an environment cannot be used: a sentence with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// What a policy names is not there.
    #[error("{0}")]
    Missing(String),
    /// What a request names is not there, where making it is of no use.
    #[error("{0}")]
    Absent(String),
    /// The directory of environments cannot be used, or what is in it.
    #[error("{0}")]
    Unusable(String),
}

impl StoreError {
    /// An error of the kernel about a path.
    pub fn io(path: &Path, cause: &io::Error) -> Self {
        Self::Unusable(format!("{}: {cause}", path.display()))
    }

    /// A file is not one of Sandfork's.
    pub fn torn(path: &Path, problem: &str) -> Self {
        Self::Unusable(format!(
            "{} is not what Sandfork wrote there ({problem}): remove it, and make the environment again",
            path.display()
        ))
    }
}

impl From<Exposed> for StoreError {
    fn from(exposed: Exposed) -> Self {
        Self::Unusable(match exposed {
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
            Exposed::Io(path, cause) => return Self::io(&path, &cause),
        })
    }
}

impl Cause for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing(_) => ErrorKind::Policy,
            Self::Absent(_) => ErrorKind::Request,
            Self::Unusable(_) => ErrorKind::Host,
        }
    }
}
