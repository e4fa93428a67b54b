//! Errors of a session.

use std::io;

use crate::error::ErrorKind;
use crate::host::relief_of;
use crate::protocol::caller::ErrorCode;

/// The error of a request to a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session's thread reported an error.
    #[error("{message}")]
    WireOutcome {
        /// The kind of the error.
        word: ErrorCode,
        /// The message, one sentence.
        message: String,
    },
    /// An operation on one of the session's files failed.
    #[error("{message}")]
    File {
        /// The message, one sentence.
        message: String,
        /// The errno (errno(3)).
        errno: i32,
    },
    /// The session's thread has ended.
    #[error("the session's thread has ended, and its worker with it: open another session")]
    Lost,
    /// The session's thread could not be started.
    #[error("no thread could be started for the session: {0}; {remedy}", remedy = relief_of(.0, "try again"))]
    Thread(io::Error),
    /// The session's thread could not be connected to this one.
    #[error("the session could not be tied to its thread: {0}; {remedy}", remedy = relief_of(.0, "try again"))]
    Tie(io::Error),
    /// A value's buffers could not be sent.
    #[error("the value's buffers cannot be handed over: {0}")]
    Buffers(String),
}

impl SessionError {
    /// An error that the session's thread reported.
    pub(super) const fn told(word: ErrorCode, message: String) -> Self {
        Self::WireOutcome { word, message }
    }

    /// The kind of the error.
    pub(crate) const fn kind(&self) -> ErrorKind {
        match self {
            Self::WireOutcome { word, .. } => match word {
                ErrorCode::Policy => ErrorKind::Policy,
                ErrorCode::Host => ErrorKind::Host,
                ErrorCode::Interpreter => ErrorKind::Interpreter,
                ErrorCode::NotEnforced => ErrorKind::NotEnforced,
                ErrorCode::SessionEnded => ErrorKind::SessionEnded,
                ErrorCode::Request | ErrorCode::Busy | ErrorCode::File | ErrorCode::Protocol => {
                    ErrorKind::Request
                }
                ErrorCode::System => ErrorKind::System,
            },
            Self::Lost => ErrorKind::SessionEnded,
            Self::Thread(_) | Self::Tie(_) => ErrorKind::System,
            Self::File { .. } | Self::Buffers(_) => ErrorKind::Request,
        }
    }
}
