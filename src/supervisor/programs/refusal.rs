//! Why a request for a program, or for a watch of a directory, was not carried out.

use nix::errno::Errno;

use crate::error::{Cause, ErrorKind};
use crate::host::with_hint;
use crate::supervisor::files::FileError;

/// Why a policy lets a guest run no programs.
pub const NO_PROGRAMS: &str = "the policy lets a guest run no programs (`filesystem.system` is \"libraries\"): choose one that has \"programs\" there";

/// Why there is no such program or watch, or the program was not given what was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BesideRefusal {
    /// The session has no worker. Holds the reason, as part of a sentence.
    #[error("the session has ended because {0}: restart it, or open another")]
    Ended(String),
    /// The program could not be started.
    #[error("`{name}` could not be started{}: {}", within(.directory.as_deref()), why_not(*.errno))]
    NotStarted {
        /// What was to be started.
        name: String,
        /// The directory that was asked for, which may be what is missing.
        directory: Option<String>,
        /// Why it was not.
        errno: Errno,
    },
    /// The directory cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// What no caller tells from others: a sentence.
    #[error("{1}")]
    Other(ErrorKind, String),
}

impl BesideRefusal {
    /// The request cannot be carried out in this session.
    pub fn request(sentence: impl Into<String>) -> Self {
        Self::Other(ErrorKind::Request, sentence.into())
    }

    /// The program has ended, or has closed its standard input.
    pub fn no_input() -> Self {
        Self::request("the program takes no input: it has ended, or has closed its standard input")
    }

    /// A call of this process failed. `what` is what it was to do.
    pub fn of_system(what: &str, errno: Errno) -> Self {
        let sentence = format!("{what}: {}", with_hint(errno));
        Self::Other(ErrorKind::System, sentence)
    }

    /// The process that starts programs does not answer, or has not started the program with this name.
    pub(super) fn without_starter(name: &str, loss: StarterLoss) -> Self {
        // A guest can bring about any other loss. The session lives, and starts another starter.
        let kind = match loss {
            StarterLoss::Unreached => ErrorKind::System,
            _ => ErrorKind::Busy,
        };
        let sentence = format!(
            "`{name}` was not reported to have started: the session's process that starts programs {}; start it again",
            loss.words()
        );
        Self::Other(kind, sentence)
    }
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

impl Cause for BesideRefusal {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Ended(_) => ErrorKind::SessionEnded,
            Self::NotStarted { .. } => ErrorKind::Request,
            Self::File(error) => error.kind(),
            Self::Other(kind, _) => *kind,
        }
    }

    fn errno(&self) -> Option<i32> {
        match self {
            Self::NotStarted { errno, .. } => Some(*errno as i32),
            Self::File(error) => Cause::errno(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_not_started_is_named_with_its_directory() {
        let refusal = |directory: Option<&str>| BesideRefusal::NotStarted {
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
        let refusal = |loss| BesideRefusal::without_starter("make", loss);
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
