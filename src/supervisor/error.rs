//! Errors of the supervisor. Each message names the object and the remedy.

use std::io;

use nix::errno::Errno;

use super::files::FileError;
use super::snapshot::SnapshotRefusal;
use super::zygote::BIRTH_TIMEOUT;
use crate::error::{Cause, Error, ErrorKind};
use crate::host::{has_run_out, step_hint, with_hint};
use crate::plan::{Layer, harmless};
use crate::protocol::{FrameError, MessageError};
use sandfork_jail::control::Unready;
use sandfork_jail::failure::{Failure, NOT_REFUSED, Step};
use sandfork_jail::sys::errno_of;

/// An error because of which the sandbox could not be provided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// A system call of the supervisor failed.
    #[error("could not {what}: {}", with_hint(*.errno))]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The errno of the call.
        errno: Errno,
    },
    /// The zygote ended before it was ready. Holds the end of what it wrote to standard error.
    #[error("the interpreter ended before it was ready{}", said(.0))]
    ZygoteEnded(String),
    /// The zygote did not become ready in time.
    #[error(
        "the interpreter was not ready after {seconds} s: preload less, or check what {last} does at import"
    )]
    ZygoteSlow {
        /// The time that the supervisor waited, seconds.
        seconds: u64,
        /// The zygote's last known activity.
        last: String,
    },
    /// A snapshot cannot be restored into a worker.
    #[error("could not begin with the snapshot: {0}")]
    Restore(#[from] SnapshotRefusal),
    /// A step of a jail failed.
    #[error(
        "{who} {failure}; {remedy}",
        remedy = step_hint(failure.errno)
    )]
    Jail {
        /// The process: the zygote or a worker.
        who: &'static str,
        /// The step that failed, and its error.
        failure: Failure,
    },
    /// The interpreter could not be prepared in its jail. If a preloaded module starts a thread or shares memory with
    /// its children, the module is left to the guest, and this error is reported only for `site`.
    #[error("{}", unready(.0))]
    Unready(Unready),
    /// The zygote died while a worker was being made.
    #[error("the zygote ended while a worker was being made; the next run starts a new one")]
    ZygoteGone,
    /// The zygote died while guest code ran.
    #[error(
        "the zygote was ended from outside while the code ran, so it is not known how far the code got; \
         the next run starts a new one"
    )]
    RunLost,
    /// The egress process ended.
    #[error("the process that connects guests to hosts has ended; the next run starts another")]
    EgressGone,
    /// The zygote did not fork in time.
    #[error(
        "no worker was made within {} s: the host is overloaded, or out of memory; the next run starts another \
         interpreter",
        BIRTH_TIMEOUT.as_secs()
    )]
    ZygoteSilent,
    /// The kernel's report on the worker differs from the plan.
    #[error("layer {layer} does not hold: {found}, where the plan has {wanted}; nothing was run")]
    NotEnforced {
        /// The layer that does not hold.
        layer: Layer,
        /// What the kernel reports.
        found: String,
        /// What the plan requires.
        wanted: String,
    },
    /// One of the request's files could not be put into the work directory.
    #[error(transparent)]
    FileNotPlaced(#[from] FileError),
    /// The request is larger than a frame may be.
    #[error("{}", too_large(.0))]
    Request(#[from] MessageError),
    /// An error that no caller distinguishes from others.
    #[error(transparent)]
    Other(#[from] Error),
}

/// Explains which part of a request is too large: its payload is the source, and its header everything else.
fn too_large(error: &MessageError) -> String {
    match error {
        MessageError::Frame(FrameError::HeaderTooLong { length, limit }) => format!(
            "the request's arguments and file name are too large: {length} bytes as JSON, and the limit is {limit}; \
             pass more through standard input, or in a file"
        ),
        error => format!("the source is too large: {error}"),
    }
}

impl SupervisorError {
    /// Creates an error that consists of a kind and a sentence.
    pub(super) fn new(kind: ErrorKind, sentence: impl Into<String>) -> Self {
        Self::Other(Error::new(kind, sentence))
    }

    /// Returns the error of a failed restore. `why` is part of a sentence.
    pub(super) fn not_restored(why: &str) -> Self {
        Self::new(
            ErrorKind::Request,
            format!("could not begin with the snapshot: {}", harmless(why)),
        )
    }

    /// Whether the error makes the zygote unusable: it has ended, does not answer, or has made a worker that differs
    /// from the plan, so that other properties may differ too.
    pub fn discredits_zygote(&self) -> bool {
        matches!(
            self,
            Self::ZygoteGone | Self::RunLost | Self::ZygoteSilent | Self::NotEnforced { .. }
        )
    }

    /// Returns the error of a failed step. If the step tests that an operation is refused, a layer does not hold.
    pub(super) fn from_step(who: &'static str, failure: Failure) -> Self {
        let Some(layer) = tested_layer(failure.step) else {
            return Self::Jail { who, failure };
        };
        let answered = match failure.errno {
            NOT_REFUSED => "the kernel allowed it".to_owned(),
            errno => format!("the kernel answered `{}`", errno.desc()),
        };
        Self::NotEnforced {
            layer,
            found: format!("{who} could not {}: {answered}", failure.step.describe()),
            wanted: "a refusal".to_owned(),
        }
    }
}

impl Cause for SupervisorError {
    fn kind(&self) -> ErrorKind {
        use SupervisorError as S;
        match self {
            S::ZygoteEnded(_) | S::ZygoteSlow { .. } | S::Unready(_) => ErrorKind::Interpreter,
            S::NotEnforced { .. } => ErrorKind::NotEnforced,
            S::FileNotPlaced(error) if !is_request_fault(error) => ErrorKind::System,
            S::Restore(refusal) if refusal.is_of_host() => ErrorKind::System,
            S::Request(_) | S::Restore(_) | S::FileNotPlaced(_) => ErrorKind::Request,
            S::Jail { failure, .. } => kind_of(&failure.errno.into(), ErrorKind::Host),
            S::Other(error) => error.kind(),
            S::EgressGone | S::System { .. } | S::ZygoteGone | S::RunLost | S::ZygoteSilent => {
                ErrorKind::System
            }
        }
    }
}

/// Returns the kind of a kernel error: `System` if a resource has run out, for which a server may retry, or `otherwise`
/// if the host lacks something.
pub(super) fn kind_of(cause: &io::Error, otherwise: ErrorKind) -> ErrorKind {
    if has_run_out(cause) {
        ErrorKind::System
    } else {
        otherwise
    }
}

/// Whether the request itself is the reason why a file could not be created.
fn is_request_fault(error: &FileError) -> bool {
    use Errno as E;
    let errno = error.errno();
    let names = [E::EEXIST, E::ENOTDIR, E::EISDIR, E::ENAMETOOLONG];
    names.contains(&errno) || [E::ENOSPC, E::EDQUOT].contains(&errno)
}

/// Returns the layer that a step tests, if it tests one.
fn tested_layer(step: Step) -> Option<Layer> {
    match step {
        Step::RootSelfCheck => Some(Layer::Mounts),
        Step::LandlockSelfCheck => Some(Layer::Landlock),
        Step::PrivilegeSelfCheck => Some(Layer::Capabilities),
        Step::SocketSelfCheck
        | Step::TraceSelfCheck
        | Step::MountSelfCheck
        | Step::CapsetSelfCheck => Some(Layer::Seccomp),
        _ => None,
    }
}

/// Explains why the interpreter could not be prepared, with the remedy.
fn unready(why: &Unready) -> String {
    match why {
        Unready::Preload { module, error } => format!(
            "could not preload `{module}` ({error}): install it in the interpreter's environment, or take it out of \
             `python.preload`"
        ),
        Unready::Threads { module } => format!(
            "importing `{module}` started a thread, and a process with threads cannot be forked safely: remove what \
             starts it from the environment's packages and `.pth` files"
        ),
        Unready::SharedMemory { module } => format!(
            "importing `{module}` left shared memory, through which guests could reach each other: remove what makes \
             it from the environment's packages and `.pth` files"
        ),
        Unready::Startup { error } => {
            format!("the interpreter could not be prepared in its jail: {error}")
        }
    }
}

pub(super) fn said(log: &str) -> String {
    let log = log.trim();
    if log.is_empty() {
        String::new()
    } else {
        format!(": {log}")
    }
}

/// Adds the failed operation to an error.
pub trait While<T> {
    /// Wraps the error with the operation that failed.
    fn when(self, what: &'static str) -> Result<T, SupervisorError>;
}

impl<T, E: Into<io::Error>> While<T> for Result<T, E> {
    fn when(self, what: &'static str) -> Result<T, SupervisorError> {
        self.map_err(|error| SupervisorError::System {
            what,
            errno: errno_of(error),
        })
    }
}
