//! Why an environment cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Cause, ErrorKind};
use crate::host::Exposed;
use crate::policy::EnvironmentName;

/// Why an environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The environment names no directory for data.
    #[error(
        "neither XDG_DATA_HOME nor HOME is an absolute path: set one to a directory of this user, for environments"
    )]
    NoHome,
    /// Nothing has that name.
    #[error(
        "there is no environment `{name}`{}: make it with `sandfork env create {name} PACKAGE...`",
        if .others.is_empty() { String::new() } else { format!(" (there is {others})") }
    )]
    Unknown {
        /// The name.
        name: EnvironmentName,
        /// The others, for a sentence.
        others: String,
    },
    /// Nothing has that name, where making it is of no use.
    #[error("there is no environment `{name}`: {}", there_is(.others))]
    Absent {
        /// The name.
        name: EnvironmentName,
        /// The others, for a sentence.
        others: String,
    },
    /// No environment has these packages yet.
    #[error("the packages {list} are not installed for {interpreter}: `{command}` installs them, or let a first use do it \
             with `--set environments.create=true`", interpreter = interpreter.display())]
    NotInstalled {
        /// The packages.
        list: String,
        /// The interpreter.
        interpreter: PathBuf,
        /// What makes it.
        command: String,
    },
    /// A name leads to nothing.
    #[error("the environment `{name}` has been removed from {path}: make it again with `sandfork env create {name} PACKAGE...`",
            path = path.display())]
    Gone {
        /// The name.
        name: EnvironmentName,
        /// Where it was.
        path: PathBuf,
    },
    /// A file is not one of Sandfork's.
    #[error("{path} is not what Sandfork wrote there ({problem}): remove it, and make the environment again", path = path.display())]
    Torn {
        /// The file.
        path: PathBuf,
        /// How it differs.
        problem: String,
    },
    /// Others can put an environment there.
    #[error("{path} can be written by others, who could change environments in it: close it with `chmod go-w {path}`, or set \
             XDG_DATA_HOME", path = path.display())]
    Writable {
        /// The directory, or one above it.
        path: PathBuf,
    },
    /// Another user can put an environment there.
    #[error("{path} belongs to another user, who could change environments in it: set XDG_DATA_HOME or HOME to a directory \
             of this user", path = path.display())]
    Foreign {
        /// The directory, or one above it.
        path: PathBuf,
    },
    /// This user can put no environment there.
    #[error("{path}: {cause}: set XDG_DATA_HOME or HOME to a directory of this user", path = path.display())]
    Closed {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
    /// Who may write to the directory that it leads to says nothing of who may replace the link.
    #[error("{path} is a symbolic link, and environments need a directory: put one in its place, or set XDG_DATA_HOME",
            path = path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// What there is in place of what was asked for.
fn there_is(others: &str) -> String {
    if others.is_empty() {
        return "no environment has a name".to_owned();
    }
    format!("there is {others}; `sandfork env list` describes them")
}

impl StoreError {
    /// An error of the kernel about a path.
    pub fn io(path: &Path, cause: io::Error) -> Self {
        let path = path.to_owned();
        Self::Io { path, cause }
    }
}

impl From<Exposed> for StoreError {
    fn from(exposed: Exposed) -> Self {
        match exposed {
            Exposed::Foreign(path) => Self::Foreign { path },
            Exposed::Writable(path) => Self::Writable { path },
            Exposed::Closed(path, cause) => Self::Closed { path, cause },
            Exposed::Io(path, cause) => Self::Io { path, cause },
        }
    }
}

impl Cause for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } | Self::NotInstalled { .. } | Self::Gone { .. } => {
                ErrorKind::Policy
            }
            Self::Absent { .. } => ErrorKind::Request,
            _ => ErrorKind::Host,
        }
    }
}
