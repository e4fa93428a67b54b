//! Errors of a command.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::outcome::exit_code;
use crate::policy::PolicyError;
use thiserror::Error;

use super::learn::LearnError;
use super::log::LogError;
use super::map::MapError;
use super::script::ScriptError;
use super::terminal::harmless_line;
use super::transfer::TransferError;

/// A command failed before, or besides, its guest.
#[derive(Debug, Error)]
pub enum Failure {
    /// The script could not be loaded.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The log level is invalid.
    #[error(transparent)]
    Log(#[from] LogError),
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
    Interrupted(crate::Error),
    /// A file could not be copied in or out.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A policy could not be learnt.
    #[error(transparent)]
    Learn(#[from] LearnError),
    /// The tasks or the results of `map` are invalid.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The command itself lacks a resource: a thread, a descriptor.
    #[error("the command cannot be set up: {0}; look at `ulimit -a`")]
    Setup(io::Error),
    /// An argument is not what it has to be.
    #[error("{0}")]
    Usage(String),
    /// A command that this one started has said what failed.
    #[error("the command that was started failed")]
    Said(u8),
    /// `-t` without a terminal.
    #[error("`-t` needs a terminal on stdin, and stdin is not one: leave out `-t`")]
    NoTerminal,
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
            Self::Usage(_)
            | Self::Script(_)
            | Self::Policy(_)
            | Self::Log(_)
            | Self::NoTerminal
            | Self::Input(_) => exit_code::USAGE,
            Self::Learn(error) => error.exit_code(),
            Self::Transfer(error) if error.is_usage() => exit_code::USAGE,
            Self::Sandbox(error) | Self::Located { error, .. } => error.exit_code(),
            Self::Interrupted(_) => exit_code::INTERRUPTED,
            Self::Map(error) => error.exit_code(),
            Self::Setup(_) => exit_code::SANDBOX_UNAVAILABLE,
            Self::Output(_) | Self::Transfer(_) => exit_code::NOT_WRITTEN,
        }
    }

    fn is_broken_pipe(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Map(error) => error.is_broken_pipe(),
            _ => false,
        }
    }
}

/// Prints one sentence on stderr, prefixed with the command's name. It may quote a guest, or a line
/// of tasks.
pub fn say(sentence: &str) {
    // If stderr is closed too, the message has no other place to go.
    let _ = writeln!(io::stderr(), "sandfork: {}", harmless_line(sentence));
}
