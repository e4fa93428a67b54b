//! What a caller asks for.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::protocol::{MessageError, Request, VERSION};
use crate::supervisor::ending::Kind;

/// What to run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Program {
    /// Python source.
    Python {
        /// UTF-8, or as its coding line (PEP 263) says.
        source: Vec<u8>,
        /// The name that tracebacks show and `sys.argv[0]` is.
        filename: String,
        /// `sys.argv[1:]`.
        args: Vec<String>,
    },
    /// A program of the sandbox: its name or path there, and its arguments.
    Command(Vec<String>),
}

/// One run: what to run, and what it reads.
#[derive(Debug)]
pub struct RunRequest {
    program: Program,
    stdin: Option<OwnedFd>,
}

impl RunRequest {
    /// Runs a program with nothing to read.
    pub fn new(program: Program) -> Self {
        Self { program, stdin: None }
    }

    /// Lets the guest read from this descriptor.
    #[must_use]
    pub fn with_stdin(mut self, stdin: OwnedFd) -> Self {
        self.stdin = Some(stdin);
        self
    }

    pub(super) fn stdin(&self) -> Option<&OwnedFd> {
        self.stdin.as_ref()
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
        Request::Hello { version: VERSION }.encode_into(&[], &mut bytes)?;
        match &self.program {
            Program::Python { source, filename, args } => {
                let cell =
                    Request::Cell { id: 1, filename: filename.clone(), argv: args.clone() };
                cell.encode_into(source, &mut bytes)?;
            }
            Program::Command(argv) => {
                Request::Exec { id: 1, argv: argv.clone() }.encode_into(&[], &mut bytes)?;
            }
        }
        Ok(bytes)
    }
}

/// Ends a run from outside, from any thread.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<EventFd>);

impl Cancel {
    /// A handle that has not been used.
    pub fn new() -> Result<Self, Errno> {
        EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map(|event| Self(Arc::new(event)))
    }

    /// Ends the run that was given this handle, or will be.
    pub fn cancel(&self) {
        // Fails only when it was called 2^64 times.
        _ = self.0.write(1);
    }

    pub(super) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
