//! Errors of the trusted side. Each message names the object and the remedy.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use super::files::{FileError, Misfit};
use super::snapshot::SnapshotRefusal;
use super::zygote::BIRTH_TIMEOUT;
use crate::error::{Cause, ErrorKind};
use crate::host::{HostError, has_run_out, io_exhaustion_hint, step_hint, with_hint};
use crate::plan::{Layer, harmless};
use crate::policy::AbovePolicy;
use crate::protocol::{FrameError, MessageError};
use sandfork_jail::control::Unready;
use sandfork_jail::failure::{Failure, NOT_REFUSED, Step};
use sandfork_jail::sys::errno_of;

/// The sandbox could not be provided.
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
    /// The host lacks what each start needs.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The interpreter could not be started.
    #[error(
        "could not start the interpreter {path}: {cause}; {remedy}",
        path = path.display(),
        remedy = io_exhaustion_hint(cause, "name another with `python.interpreter`")
    )]
    Interpreter {
        /// The interpreter's path.
        path: PathBuf,
        /// The error of starting it.
        cause: io::Error,
    },
    /// The zygote ended before it was ready. Holds the end of what it wrote to standard error.
    #[error("the interpreter ended before it was ready{}", said(.0))]
    ZygoteEnded(String),
    /// The zygote did not become ready in time.
    #[error(
        "the interpreter was not ready after {seconds} s: preload less, or look at what {last} does at import"
    )]
    ZygoteSlow {
        /// How long the supervisor waited, seconds.
        seconds: u64,
        /// The last thing the zygote was doing.
        last: String,
    },
    /// A worker cannot take on the state of another.
    #[error("could not begin with the snapshot: {0}")]
    Restore(#[from] SnapshotRefusal),
    /// A worker tried to take on the state of another, and failed. Holds the reason, as part of a sentence.
    #[error("could not begin with the snapshot: {}", harmless(.0))]
    NotRestored(String),
    /// Every uid for workers is taken.
    #[error("no uid is left for another worker: end sessions, or have another process run some")]
    NoUid,
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
    /// A link is where a writable directory was when the plan was made. Holds its path.
    #[error(
        "{path} has become a symbolic link, or lies behind one, and is not shown, because guests may have put the link there: \
         look at what it leads to, remove it and make the directory again", path = .0.display()
    )]
    Redirected(PathBuf),
    /// The interpreter could not be made ready in its jail. A module of the preload list that starts a thread, or
    /// shares memory with its children, is left to the guest; then it is `site`.
    #[error("{}", unready(.0))]
    Unready(Unready),
    /// The zygote died while a worker was being made.
    #[error("the zygote ended while a worker was being made; the next run starts a new one")]
    ZygoteGone,
    /// The zygote died while guest code ran.
    #[error(
        "the zygote was ended from outside while the code ran, so how far it came is not known; \
         the next run starts a new one"
    )]
    RunLost,
    /// A secret of the policy cannot be used.
    #[error(
        "the secret {what} of the policy cannot be used: {cause}; check what the policy's `${{...}}` names"
    )]
    Secret {
        /// The secret: a variable, a file, or a header.
        what: String,
        /// The reason.
        cause: String,
    },
    /// The rules do not fit into one message.
    #[error("`network.allow` is too long: join its entries, as in \"*.example.org\"")]
    TooManyRules,
    /// This build has no egress process.
    #[error(
        "this build of Sandfork connects guests to no hosts: build it with the feature `egress`, one of its defaults, or \
         do without (`--set network.mode=none`)"
    )]
    NoEgress,
    /// The egress process does not serve a worker's sockets.
    #[error(
        "the process that connects guests to hosts cannot serve another one: it has no descriptors left; raise the hard \
         limit of open files (`ulimit -Hn`), or lower `network.connections`"
    )]
    EgressFull,
    /// The egress process could not get ready.
    #[error(
        "the process that connects guests to hosts could not {what}; {}",
        .remedy.as_deref().unwrap_or("run `sandfork doctor` to see what this host allows")
    )]
    Egress {
        /// What failed.
        what: String,
        /// What to do about it, if the host does not allow too little.
        remedy: Option<String>,
    },
    /// The egress process ended before it was ready, or too often. Holds the end of what it wrote to standard error.
    #[error("the process that connects guests to hosts ended{}", said(.0))]
    EgressEnded(String),
    /// The egress process did not get ready in time, or reads nothing. Holds how long the supervisor waited, seconds.
    #[error(
        "the process that connects guests to hosts did not answer for {0} s: the host is overloaded"
    )]
    EgressSlow(u64),
    /// The egress process has ended.
    #[error("the process that connects guests to hosts has ended; the next run starts another")]
    EgressGone,
    /// The zygote did not fork in time.
    #[error(
        "no worker was made within {} s: the host is overloaded, or out of memory; the next run starts another \
         interpreter",
        BIRTH_TIMEOUT.as_secs()
    )]
    ZygoteSilent,
    /// A worker did not report in time.
    #[error(
        "a worker had not entered its jail after {} s: the host is overloaded, or out of memory",
        BIRTH_TIMEOUT.as_secs()
    )]
    WorkerSlow,
    /// A worker ended before it reported. Holds a likely cause.
    #[error("a worker ended before it had entered its jail{0}")]
    WorkerEnded(&'static str),
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
    /// A cgroup could not be made or used.
    #[error(
        "could not {what} the cgroup {path}: {cause}; {remedy}",
        path = path.display(),
        remedy = io_exhaustion_hint(cause, "set `assurance.require = \"standard\"` and check `sandfork doctor`")
    )]
    Cgroup {
        /// The operation that failed.
        what: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the operation.
        cause: io::Error,
    },
    /// There is no place for the files of sessions.
    #[error("sessions cannot have their files in {path}: {cause}; set TMPDIR to another directory", path = path.display())]
    SessionPlace {
        /// The directory for temporary files.
        path: PathBuf,
        /// The reason.
        cause: String,
    },
    /// The request has standard input, and the policy does not allow any.
    #[error(
        "the request has a standard input, and the policy does not let the guest read one: set \
         `stdio.stdin = \"pass\"`, or leave it out"
    )]
    StdinRefused,
    /// The request wants a terminal, and the plan has no pseudoterminals.
    #[error(
        "the program can have no terminal: that needs namespaces, and a policy whose `filesystem.system` \
         is \"programs\"; leave out `-t`, or see `sandfork doctor` and `sandfork plan`"
    )]
    NoTerminal,
    /// The request asks for more than the policy allows.
    #[error(transparent)]
    AbovePolicy(#[from] AbovePolicy),
    /// The request's files cannot be in its work directory together.
    #[error(transparent)]
    Files(#[from] Misfit),
    /// One of the request's files could not be put into the work directory.
    #[error(transparent)]
    FileNotPlaced(#[from] FileError),
    /// The request is larger than a frame may be.
    #[error("{}", too_large(.0))]
    Request(#[from] MessageError),
    /// The kernel or Python takes no such text.
    #[error("{0}")]
    Unusable(&'static str),
}

/// The source is the payload of a request, and its header has all else.
fn too_large(error: &MessageError) -> String {
    match error {
        MessageError::Frame(FrameError::HeaderTooLong { length, limit }) => format!(
            "the request's arguments and file name are too large: in JSON they have {length} bytes, and may have {limit}; \
             pass more through its standard input, or in a file"
        ),
        error => format!("the source is too large: {error}"),
    }
}

impl SupervisorError {
    /// Whether the error makes the zygote suspect: it has ended, or does not answer, or it made a worker that differs
    /// from the plan, so that other properties may differ too.
    pub fn discredits_zygote(&self) -> bool {
        matches!(
            self,
            Self::ZygoteGone | Self::RunLost | Self::ZygoteSilent | Self::NotEnforced { .. }
        )
    }

    /// The error of a failed step. If the step expected a refusal, a layer does not hold.
    pub(super) fn of_step(who: &'static str, failure: Failure) -> Self {
        let Some(layer) = witnessed(failure.step) else {
            return Self::Jail { who, failure };
        };
        let answered = match failure.errno {
            NOT_REFUSED => "it was let".to_owned(),
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
            // A server may try again where something has run out, and not where the host lacks it.
            S::Interpreter { cause, .. } | S::Cgroup { cause, .. } if has_run_out(cause) => {
                ErrorKind::System
            }
            S::Jail { failure, .. } if has_run_out(&failure.errno.into()) => ErrorKind::System,
            S::Interpreter { .. } | S::ZygoteEnded(_) | S::ZygoteSlow { .. } | S::Unready(_) => {
                ErrorKind::Interpreter
            }
            S::Host(error) => error.kind(),
            S::NotEnforced { .. } => ErrorKind::NotEnforced,
            S::FileNotPlaced(error) if !is_of_the_request(error) => ErrorKind::System,
            S::Restore(refusal) if refusal.is_of_host() => ErrorKind::System,
            S::Request(_)
            | S::Unusable(_)
            | S::NoTerminal
            | S::StdinRefused
            | S::AbovePolicy(_)
            | S::Files(_)
            | S::Restore(_)
            | S::NotRestored(_)
            | S::FileNotPlaced(_) => ErrorKind::Request,
            S::Secret { .. } | S::TooManyRules => ErrorKind::Policy,
            S::Jail { .. }
            | S::Redirected(_)
            | S::Cgroup { .. }
            | S::SessionPlace { .. }
            | S::Egress { .. }
            | S::NoEgress => ErrorKind::Host,
            S::EgressEnded(_)
            | S::EgressFull
            | S::EgressSlow(_)
            | S::EgressGone
            | S::System { .. }
            | S::NoUid
            | S::ZygoteGone
            | S::RunLost
            | S::ZygoteSilent
            | S::WorkerSlow
            | S::WorkerEnded(_) => ErrorKind::System,
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

/// The layer that a step tests, if it tests one.
fn witnessed(step: Step) -> Option<Layer> {
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

/// Why the interpreter was not made ready, and the remedy.
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

/// Adds to an error what was being done.
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
