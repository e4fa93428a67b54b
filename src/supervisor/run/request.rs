//! What a caller asks for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::protocol::message::{Last, Serves, Then};
use crate::protocol::{self, MessageError, VERSION};
use crate::supervisor::ending::Kind;

/// The number of a worker's one request.
pub(super) const ONLY_REQUEST: u64 = 1;

/// One run: what to run, what it reads, and how it is called off.
///
/// A string is a request too: Python source named `<string>`, with nothing to read.
#[derive(Debug)]
pub struct Request {
    program: Program,
    stdin: Option<OwnedFd>,
    cancel: Option<Cancel>,
}

#[derive(Debug)]
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
            program,
            stdin: None,
            cancel: None,
        }
    }

    /// The name that tracebacks show and that `sys.argv[0]` is. It need not exist as a file.
    #[must_use]
    pub fn filename(mut self, name: impl Into<String>) -> Self {
        if let Program::Python { filename, .. } = &mut self.program {
            *filename = name.into();
        }
        self
    }

    /// Arguments: `sys.argv[1:]`, or more of them for a program.
    #[must_use]
    pub fn args(mut self, more: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let (Program::Python { args, .. } | Program::Command(args)) = &mut self.program;
        args.extend(more.into_iter().map(Into::into));
        self
    }

    /// Lets the guest read from this descriptor; without it there is nothing to read.
    ///
    /// The guest gets the open file itself, whose offset and flags it then shares: give it a pipe or a
    /// file opened for this, never a terminal or a socket that others use. A policy whose `stdio.stdin`
    /// is `"closed"` refuses the request.
    #[must_use]
    pub fn stdin(mut self, stdin: OwnedFd) -> Self {
        self.stdin = Some(stdin);
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
        self.stdin.is_some()
    }

    /// What the guest reads: this, or nothing.
    pub(super) fn open_stdin(&self) -> io::Result<OwnedFd> {
        match &self.stdin {
            Some(stdin) => stdin.try_clone(),
            None => Ok(File::open("/dev/null")?.into()),
        }
    }

    pub(super) fn cancelled_by(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    pub(super) fn kind(&self) -> Kind {
        match self.program {
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
        match &self.program {
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

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
