//! Why a session could not do what it was asked for.

use std::io;

use crate::error::ErrorKind;
use crate::host::relief_of;
use crate::protocol::caller::ErrorWord;

/// Why a session could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session's thread said so.
    #[error("{message}")]
    Told {
        /// What kind of thing is wrong.
        word: ErrorWord,
        /// One sentence.
        message: String,
    },
    /// Something could not be done with one of the session's files.
    #[error("{message}")]
    File {
        /// One sentence.
        message: String,
        /// Its number (errno(3)).
        errno: i32,
    },
    /// The session's thread is gone.
    #[error("the session's thread has ended, and its worker with it: open another session")]
    Lost,
    /// The session's thread could not be started.
    #[error("no thread could be started for the session: {0}; {remedy}", remedy = relief_of(.0, "try again"))]
    Thread(io::Error),
    /// The session's thread could not be tied to this one.
    #[error("the session could not be tied to its thread: {0}; {remedy}", remedy = relief_of(.0, "try again"))]
    Tie(io::Error),
    /// A value could not be handed over.
    #[error("the value's buffers cannot be handed over: {0}")]
    Buffers(String),
}

impl SessionError {
    /// What the session's thread said.
    pub(super) const fn told(word: ErrorWord, message: String) -> Self {
        Self::Told { word, message }
    }

    /// What kind of thing is wrong.
    pub(crate) const fn kind(&self) -> ErrorKind {
        match self {
            Self::Told { word, .. } => match word {
                ErrorWord::Policy => ErrorKind::Policy,
                ErrorWord::Host => ErrorKind::Host,
                ErrorWord::Interpreter => ErrorKind::Interpreter,
                ErrorWord::NotEnforced => ErrorKind::NotEnforced,
                ErrorWord::SessionEnded => ErrorKind::SessionEnded,
                ErrorWord::Request | ErrorWord::Busy | ErrorWord::File | ErrorWord::Protocol => {
                    ErrorKind::Request
                }
                ErrorWord::System => ErrorKind::System,
            },
            Self::Lost => ErrorKind::SessionEnded,
            Self::Thread(_) | Self::Tie(_) => ErrorKind::System,
            Self::File { .. } | Self::Buffers(_) => ErrorKind::Request,
        }
    }
}
