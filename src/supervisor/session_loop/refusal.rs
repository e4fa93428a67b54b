//! The reasons for which a caller's request is refused.

use crate::error::{Cause, Error, ErrorKind};
use crate::protocol::caller::ErrorCode;
use crate::protocol::{FrameError, MessageError};
use crate::supervisor::error::SupervisorError;
use crate::supervisor::files::FileError;
use crate::supervisor::programs::BesideRefusal;
use crate::supervisor::snapshot::SnapshotRefusal;

/// The reason for which a request was refused. A caller in this process receives it as an [`Error`], a caller at the
/// other end of a socket as a code with one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A session runs one cell at a time.
    #[error("a cell is running in this session: wait for its end, or open another session")]
    Busy,
    /// The session's worker is gone. Holds the reason, as part of a sentence.
    #[error(
        "the session has ended because {0}: its variables, imports and files are lost; restart it, \
         or open another"
    )]
    Ended(String),
    /// The cell's wall limit is not a valid time.
    #[error("a cell's `wall` must be a positive number of seconds")]
    NoWall,
    /// The cell's file name contains a NUL.
    #[error("a cell's `filename` must not contain NUL")]
    NulInFilename,
    /// The request does not fit into a message to the worker.
    #[error("{}", too_large("the request", .0))]
    TooLarge(#[from] MessageError),
    /// The session's state cannot be copied or restored.
    #[error("cannot snapshot: {0}")]
    Snapshot(#[from] SnapshotRefusal),
    /// The snapshot does not exist.
    #[error("snapshot {0} was closed, or belongs to another policy: take another")]
    NoSnapshot(u64),
    /// An operation on one of the session's files failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A program could not be started or written to, or a directory cannot be watched.
    #[error(transparent)]
    Beside(#[from] BesideRefusal),
    /// The sandbox could not be provided.
    #[error(transparent)]
    NotProvided(#[from] Error),
    /// The message is malformed, or comes at the wrong time. Holds one sentence.
    #[error("{0}")]
    Protocol(String),
}

impl Refusal {
    /// Returns the code for a caller at the other end of a socket.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File(_) | Self::Beside(BesideRefusal::File(_)) => ErrorCode::FILE,
            Self::Protocol(_) => ErrorCode::PROTOCOL,
            other => other.kind().into(),
        }
    }

    /// Returns why the session has ended, if that is the reason for the refusal.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Ended(why) | Self::Beside(BesideRefusal::Ended(why)) => Some(why),
            _ => None,
        }
    }
}

/// Explains why a message to the worker with `what` in it is too large. The payload of a request is its source.
pub(super) fn too_large(what: &str, error: &MessageError) -> String {
    match error {
        MessageError::Frame(FrameError::HeaderTooLong { length, limit }) => format!(
            "{what} is too large: {length} bytes as JSON, and the limit is {limit}; pass long text as a buffer \
             (`Attachments::text` in Rust), or write it to a file of the session"
        ),
        MessageError::Frame(FrameError::PayloadTooLong { .. }) => {
            format!("the source is too large: {error}")
        }
        error => error.to_string(),
    }
}

impl From<SupervisorError> for Refusal {
    fn from(error: SupervisorError) -> Self {
        Self::NotProvided(error.into())
    }
}

impl Cause for Refusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotProvided(error) => error.kind(),
            Self::Beside(refusal) => refusal.kind(),
            Self::Busy => ErrorKind::Busy,
            Self::Snapshot(refusal) if refusal.is_for_now() => ErrorKind::Busy,
            Self::Snapshot(refusal) if refusal.is_of_host() => ErrorKind::System,
            Self::File(error) => error.kind(),
            Self::Ended(_) => ErrorKind::SessionEnded,
            Self::NoWall
            | Self::NulInFilename
            | Self::TooLarge(_)
            | Self::Snapshot(_)
            | Self::NoSnapshot(_)
            | Self::Protocol(_) => ErrorKind::Request,
        }
    }

    fn errno(&self) -> Option<i32> {
        match self {
            Self::File(error) => Some(error.errno() as i32),
            Self::Beside(refusal) => refusal.errno(),
            Self::NotProvided(error) => error.errno(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn refusal_maps_to_error_kind_and_wire_code() {
        let lost = || Refusal::from(SupervisorError::RunLost);
        let on_disk = |wanted| {
            Refusal::from(SnapshotRefusal::Disk {
                whose: "process",
                wanted,
                taken: 2,
                most: 3,
            })
        };
        let table = [
            (Refusal::Busy, ErrorKind::Busy, ErrorKind::Busy.into()),
            (
                Refusal::Ended(String::new()),
                ErrorKind::SessionEnded,
                ErrorKind::SessionEnded.into(),
            ),
            (on_disk(2), ErrorKind::Busy, ErrorKind::Busy.into()),
            (on_disk(4), ErrorKind::Request, ErrorKind::Request.into()),
            (
                SnapshotRefusal::HostDescriptors.into(),
                ErrorKind::System,
                ErrorKind::System.into(),
            ),
            (
                SnapshotRefusal::Saved {
                    why: "it is full".into(),
                    errno: Some(Errno::ENOSPC),
                }
                .into(),
                ErrorKind::System,
                ErrorKind::System.into(),
            ),
            (
                Refusal::NoWall,
                ErrorKind::Request,
                ErrorKind::Request.into(),
            ),
            (lost(), ErrorKind::System, ErrorKind::System.into()),
            (
                Refusal::File(FileError::Gone),
                ErrorKind::Request,
                ErrorCode::FILE,
            ),
            (
                Refusal::Protocol(String::new()),
                ErrorKind::Request,
                ErrorCode::PROTOCOL,
            ),
        ];
        for (refusal, kind, code) in table {
            assert_eq!(refusal.code(), code);
            let (message, errno) = (refusal.to_string(), refusal.errno());
            let error = Error::from(refusal);
            assert_eq!((error.kind(), error.errno()), (kind, errno));
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn oversized_part_is_named_with_a_remedy() {
        let too_large = |error: FrameError| Refusal::from(MessageError::from(error)).to_string();
        let (length, limit) = (3, 2);
        assert_eq!(
            too_large(FrameError::HeaderTooLong { length, limit }),
            "the request is too large: 3 bytes as JSON, and the limit is 2; pass long text as a buffer (`Attachments::text` \
             in Rust), or write it to a file of the session"
        );
        assert_eq!(
            too_large(FrameError::PayloadTooLong { length, limit }),
            "the source is too large: a payload of 3 bytes is over the limit of 2"
        );
    }

    #[test]
    fn reason_of_an_end_has_no_remedy() {
        let why = "it waited";
        let ended = [
            Refusal::Ended(why.into()),
            BesideRefusal::Ended(why.into()).into(),
        ];
        for refusal in ended {
            assert_eq!(
                (refusal.code(), refusal.why()),
                (ErrorKind::SessionEnded.into(), Some(why))
            );
        }
        assert_eq!(Refusal::Busy.why(), None);
    }
}
