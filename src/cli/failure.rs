//! Why a command could not do what it was asked for.

use std::io::{self, Write};
use std::process::ExitCode;

use sandfork::exit_code;
use sandfork::policy::PolicyError;
use thiserror::Error;

use super::log::LogError;
use super::map::MapError;
use super::script::ScriptError;
use super::terminal::harmless;

/// The end of a command that failed before, or beside, a guest.
#[derive(Debug, Error)]
pub enum Failure {
    /// There is no script to run.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The policy is wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// What is to be logged makes no sense.
    #[error(transparent)]
    Log(#[from] LogError),
    /// No sandbox could be provided.
    #[error(transparent)]
    Sandbox(#[from] sandfork::Error),
    /// The tasks or the results of `map` are wrong.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The command itself lacks something: a thread, a descriptor.
    #[error("the command cannot be set up: {0}; look at `ulimit -a`")]
    Setup(io::Error),
    /// The command's own output could not be written.
    #[error("the output cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// Says what failed, unless nobody listens, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        self.say();
        ExitCode::from(self.exit_code())
    }

    /// One line on stderr.
    pub fn say(&self) -> u8 {
        if !self.is_broken_pipe() {
            say(&self.to_string());
        }
        self.exit_code()
    }

    fn exit_code(&self) -> u8 {
        match self {
            // The reader has seen enough, as `head` has; the code is what any other writer ends with.
            _ if self.is_broken_pipe() => exit_code::BROKEN_PIPE,
            Self::Script(_) | Self::Policy(_) | Self::Log(_) => exit_code::USAGE,
            Self::Sandbox(error) => exit_code::of_error(error),
            Self::Map(error) => error.exit_code(),
            Self::Setup(_) => exit_code::SANDBOX_UNAVAILABLE,
            Self::Output(_) => exit_code::NOT_WRITTEN,
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

/// Says one sentence on stderr, in the command's own name. It may quote a guest.
pub fn say(sentence: &str) {
    // Where stderr is gone too, nobody is left to tell.
    let _ = writeln!(io::stderr(), "sandfork: {}", harmless(sentence));
}
