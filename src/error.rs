//! The one error of the library: the sandbox could not be provided.
//!
//! Each module has an error of its own, and says there which kind it is ([`Cause`]). This module knows none
//! of them.

use std::error::Error as StdError;
use std::fmt;

use crate::outcome::exit_code;

/// The sandbox could not be provided. What a guest does is never an error but an
/// [`Outcome`](crate::Outcome).
///
/// Its text is one sentence that names the thing, the cause and the remedy. So it has no
/// [`source`](std::error::Error::source).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error {
    kind: ErrorKind,
    errno: Option<i32>,
    sentence: String,
}

/// What kind of thing went wrong, for callers that decide by it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The policy is invalid on every host. The caller must fix it.
    Policy,
    /// This host cannot enforce the policy, or cannot reach the level that the policy requires.
    Host,
    /// The interpreter is missing or unsuitable, or could not preload a module that the policy names.
    Interpreter,
    /// A layer did not hold when the supervisor checked the worker from outside. No guest code ran.
    NotEnforced,
    /// The request itself is too large, has a standard input that the policy closes, asks for more
    /// than the policy allows, has files that cannot be placed, names a file of the session with which the operation is
    /// not possible, asks for a snapshot of what cannot be copied, or for packages that there are not.
    Request,
    /// More runs are active and waiting than an [`Admission`](crate::Admission) allows, a run was cancelled while it
    /// waited for one, the session runs another cell or has lost the process that starts programs, or paused sessions have
    /// the room on the disk. A later attempt may succeed.
    Busy,
    /// The session's worker is gone, with its variables, imports and files.
    SessionEnded,
    /// A system call failed, or a required process ended. A second attempt may succeed.
    System,
}

impl ErrorKind {
    /// The name that stands for the class of an exception.
    pub(crate) const fn class_name(self) -> &'static str {
        self.names().0
    }

    /// The word for it, such as `not-enforced`.
    pub(crate) const fn as_str(self) -> &'static str {
        self.names().1
    }

    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Policy => ("Policy", "policy"),
            Self::Host => ("Host", "host"),
            Self::Interpreter => ("Interpreter", "interpreter"),
            Self::NotEnforced => ("NotEnforced", "not-enforced"),
            Self::Request => ("Request", "request"),
            Self::Busy => ("Busy", "busy"),
            Self::SessionEnded => ("SessionEnded", "session-ended"),
            Self::System => ("System", "system"),
        }
    }
}

/// A module's own error.
pub(crate) trait Cause: StdError {
    /// The kind of the error.
    fn kind(&self) -> ErrorKind;

    /// The errno(3) of an operation on a session's file, or of a program's start.
    fn errno(&self) -> Option<i32> {
        None
    }
}

#[doc(hidden)]
impl<C: Cause> From<C> for Error {
    fn from(cause: C) -> Self {
        Self {
            kind: cause.kind(),
            errno: cause.errno(),
            sentence: cause.to_string(),
        }
    }
}

impl Error {
    /// An error that is nothing but a sentence.
    pub(crate) fn new(kind: ErrorKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            errno: None,
            sentence: sentence.into(),
        }
    }

    /// A policy is wrong on every host.
    pub(crate) fn policy(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Policy, sentence)
    }

    /// This host cannot enforce a policy.
    pub(crate) fn host(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Host, sentence)
    }

    /// The kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The errno(3) of an operation on a session's file, or of the start of a program, that failed; `None` for other errors.
    pub const fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// The exit code of the `sandfork` command for this error: the caller's mistake, or the host's.
    pub const fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Policy | ErrorKind::Request => exit_code::USAGE,
            ErrorKind::Host
            | ErrorKind::Interpreter
            | ErrorKind::NotEnforced
            | ErrorKind::Busy
            | ErrorKind::SessionEnded
            | ErrorKind::System => exit_code::SANDBOX_UNAVAILABLE,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sentence.fmt(f)
    }
}

/// There is no `source`: a program that prints the chain of causes would repeat what the text has.
impl StdError for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot snapshot: {0}")]
    struct Refusal(#[from] fmt::Error);

    impl Cause for Refusal {
        fn kind(&self) -> ErrorKind {
            ErrorKind::Request
        }
    }

    #[test]
    fn a_cause_that_the_text_has_is_no_source() {
        let error = Error::from(Refusal(fmt::Error));
        assert_eq!(
            error.to_string(),
            format!("cannot snapshot: {}", fmt::Error)
        );
        assert!(error.source().is_none());
    }
}
