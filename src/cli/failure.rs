//! Errors of a command.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::batch::LOST_IN_A_ROW;
use crate::outcome::exit_code;
use crate::policy::PolicyError;
use thiserror::Error;

use super::map::InputError;
use super::terminal::harmless_line;

/// A command failed before, or besides, its guest.
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
    /// No sandbox could be provided, because of a policy that has the reason at this place.
    #[error("{place}{error}")]
    Located {
        /// Stands before the sentence.
        place: String,
        /// Why not.
        error: crate::Error,
    },
    /// A signal ended what the command did.
    #[error("{0}")]
    Interrupted(String),
    /// A line of the tasks of `map` is invalid, or their file changed while it was read.
    #[error(transparent)]
    Tasks(#[from] InputError),
    /// The host provides no more sandboxes for the tasks of `map`.
    #[error("{LOST_IN_A_ROW} tasks in a row got no sandbox, and no more were begun; the last: {0}")]
    Lost(String),
    /// The command itself lacks a resource: a thread, a descriptor.
    #[error("the command cannot be set up: {0}; look at `ulimit -a`")]
    Setup(io::Error),
    /// An argument is invalid, or a file that an argument names.
    #[error("{0}")]
    Usage(String),
    /// A command that this one started has said what failed.
    #[error("the command that was started failed")]
    Said(u8),
    /// A file that the command was to make could not be made.
    #[error("{0}")]
    NotWritten(String),
    /// What a person types cannot be read.
    #[error("the input cannot be read: {0}")]
    Input(io::Error),
    /// The command's own output could not be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Prints the error, unless the reader has gone, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        self.say();
        ExitCode::from(self.exit_code())
    }

    /// Prints one line on stderr and returns the exit code.
    pub fn say(&self) -> u8 {
        if !self.is_broken_pipe() && !matches!(self, Self::Said(_)) {
            say(&self.to_string());
        }
        self.exit_code()
    }

    fn exit_code(&self) -> u8 {
        match self {
            // The reader stopped early, as `head` does; the exit code is the one of any other
            // writer.
            _ if self.is_broken_pipe() => exit_code::BROKEN_PIPE,
            Self::Said(code) => *code,
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

/// Prints one sentence on stderr, prefixed with the command's name. It may quote a guest, or a line
/// of tasks.
pub fn say(sentence: &str) {
    // If stderr is closed too, the message has no other place to go.
    let _ = writeln!(io::stderr(), "sandfork: {}", harmless_line(sentence));
}
