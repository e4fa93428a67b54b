//! The one error of the library: the sandbox could not be provided.

use std::fmt;

use nix::errno::Errno;

use crate::admission::Busy;
use crate::host::HostError;
use crate::plan::PlanError;
use crate::policy::PolicyError;
use crate::session::SessionError;
use crate::supervisor::SupervisorError;
use crate::supervisor::files::FileError;

/// The sandbox could not be provided. What a guest does is never an error but an
/// [`Outcome`](crate::Outcome).
///
/// Its text is one sentence that names the thing and the remedy.
#[derive(Debug)]
pub struct Error(pub(crate) Cause);

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
    /// than the policy allows, or has files that cannot be placed.
    Request,
    /// More runs are active and waiting than an [`Admission`](crate::Admission) allows. A later
    /// attempt may succeed.
    Busy,
    /// The session's worker is gone, with its variables, imports and files.
    SessionEnded,
    /// A system call failed, or a required process ended. A second attempt may succeed.
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
    Busy(#[from] Busy),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        use SupervisorError as S;
        match &self.0 {
            Cause::Policy(_) => ErrorKind::Policy,
            Cause::Busy(_) => ErrorKind::Busy,
            Cause::Plan(_) | Cause::Host(HostError::UnknownKernel) => ErrorKind::Host,
            Cause::Host(HostError::Interpreter(_)) => ErrorKind::Interpreter,
            Cause::Host(HostError::Exhausted { .. }) => ErrorKind::System,
            Cause::Session(error) => error.kind(),
            Cause::Supervisor(error) => match error {
                S::Interpreter { .. }
                | S::ZygoteEnded { .. }
                | S::ZygoteSlow { .. }
                | S::Preload { .. }
                | S::Threads { .. }
                | S::Startup { .. } => ErrorKind::Interpreter,
                S::NotEnforced { .. } => ErrorKind::NotEnforced,
                S::FileNotPlaced(error) if !is_of_the_request(error) => ErrorKind::System,
                S::Request(_)
                | S::StdinRefused
                | S::AbovePolicy { .. }
                | S::FilesTooLarge { .. }
                | S::FileNotPlaced(_) => ErrorKind::Request,
                S::Jail { .. } | S::Cgroup { .. } | S::SessionPlace { .. } => ErrorKind::Host,
                S::System { .. }
                | S::NoUid
                | S::ZygoteGone
                | S::RunLost
                | S::WorkerSlow { .. }
                | S::WorkerEnded { .. } => ErrorKind::System,
            },
        }
    }
}

/// Whether the request itself is why a file could not be made.
fn is_of_the_request(error: &FileError) -> bool {
    use Errno as E;
    let errno = error.errno();
    let names = [E::EEXIST, E::ENOTDIR, E::EISDIR, E::ENAMETOOLONG];
    names.contains(&errno) || [E::ENOSPC, E::EDQUOT].contains(&errno)
}

impl Error {
    /// The errno(3) of an operation on a session's file that failed; `None` for other errors.
    pub const fn errno(&self) -> Option<i32> {
        match &self.0 {
            Cause::Session(SessionError::File { errno, .. }) => Some(*errno),
            _ => None,
        }
    }
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
