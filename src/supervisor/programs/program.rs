//! A program that a caller wants to run.

use std::time::Duration;

use super::refusal::BesideRefusal;
use crate::protocol::caller::{ProgramTerminal, StartProgram};
use crate::protocol::frame::encode_with;
use crate::protocol::{FrameError, FrameLimits};
use crate::supervisor::clock::time_of;

/// The maximum length of a program's arguments and variables together, in bytes. The kernel allows 2 MiB in all, and
/// 128 KiB per string.
pub const MAX_BYTES: usize = 3 << 19;

/// The size limits of an order to the starter. Larger than any program that [`Program::check`] accepts.
const ORDERS: FrameLimits = FrameLimits {
    header: 2 << 20,
    payload: 0,
};

/// The terminal type that programs find in `TERM`.
const TERM: &str = "xterm-256color";

/// A program to run in a session, beside its cells. It has the same jail and files as the cells, and its usage counts
/// towards the session's limits.
#[derive(Clone, Debug)]
pub struct Program(pub(super) StartProgram);

impl Program {
    /// Creates a program from a name or path and its arguments. A name is looked up in the guest's `PATH`.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(StartProgram {
            argv: argv.into_iter().map(Into::into).collect(),
            ..StartProgram::default()
        })
    }

    /// Creates a program that runs a line in the guest's shell.
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(["/bin/sh".to_owned(), "-c".to_owned(), line.into()])
    }

    /// Sets the directory in which the program starts. Defaults to the session's work directory, against which a
    /// relative path is resolved.
    #[must_use]
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.0.cwd = Some(directory.into());
        self
    }

    /// Adds a variable to the session's initial environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.env.insert(name.into(), value.into());
        self
    }

    /// Gives the program a standard input, which [`Process::write_stdin`](super::Process::write_stdin) writes to. It is
    /// empty otherwise.
    #[must_use]
    pub const fn stdin(mut self) -> Self {
        self.0.stdin = true;
        self
    }

    /// Limits the time that the program may run, after which its process group is killed. Without a timeout, it runs
    /// until it or its session ends.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = Some(timeout.as_secs_f64());
        self
    }

    /// Limits the bytes that the program may print on both streams together, in place of the policy's `limits.output`.
    /// A program that prints more is killed.
    #[must_use]
    pub const fn output(mut self, bytes: u64) -> Self {
        self.0.output = Some(bytes);
        self
    }

    /// Gives the program its own terminal of this size. All of its output is then standard output, and bytes written to
    /// its standard input are typed.
    #[must_use]
    pub const fn terminal(mut self, rows: u16, columns: u16) -> Self {
        self.0.terminal = Some(ProgramTerminal { rows, columns });
        self
    }
}

impl Program {
    /// Creates the program that a request over the protocol describes.
    pub(crate) const fn requested(wanted: StartProgram) -> Self {
        Self(wanted)
    }
}

impl Program {
    /// Rejects a program that can never be started.
    pub(super) fn check(&self) -> Result<(), BesideRefusal> {
        let Self(StartProgram { argv, cwd, env, .. }) = self;
        if argv.first().is_none_or(String::is_empty) {
            return Err(BesideRefusal::request(
                "a program has a name: give at least one argument",
            ));
        }
        let no_text = |what: &str| {
            BesideRefusal::request(format!(
                "{what} cannot be passed to a program: it has a NUL, or a variable's name has `=` or is empty"
            ))
        };
        let has_nul = |text: &str| text.contains('\0');
        if argv.iter().any(|text| has_nul(text)) {
            return Err(no_text("an argument"));
        }
        if cwd.as_deref().is_some_and(has_nul) {
            return Err(no_text("the directory"));
        }
        let is_wrong = |name: &str, value: &str| {
            name.is_empty() || name.contains(['=', '\0']) || has_nul(value)
        };
        if env.iter().any(|(name, value)| is_wrong(name, value)) {
            return Err(no_text("a variable"));
        }
        // Counts the size of a `String` as well, which every entry takes here, however short it is.
        let of_env = env
            .iter()
            .map(|(name, value)| 2 * size_of::<String>() + name.len() + value.len() + 2);
        let of_argv = argv.iter().map(|text| size_of::<String>() + text.len() + 1);
        let length = of_env.chain(of_argv).sum::<usize>() + cwd.as_ref().map_or(0, String::len);
        if length > MAX_BYTES {
            return Err(BesideRefusal::request(format!(
                "the program's arguments and variables are longer than {MAX_BYTES} bytes: write them to a file of the \
                 session"
            )));
        }
        Ok(())
    }

    /// Whether the caller can write to the program's standard input.
    pub(super) const fn has_input(&self) -> bool {
        self.0.stdin || self.0.terminal.is_some()
    }

    /// Returns the timeout. A value that is not a duration ends the program at once.
    pub(super) fn time(&self) -> Option<Duration> {
        let seconds = self.0.timeout?;
        Some(time_of(seconds).unwrap_or(Duration::ZERO))
    }

    /// Encodes the order that starts the program: its fields, separated by NULs.
    pub(super) fn message(&self, number: u64, work: &str) -> Vec<u8> {
        let Self(StartProgram { argv, cwd, env, .. }) = self;
        let (kind, size) = match self.0.terminal {
            Some(terminal) => (TERM, terminal),
            None => ("", ProgramTerminal::default()),
        };
        let cwd = match cwd {
            Some(cwd) if cwd.starts_with('/') => cwd.clone(),
            Some(cwd) => format!("{work}/{cwd}"),
            None => work.to_owned(),
        };
        let ProgramTerminal { rows, columns } = size;
        let count = argv.len();
        let head = format!("start\0{number}\0{kind}\0{rows}\0{columns}\0{cwd}\0{count}");
        let variables = env.iter().map(|(name, value)| format!("{name}={value}"));
        let mut message = head;
        for text in argv.iter().cloned().chain(variables) {
            message.push('\0');
            message.push_str(&text);
        }
        message.into_bytes()
    }
}

/// Encodes a message to the starter as a frame.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let encoded: Result<(), FrameError> = encode_with(&[], &ORDERS, &mut frame, |out| {
        out.extend_from_slice(message);
        Ok(())
    });
    debug_assert!(encoded.is_ok(), "a program that was checked fits");
    frame
}
