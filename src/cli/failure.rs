//! Defines the errors of a command.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::batch::LOST_IN_A_ROW;
use crate::outcome::exit_code;
use crate::policy::PolicyError;
use thiserror::Error;

use super::map::InputError;
use super::terminal::harmless_line;

/// The reason why a command failed, apart from what its guest did.
#[derive(Debug, Error)]
pub enum Failure {
    /// The script does not exist.
    #[error("`{0}` does not exist; check the path, or pass code with `-c`")]
    NoScript(PathBuf),
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No sandbox could be provided.
    #[error(transparent)]
    Sandbox(#[from] crate::Error),
    /// No sandbox could be provided, because of a policy setting at a known location.
    #[error("{place}{error}")]
    Located {
        /// The prefix of the message: a file, line and key.
        place: String,
        /// The reason.
        error: crate::Error,
    },
    /// A signal ended the command's work.
    #[error("{0}")]
    Interrupted(String),
    /// A line of the task file of `map` is invalid, or the file changed while it was read.
    #[error(transparent)]
    Tasks(#[from] InputError),
    /// Too many tasks of `map` in a row got no sandbox.
    #[error(
        "{LOST_IN_A_ROW} tasks in a row got no sandbox, so no more were started; the last error: {0}"
    )]
    Lost(String),
    /// The command itself lacks a resource, such as a thread or a descriptor.
    #[error("the command cannot be set up: {0}; check `ulimit -a`")]
    Setup(io::Error),
    /// An argument, or a file that an argument names, is invalid.
    #[error("{0}")]
    Usage(String),
    /// A child process failed, and has printed the reason.
    #[error("the command that was started failed")]
    Reported(u8),
    /// An output file could not be created.
    #[error("{0}")]
    NotWritten(String),
    /// The input of an interactive command could not be read.
    #[error("the input cannot be read: {0}")]
    Input(io::Error),
    /// The command's own output could not be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Prints the error, unless the reader has disconnected, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        self.say();
        ExitCode::from(self.exit_code())
    }

    /// Prints the error as one line on stderr, and returns the exit code.
    pub fn say(&self) -> u8 {
        if !self.is_broken_pipe() && !matches!(self, Self::Reported(_)) {
            say(&self.to_string());
        }
        self.exit_code()
    }

    fn exit_code(&self) -> u8 {
        match self {
            // The reader stopped early, as `head` does. The exit code is the same as for any other writer.
            _ if self.is_broken_pipe() => exit_code::BROKEN_PIPE,
            Self::Reported(code) => *code,
            Self::Output(_) | Self::NotWritten(_) => exit_code::NOT_WRITTEN,
            Self::Usage(_)
            | Self::NoScript(_)
            | Self::Policy(_)
            | Self::Tasks(_)
            | Self::Input(_) => exit_code::USAGE,
            Self::Sandbox(error) | Self::Located { error, .. } => error.exit_code(),
            Self::Interrupted(_) => exit_code::INTERRUPTED,
            Self::Setup(_) | Self::Lost(_) => exit_code::SANDBOX_UNAVAILABLE,
        }
    }

    fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Prints one sentence on stderr, prefixed with the command's name. The sentence may quote a guest or a line of tasks.
pub fn say(sentence: &str) {
    // If stderr is closed too, the message is lost.
    let _ = writeln!(io::stderr(), "sandfork: {}", harmless_line(sentence));
}
