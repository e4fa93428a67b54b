//! The one error of the library: the sandbox could not be provided.

use std::fmt;

use nix::errno::Errno;

use crate::admission::Busy;
use crate::host::HostError;
use crate::plan::PlanError;
use crate::policy::PolicyError;
use crate::session::SessionError;
use crate::supervisor::SupervisorError;

/// The sandbox could not be provided. What a guest does is never an error but an
/// [`Outcome`](crate::Outcome).
///
/// Its text is one sentence that names the thing and the remedy.
#[derive(Debug)]
pub struct Error(pub(crate) Cause);

/// What kind of thing went wrong, to decide by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The policy says something that cannot be, whatever the host: the caller's to mend.
    Policy,
    /// The policy cannot be kept on this host, or requires a level that it cannot give.
    Host,
    /// The interpreter is missing, unsuitable, or could not preload what the policy names.
    Interpreter,
    /// A layer did not hold when the worker was looked at from outside. Nothing was run.
    NotEnforced,
    /// The request itself is too large, has a standard input that the policy closes, asks for more
    /// than the policy allows, or has files that cannot be placed.
    Request,
    /// The session's worker is gone, with its variables, imports and files.
    SessionEnded,
    /// More runs go on and wait than an [`Admission`](crate::Admission) allows: trying again later may
    /// help.
    Busy,
    /// A system call failed, or a process that was needed ended: trying again may help.
    System,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Busy(#[from] Busy),
}

impl Error {
    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        use SupervisorError as S;
        match &self.0 {
            Cause::Policy(_) => ErrorKind::Policy,
            Cause::Busy(_) => ErrorKind::Busy,
            Cause::Plan(_) | Cause::Host(HostError::UnknownKernel) => ErrorKind::Host,
            Cause::Host(HostError::Interpreter(_)) => ErrorKind::Interpreter,
            Cause::Session(error) => error.kind(),
            Cause::Supervisor(error) => match error {
                S::Interpreter { .. }
                | S::ZygoteEnded { .. }
                | S::ZygoteSlow { .. }
                | S::Preload { .. }
                | S::Threads { .. }
                | S::Startup { .. } => ErrorKind::Interpreter,
                S::NotEnforced { .. } => ErrorKind::NotEnforced,
                S::FileNotPlaced { errno, .. } if !is_of_names(*errno) => ErrorKind::System,
                S::Request(_)
                | S::StdinRefused
                | S::AbovePolicy { .. }
                | S::FilesTooLarge { .. }
                | S::FileNotPlaced { .. } => ErrorKind::Request,
                S::Jail { .. } | S::Cgroup { .. } | S::SessionPlace { .. } => ErrorKind::Host,
                S::System { .. }
                | S::ZygoteGone
                | S::RunLost
                | S::WorkerSlow { .. }
                | S::WorkerEnded { .. } => ErrorKind::System,
            },
        }
    }
}

impl Error {
    /// The number (errno(3)) of what could not be done with a session's file; `None` for other errors.
    pub const fn errno(&self) -> Option<i32> {
        match &self.0 {
            Cause::Session(SessionError::File { errno, .. }) => Some(*errno),
            _ => None,
        }
    }
}

/// Whether a file could not be made for its own name, or another's of the request.
fn is_of_names(errno: Errno) -> bool {
    matches!(errno, Errno::EEXIST | Errno::ENOTDIR | Errno::EISDIR)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

impl<E> From<E> for Error
where
    Cause: From<E>,
{
    fn from(error: E) -> Self {
        Self(Cause::from(error))
    }
}
