//! Why an environment could not be made, shown or removed.

use std::io;
use std::path::{Path, PathBuf};

use super::index::IndexError;
use super::lock::LockError;
use super::requirements::RequirementsError;
use super::tree::FileError;
use crate::error::{Cause, Error, ErrorKind};
use crate::host::{HostError, StoreError};
use crate::policy::EnvironmentName;

/// Why an environment could not be made, shown or removed.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The store, or a name in it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The interpreter.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A requirements file or a lock.
    #[error(transparent)]
    Requirements(#[from] RequirementsError),
    /// pip's configuration.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The sandbox in which packages are resolved and installed.
    #[error("packages are installed in a sandbox, and none could be provided: {0}")]
    Sandbox(Error),
    /// Nothing was asked for.
    #[error("an environment needs a package: name one, or a file with `-r` or `--lock`")]
    Nothing,
    /// The interpreter has no pip.
    #[error("{interpreter} has no pip, which finds the wheels of packages: install it (`{interpreter} -m ensurepip`, on Debian \
             `apt install python3-venv`), or name another interpreter with `--python`", interpreter = interpreter.display())]
    NoPip {
        /// The interpreter.
        interpreter: PathBuf,
    },
    /// The caller's uv cannot be used.
    #[error(
        "SANDFORK_UV names {named}, and {problem}: name uv 0.10 or later, or leave it empty for pip"
    )]
    NoUv {
        /// What the caller names.
        named: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Its pip is too old.
    #[error("the pip of {interpreter} is {version}, and finding wheels with their hashes needs pip 22.2 or later: \
             `{interpreter} -m pip install --upgrade pip`", interpreter = interpreter.display())]
    OldPip {
        /// The interpreter.
        interpreter: PathBuf,
        /// Its version.
        version: String,
    },
    /// pip found no set of wheels.
    #[error("the packages cannot be installed: {said}{hosts}")]
    Unresolved {
        /// What pip says.
        said: String,
        /// Hosts that the sandbox may not reach.
        hosts: String,
    },
    /// A running session asks for packages of which the index has no set of wheels.
    #[error("the packages cannot be installed: {0}")]
    NotFound(String),
    /// The index describes what cannot be installed.
    #[error("the index is not followed: {0}")]
    Lock(#[from] LockError),
    /// A wheel cannot be installed.
    #[error("{file} {reason}{hosts}; nothing was installed")]
    Wheel {
        /// The wheel.
        file: String,
        /// What is wrong with it.
        reason: String,
        /// Hosts that the sandbox may not reach.
        hosts: String,
    },
    /// A wheel has a file that cannot be kept.
    #[error("{0}; nothing was installed")]
    File(FileError),
    /// The sandbox ended before it was done.
    #[error("the packages could not be {doing}: the installer ended with status {status}{detail}")]
    Ended {
        /// What was being done.
        doing: &'static str,
        /// How it ended.
        status: String,
        /// What it said.
        detail: String,
    },
    /// The environment is used.
    #[error(
        "the environment `{0}` is used by a sandbox, or kept by a process for its next one: end it first"
    )]
    InUse(EnvironmentName),
    /// The name stands for others.
    #[error(
        "the environment `{name}` has other packages ({packages}): choose another name, or remove it with `sandfork env remove {name}`"
    )]
    Taken {
        /// The name.
        name: EnvironmentName,
        /// What it has.
        packages: String,
    },
    /// The name stands for the same packages of another index.
    #[error(
        "the environment `{0}` has these packages from another index, or by other options of it, than are set now: choose \
         another name, or remove it with `sandfork env remove {0}`"
    )]
    OtherSources(EnvironmentName),
    /// The name is one of Sandfork's own.
    #[error(
        "names that begin with `packages-` belong to the packages of policies: choose another name"
    )]
    Reserved,
    /// Not the name of a package, with versions.
    #[error("{0}")]
    NotAPackage(String),
    /// The policy of a session.
    #[error(
        "no packages can be added to this session: open it with `environments.add = true` in its policy"
    )]
    NotAdded,
    /// A session's guest does not add what was installed.
    #[error("the session cannot use the packages: {0}")]
    Unusable(String),
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
            error => Self::File(error),
        }
    }
}

impl EnvironmentError {
    /// As the error of a request by a session that lives: unless hosts were not reached, another attempt finds no more.
    pub(super) fn of_session(self) -> Self {
        match self {
            Self::Unresolved { said, hosts } if hosts.is_empty() => Self::NotFound(said),
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
            Self::Store(error) => error.kind(),
            Self::Host(error) => error.kind(),
            Self::Sandbox(error) => error.kind(),
            Self::Requirements(_)
            | Self::Index(_)
            | Self::Nothing
            | Self::InUse(_)
            | Self::Taken { .. }
            | Self::OtherSources(_)
            | Self::Reserved
            | Self::NotAPackage(_)
            | Self::NotAdded
            | Self::NotFound(_)
            | Self::NoUv { .. }
            | Self::Unusable(_) => ErrorKind::Request,
            Self::NoPip { .. } | Self::OldPip { .. } => ErrorKind::Interpreter,
            Self::Unresolved { .. }
            | Self::Lock(_)
            | Self::Wheel { .. }
            | Self::File(_)
            | Self::Ended { .. }
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
