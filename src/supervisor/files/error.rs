//! Errors of operations on a guest's files.

use nix::errno::Errno;
use thiserror::Error;

use super::list::EntryKind;
use super::path::{GuestPath, PathError};
use crate::error::{Cause, ErrorKind};
use crate::host::with_hint;
use crate::plan::harmless;

/// Why an operation on a session's file failed. Nothing was changed, except that part of a tree may have been removed,
/// or parent directories created.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum FileError {
    /// The path is not valid in the work directory.
    #[error(transparent)]
    Path(PathError),
    /// The entry is not a regular file, so that it has no contents to read or write.
    #[error("`{path}` cannot be {act}: it is {kind}, and only regular files can be", act = .act.done())]
    NotRegular {
        /// The entry's path.
        path: String,
        /// The operation that failed.
        act: Act,
        /// The kind of the entry.
        kind: EntryKind,
    },
    /// The session has ended, and its work directory is gone.
    #[error("the session has no work directory; it has ended")]
    Gone,
    /// The operation cannot be applied to the work directory itself.
    #[error("the work directory itself cannot be {}", .0.done())]
    Root(Act),
    /// The directory has more entries than one operation handles.
    #[error("`{path}` cannot be {act}: it holds more than {limit} entries; {remedy}", act = .act.done(), remedy = .act.in_parts())]
    TooMany {
        /// The entry's path.
        path: String,
        /// The operation that failed.
        act: Act,
        /// The maximum number of entries.
        limit: usize,
    },
    /// A system call failed.
    #[error("`{}` cannot be {act}: {cause}", harmless(.path), act = .act.done(), cause = cause(*act, *errno))]
    Failed {
        /// The entry's path.
        path: String,
        /// The operation that failed.
        act: Act,
        /// The errno of the call.
        errno: Errno,
    },
}

impl Cause for FileError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Failed { act, errno, .. } if has_host_run_out(*act, *errno) => ErrorKind::System,
            _ => ErrorKind::Request,
        }
    }

    fn errno(&self) -> Option<i32> {
        Some(self.errno() as i32)
    }
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum Act {
    Read,
    Write,
    List,
    Look,
    Remove,
    MakeDirectory,
    Watch,
}

impl Act {
    const fn done(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "written",
            Self::List => "listed",
            Self::Look => "looked at",
            Self::Remove => "removed",
            Self::MakeDirectory => "made",
            Self::Watch => "watched",
        }
    }

    const fn in_parts(self) -> &'static str {
        match self {
            Self::Remove => {
                "part of it was removed; try again, unless the guest keeps adding entries"
            }
            _ => "have the guest list it",
        }
    }
}

impl FileError {
    pub(super) fn failed(path: &GuestPath, act: Act, errno: Errno) -> Self {
        Self::Failed {
            path: path.to_string(),
            act,
            errno,
        }
    }

    /// Returns the errno that matches the error (errno(3)), for programs that match on it.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Path(PathError::TooLong(_)) => Errno::ENAMETOOLONG,
            Self::Path(_) => Errno::EINVAL,
            Self::NotRegular { kind, .. } => match kind {
                EntryKind::Directory => Errno::EISDIR,
                EntryKind::Symlink => Errno::ELOOP,
                EntryKind::File | EntryKind::Other => Errno::EINVAL,
            },
            Self::Gone => Errno::ENOENT,
            Self::Root(_) => Errno::EBUSY,
            Self::TooMany { .. } => Errno::E2BIG,
            Self::Failed { errno, .. } => *errno,
        }
    }
}

/// Whether this process or its host lacks a resource. A full work directory is the guest's responsibility.
const fn has_host_run_out(act: Act, errno: Errno) -> bool {
    match errno {
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => true,
        Errno::ENOSPC => matches!(act, Act::Watch),
        _ => false,
    }
}

/// Explains an errno for a guest's file, with the remedy.
fn cause(act: Act, errno: Errno) -> String {
    let known = match (errno, act) {
        (Errno::ENOENT, Act::Write) => {
            "its parent directory does not exist; create that first (`make_dir`)"
        }
        (Errno::ENOENT, Act::MakeDirectory) => {
            "its parent directory does not exist; create that first, or pass `parents`"
        }
        (Errno::ENOENT, _) => "it does not exist",
        (Errno::EEXIST, _) => "it exists already",
        (Errno::ENOSPC, Act::Watch) => {
            "this user watches as many files as the kernel allows; close a watch, or raise the sysctl \
             fs.inotify.max_user_watches"
        }
        (Errno::ENOSPC | Errno::EDQUOT, _) => {
            "the work directory is full, or at level `landlock` the host's disk; remove files, or \
             raise `filesystem.work_size`, or `filesystem.work_inodes` if there are many"
        }
        (Errno::ELOOP, _) => "its path has a symbolic link, and a guest's links are not followed",
        (Errno::ENOTDIR, _) => "it or one of its parents is not a directory",
        (Errno::EISDIR, _) => "it is a directory",
        (Errno::ENOTEMPTY, _) => "it is a directory that is not empty; remove it recursively",
        (Errno::EXDEV, _) => {
            "another file system is mounted there, which only the guest can access"
        }
        (Errno::EACCES, _) => {
            "the guest has removed the permissions on it, and can restore them (chmod)"
        }
        (Errno::EAGAIN | Errno::EBUSY, _) => "the guest keeps it busy; try again",
        (Errno::ENAMETOOLONG, _) => "its path is longer than the kernel allows",
        (Errno::ENOSYS | Errno::EPERM, _) => {
            "openat2(2) is refused here; Linux has it since 5.6, and a container's seccomp profile \
             must let it through"
        }
        (errno, _) => return with_hint(errno),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_host_is_a_system_error() {
        let failed = |act, errno| FileError::Failed {
            path: "a".to_owned(),
            act,
            errno,
        };
        let error = failed(Act::Read, Errno::EMFILE);
        assert_eq!(error.kind(), ErrorKind::System);
        assert_eq!(
            error.to_string(),
            "`a` cannot be read: Too many open files; run fewer at once, or allow this process more open files (`ulimit -n`)"
        );
        for (act, errno, kind) in [
            (Act::Write, Errno::ENFILE, ErrorKind::System),
            (Act::Watch, Errno::ENOSPC, ErrorKind::System),
            (Act::Write, Errno::ENOSPC, ErrorKind::Request),
            (Act::Read, Errno::EAGAIN, ErrorKind::Request),
            (Act::Read, Errno::ENOENT, ErrorKind::Request),
        ] {
            assert_eq!(failed(act, errno).kind(), kind, "{errno}");
        }
    }
}
