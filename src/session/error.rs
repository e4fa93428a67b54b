//! Errors of a session, besides what its thread refuses.

use std::io;

use crate::error::{Cause, ErrorKind};
use crate::host::io_exhaustion_hint;
use crate::outcome::value::{MOST_LEVELS, ValueError};

/// The error of a request to a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session's thread has ended.
    #[error("the session's thread has ended, and its worker with it: open another session")]
    Lost,
    /// The session's thread could not be started.
    #[error("no thread could be started for the session: {0}; {remedy}", remedy = io_exhaustion_hint(.0, "try again"))]
    Thread(io::Error),
    /// The session's thread could not be connected to this one.
    #[error("the session could not be tied to its thread: {0}; {remedy}", remedy = io_exhaustion_hint(.0, "try again"))]
    Tie(io::Error),
    /// The session has ended while it was copied.
    #[error("the session ended with `{0}` while it was copied: restart it, or open another")]
    EndedBy(&'static str),
    /// A value's buffers could not be sent.
    #[error("the value's buffers cannot be handed over: {0}")]
    Buffers(String),
    /// A value refers to buffers that do not come with it.
    #[error(
        "the value does not fit its attachments: {0}; long text, bytes and arrays that came from a guest are handed over by \
         the methods of `Attachments`"
    )]
    Unattached(ValueError),
    /// A value has too many values inside each other.
    #[error(
        "the value has more than {MOST_LEVELS} values inside each other: hand it over in parts, or as text"
    )]
    Deep,
}

impl Cause for SessionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Lost | Self::EndedBy(_) => ErrorKind::SessionEnded,
            Self::Thread(_) | Self::Tie(_) => ErrorKind::System,
            Self::Buffers(_) | Self::Unattached(_) | Self::Deep => ErrorKind::Request,
        }
    }
}
