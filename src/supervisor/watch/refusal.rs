//! Why a directory is not watched.

use nix::errno::Errno;

use crate::error::{Cause, ErrorKind};
use crate::host::with_hint;
use crate::supervisor::files::FileError;

/// Why there is no such watch.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WatchRefusal {
    /// The session has no worker.
    #[error("the session has ended because {0}: restart it, or open another")]
    Ended(String),
    /// Another worker takes over.
    #[error("the session begins anew: watch the directory afterwards")]
    Anew,
    /// The watch has ended.
    #[error("the watch has ended because {0}: watch the directory anew")]
    Over(String),
    /// The session has as many as it may.
    #[error("the session has {0} watches, as many as it may: close one first")]
    TooMany(usize),
    /// This process has as many as it may.
    #[error(
        "this process watches {0} directories, a quarter of what the kernel allows its user: close a watch, or raise \
         the sysctl fs.inotify.max_user_instances"
    )]
    NoRoom(usize),
    /// There is too much to watch.
    #[error(
        "`{0}` has more than 1,024 directories or 50,000 entries: watch a directory in it, or it without those below"
    )]
    TooLarge(String),
    /// The directory cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// A call of this process failed.
    #[error("a directory could not be watched: {}", with_hint(*.0))]
    System(#[from] Errno),
}

impl Cause for WatchRefusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Ended(_) | Self::Over(_) => ErrorKind::SessionEnded,
            Self::TooMany(_) | Self::TooLarge(_) => ErrorKind::Request,
            Self::NoRoom(_) | Self::Anew => ErrorKind::Busy,
            Self::File(error) => error.kind(),
            Self::System(_) => ErrorKind::System,
        }
    }

    fn errno(&self) -> Option<i32> {
        match self {
            Self::File(error) => Cause::errno(error),
            _ => None,
        }
    }
}
