//! What a caller asks for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::RunLimits;
use super::less::Less;
use super::stdin::Stdin;
use crate::protocol::message::{Last, Serves, Then};
use crate::protocol::{self, MessageError, VERSION};
use crate::supervisor::ending::Kind;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::files::GuestPath;

/// The number of a worker's one request.
pub(super) const ONLY_REQUEST: u64 = 1;

/// One run: what to run, what it finds and reads, and how it is called off.
///
/// A string is a request too: Python source named `<string>`, with nothing to read. A clone shares
/// what the request holds, and costs next to nothing.
#[derive(Clone, Debug)]
pub struct Request {
    program: Arc<Program>,
    files: Arc<Vec<(GuestPath, Vec<u8>)>>,
    stdin: Stdin,
    less: Less,
    client: Arc<str>,
    cancel: Option<Cancel>,
}

#[derive(Clone, Debug)]
enum Program {
    Python {
        source: Vec<u8>,
        filename: String,
        args: Vec<String>,
    },
    Command(Vec<String>),
}

impl Request {
    /// Runs Python source: UTF-8, or as its coding line says (PEP 263). At most 16 MiB
    /// ([`FrameLimits::TO_WORKER`](crate::protocol::FrameLimits::TO_WORKER)), or the run is an error of
    /// kind [`Request`](crate::ErrorKind::Request).
    pub fn python(source: impl Into<Vec<u8>>) -> Self {
        let filename = "<string>".to_owned();
        Self::new(Program::Python {
            source: source.into(),
            filename,
            args: Vec::new(),
        })
    }

    /// Runs a program of the sandbox: its path there or its name on the guest's `PATH`, and its
    /// arguments.
    pub fn program(argv: Vec<String>) -> Self {
        Self::new(Program::Command(argv))
    }

    fn new(program: Program) -> Self {
        Self {
            program: Arc::new(program),
            files: Arc::default(),
            stdin: Stdin::Nothing,
            less: Less::default(),
            client: Arc::from(""),
            cancel: None,
        }
    }

    /// The name that tracebacks show and that `sys.argv[0]` is. It need not exist as a file.
    #[must_use]
    pub fn filename(mut self, name: impl Into<String>) -> Self {
        if let Program::Python { filename, .. } = Arc::make_mut(&mut self.program) {
            *filename = name.into();
        }
        self
    }

    /// Arguments: `sys.argv[1:]`, or more of them for a program.
    #[must_use]
    pub fn args(mut self, more: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let (Program::Python { args, .. } | Program::Command(args)) =
            Arc::make_mut(&mut self.program);
        args.extend(more.into_iter().map(Into::into));
        self
    }

    /// A file that is in the work directory when the guest starts, with the directories above it. It
    /// is the guest's own, and counts against `filesystem.work_size` and `filesystem.work_inodes`:
    /// what does not fit is an error of kind [`Request`](crate::ErrorKind::Request).
    #[must_use]
    pub fn file(mut self, path: GuestPath, contents: impl Into<Vec<u8>>) -> Self {
        Arc::make_mut(&mut self.files).push((path, contents.into()));
        self
    }

    /// Lets the guest read from this descriptor; without it there is nothing to read.
    ///
    /// The guest gets the open file itself, whose offset and flags it then shares: give it a pipe or a
    /// file opened for this, never a terminal or a socket that others use. A policy whose `stdio.stdin`
    /// is `"closed"` refuses the request.
    #[must_use]
    pub fn stdin(mut self, stdin: OwnedFd) -> Self {
        self.stdin = Stdin::Descriptor(Arc::new(stdin));
        self
    }

    /// Lets the guest read these bytes, from a pipe. A policy whose `stdio.stdin` is `"closed"`
    /// refuses the request.
    #[must_use]
    pub fn stdin_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(Arc::new(bytes.into()));
        self
    }

    /// Less time on the clock than the policy's `limits.wall`.
    ///
    /// As with [`cpu`](Self::cpu) and [`output`](Self::output), a request may have less than the
    /// policy allows and never more: that is an error of kind [`Request`](crate::ErrorKind::Request).
    #[must_use]
    pub fn wall(mut self, wall: Duration) -> Self {
        self.less.wall = Some(wall);
        self
    }

    /// Less processor time, of all its processes together, than the policy's `limits.cpu`.
    #[must_use]
    pub fn cpu(mut self, cpu: Duration) -> Self {
        self.less.cpu = Some(cpu);
        self
    }

    /// Less output, in bytes of both streams together, than the policy's `limits.output`.
    #[must_use]
    pub fn output(mut self, output: u64) -> Self {
        self.less.output = Some(output);
        self
    }

    /// For whom it is, where an [`Admission`](crate::Admission) has clients take turns: any text that
    /// tells one from another. Those without are one client.
    #[must_use]
    pub fn client(mut self, client: impl Into<Arc<str>>) -> Self {
        self.client = client.into();
        self
    }

    /// Lets the run be called off from another thread, or before it begins.
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Whether there is something for the guest to read.
    pub(crate) fn has_stdin(&self) -> bool {
        !matches!(self.stdin, Stdin::Nothing)
    }

    /// What the guest reads: this, or nothing.
    pub(super) fn open_stdin(&self) -> io::Result<OwnedFd> {
        self.stdin.open()
    }

    /// What is in the work directory when the guest starts.
    pub(super) fn files(&self) -> &[(GuestPath, Vec<u8>)] {
        &self.files
    }

    /// The limits of this request under a policy with those.
    pub(super) fn limits(&self, policy: RunLimits) -> Result<RunLimits, SupervisorError> {
        self.less.than(policy)
    }

    /// For whom it is.
    pub(crate) fn for_client(&self) -> &Arc<str> {
        &self.client
    }

    pub(crate) fn cancelled_by(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    pub(super) fn kind(&self) -> Kind {
        match *self.program {
            Program::Python { .. } => Kind::Cell,
            Program::Command(_) => Kind::Program,
        }
    }

    /// The frames that a worker gets.
    pub(super) fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let mut bytes = Vec::new();
        let hello = protocol::Request::Hello {
            version: VERSION,
            serves: Serves::OneRun,
        };
        hello.encode_into(&[], &mut bytes)?;
        match &*self.program {
            Program::Python {
                source,
                filename,
                args,
            } => {
                let (filename, argv) = (filename.clone(), args.clone());
                let cell = protocol::Request::Cell {
                    id: ONLY_REQUEST,
                    filename,
                    argv,
                    last: Last::Expression,
                    then: Then::End,
                };
                cell.encode_into(source, &mut bytes)?;
            }
            Program::Command(argv) => {
                let exec = protocol::Request::Exec {
                    id: ONLY_REQUEST,
                    argv: argv.clone(),
                };
                exec.encode_into(&[], &mut bytes)?;
            }
        }
        Ok(bytes)
    }
}

impl From<&str> for Request {
    fn from(source: &str) -> Self {
        Self::python(source)
    }
}

impl From<&Request> for Request {
    fn from(request: &Request) -> Self {
        request.clone()
    }
}

impl From<String> for Request {
    fn from(source: String) -> Self {
        Self::python(source)
    }
}

/// Calls off a run from any thread; its outcome is then `interrupted`. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<EventFd>);

impl Cancel {
    /// A handle that has not been used.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left (eventfd(2)).
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(event)))
    }

    /// Ends the runs that were given this handle, and those that will be: it cannot be used again.
    pub fn cancel(&self) {
        // Fails only when it was called 2^64 times.
        _ = self.0.write(1);
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
