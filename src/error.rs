//! Defines the library's only public error: Sandfork could not provide a sandbox.
//!
//! Each module has its own error type and assigns its [`ErrorKind`] by implementing [`Cause`]. This module depends on
//! none of them.

use std::error::Error as StdError;
use std::fmt;

use crate::outcome::exit_code;

/// A failure to provide a sandbox. Every end of guest code is an [`Outcome`](crate::Outcome) instead.
///
/// Its message is one sentence that names the thing, the cause and the remedy. The message includes the cause, so
/// [`source`](std::error::Error::source) returns `None`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error {
    kind: ErrorKind,
    errno: Option<i32>,
    sentence: String,
}

/// The class of a failure, for callers that branch on it.
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
    /// The request is invalid. It is too large, passes standard input that the policy closes, exceeds what the policy
    /// allows, has files that cannot be placed, applies an operation to a session file that does not support it, takes
    /// a snapshot of state that cannot be copied, or names packages that do not exist.
    Request,
    /// The sandbox is temporarily unavailable, and a later attempt may succeed. The limit of an
    /// [`Admission`](crate::Admission) is reached, a run was cancelled while it waited for admission, the session is
    /// running another cell or has lost the process that starts programs, or paused sessions fill the disk space set
    /// aside for them.
    Busy,
    /// The session's worker is gone, with its variables, imports and files.
    SessionEnded,
    /// A system call failed, or a required process ended. A second attempt may succeed.
    System,
}

impl ErrorKind {
    /// Returns the name that serves as an exception's class name.
    pub(crate) const fn class_name(self) -> &'static str {
        self.names().0
    }

    /// Returns the kebab-case name, such as `not-enforced`.
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

/// The error of one module, convertible into [`Error`].
pub(crate) trait Cause: StdError {
    /// Returns the kind of the error.
    fn kind(&self) -> ErrorKind;

    /// Returns the errno(3) of a failed operation on a session's file, or of a program that failed to start.
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
    /// Creates an error from a sentence, without an errno.
    pub(crate) fn new(kind: ErrorKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            errno: None,
            sentence: sentence.into(),
        }
    }

    /// Creates an error for a policy that is invalid on every host.
    pub(crate) fn policy(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Policy, sentence)
    }

    /// Creates an error for a policy that this host cannot enforce.
    pub(crate) fn host(sentence: impl Into<String>) -> Self {
        Self::new(ErrorKind::Host, sentence)
    }

    /// Returns the kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the errno(3) of a failed operation on a session's file, or of a program that failed to start; `None` for
    /// other errors.
    pub const fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// Returns the exit code of the `sandfork` command for this error, which separates mistakes of the caller from
    /// failures of the host.
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

/// Has no `source`: a program that prints the chain of causes would print the same text twice.
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
    fn error_has_no_source() {
        let error = Error::from(Refusal(fmt::Error));
        assert_eq!(
            error.to_string(),
            format!("cannot snapshot: {}", fmt::Error)
        );
        assert!(error.source().is_none());
    }
}
