//! Why a request for a program was not carried out.

use nix::errno::Errno;

use super::program::MOST_BYTES;
use crate::error::{Cause, ErrorKind};
use crate::host::with_hint;

/// Why there is no such program, or it was not given what was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProgramRefusal {
    /// The policy shows nothing that can be run.
    #[error(
        "the policy lets a guest run no programs (`filesystem.system` is \"libraries\"): choose one that has \
         \"programs\" there"
    )]
    Policy,
    /// A terminal where there is none.
    #[error(
        "a program cannot have a terminal in this sandbox: its policy shows no programs, or its level is `landlock`"
    )]
    NoTerminal,
    /// There is no name.
    #[error("a program has a name: give at least one argument")]
    Nameless,
    /// A string cannot be passed to a program.
    #[error(
        "{0} cannot be passed to a program: it has a NUL, or a variable's name has `=` or is empty"
    )]
    Text(&'static str),
    /// The request is too long.
    #[error(
        "the program's arguments and variables are longer than {MOST_BYTES} bytes: write them to a file of the \
         session"
    )]
    TooLong,
    /// There are as many as there may be.
    #[error("the session runs {0} programs, as many as it may: end one first")]
    TooMany(usize),
    /// A copy of the session is made.
    #[error("the session is being copied: start the program afterwards")]
    Copying,
    /// Another worker takes over.
    #[error("the session begins anew: start the program afterwards")]
    Anew,
    /// The session has no worker.
    #[error("the session has ended because {0}: restart it, or open another")]
    Ended(String),
    /// It could not be started.
    #[error("`{name}` could not be started{}: {}", within(.directory.as_deref()), why_not(*.errno))]
    NotStarted {
        /// What was to be started.
        name: String,
        /// The directory that was asked for, which may be what is missing.
        directory: Option<String>,
        /// Why it was not.
        errno: Errno,
    },
    /// The process that starts programs does not answer.
    #[error(
        "`{name}` was not reported to have started: the session's process that starts programs {}; start it again",
        .loss.words()
    )]
    NoStarter {
        /// What was to be started.
        name: String,
        /// What is the matter with it.
        loss: StarterLoss,
    },
    /// There is no such program.
    #[error("no program of the session has the number {0}: it has ended, or never was")]
    Unknown(i32),
    /// The program has ended, or has closed its standard input.
    #[error("the program takes no input: it has ended, or has closed its standard input")]
    Closed,
    /// The program was started without standard input.
    #[error("the program was started without standard input")]
    NoInput,
    /// There is no such signal.
    #[error("{0} is not the number of a signal (1 to 64)")]
    Signal(i32),
    /// A call of this process failed.
    #[error("a program's streams could not be made or used: {}", with_hint(*.0))]
    System(#[from] Errno),
}

/// How the process that starts programs was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StarterLoss {
    /// The kernel does not connect it.
    Unreached,
    /// It has ended.
    Ended,
    /// It reads nothing.
    Deaf,
    /// It reports nothing.
    Silent,
    /// It could not be started itself.
    Unstarted(Errno),
}

impl StarterLoss {
    /// What is the matter with it, as part of a sentence.
    pub fn words(self) -> String {
        let words = match self {
            Self::Unreached => "could not be reached",
            Self::Ended => "has ended",
            Self::Deaf => "does not read its requests",
            Self::Silent => "does not answer",
            Self::Unstarted(errno) => return format!("could not be started: {}", why_not(errno)),
        };
        words.to_owned()
    }
}

/// Where a program was to be started, as part of a sentence.
fn within(directory: Option<&str>) -> String {
    directory.map_or_else(String::new, |directory| format!(" in `{directory}`"))
}

/// Why the kernel does not start a program.
fn why_not(errno: Errno) -> &'static str {
    match errno {
        Errno::EAGAIN => "the session has as many processes as `limits.pids` lets it have",
        _ => errno.desc(),
    }
}

impl Cause for ProgramRefusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Ended(_) => ErrorKind::SessionEnded,
            Self::System(_)
            | Self::NoStarter {
                loss: StarterLoss::Unreached,
                ..
            } => ErrorKind::System,
            // A guest can bring about any other loss. The session lives, and starts another starter.
            Self::Copying | Self::Anew | Self::NoStarter { .. } => ErrorKind::Busy,
            _ => ErrorKind::Request,
        }
    }

    fn errno(&self) -> Option<i32> {
        match self {
            Self::NotStarted { errno, .. } => Some(*errno as i32),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_not_started_is_named_with_its_directory() {
        let refusal = |directory: Option<&str>| ProgramRefusal::NotStarted {
            name: "make".to_owned(),
            directory: directory.map(str::to_owned),
            errno: Errno::ENOENT,
        };
        let why = "No such file or directory";
        assert_eq!(
            refusal(None).to_string(),
            format!("`make` could not be started: {why}")
        );
        assert_eq!(
            refusal(Some("src")).to_string(),
            format!("`make` could not be started in `src`: {why}")
        );
    }

    #[test]
    fn a_starter_that_a_guest_ends_is_no_fault_of_the_host() {
        let refusal = |loss| ProgramRefusal::NoStarter {
            name: "make".to_owned(),
            loss,
        };
        assert_eq!(refusal(StarterLoss::Unreached).kind(), ErrorKind::System);
        let unstarted = StarterLoss::Unstarted(Errno::EAGAIN);
        for loss in [
            StarterLoss::Ended,
            StarterLoss::Deaf,
            StarterLoss::Silent,
            unstarted,
        ] {
            assert_eq!(refusal(loss).kind(), ErrorKind::Busy);
        }
        let why = refusal(unstarted).to_string();
        assert!(why.contains("as many processes as `limits.pids`"), "{why}");
        let sentence = "`make` was not reported to have started: the session's process that starts programs has ended; \
                        start it again";
        assert_eq!(refusal(StarterLoss::Ended).to_string(), sentence);
    }
}
