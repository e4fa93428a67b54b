//! The reasons for which a program was not started, or a directory is not watched.

use nix::errno::Errno;

use crate::error::{Cause, ErrorKind};
use crate::host::with_hint;
use crate::supervisor::files::FileError;

/// The error for a policy that allows no programs.
pub const NO_PROGRAMS: &str = "the policy lets a guest run no programs (`filesystem.system` is \"libraries\"): choose one that has \"programs\" there";

/// Why a request about a program or a watch failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BesideRefusal {
    /// The session has no worker. Holds the reason, as part of a sentence.
    #[error("the session has ended because {0}: restart it, or open another")]
    Ended(String),
    /// The program could not be started.
    #[error("`{name}` could not be started{}: {}", within(.directory.as_deref()), why_not(*.errno))]
    NotStarted {
        /// The program's name.
        name: String,
        /// The requested directory, which may be what is missing.
        directory: Option<String>,
        /// The errno of the failed start.
        errno: Errno,
    },
    /// The directory cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// Any other reason, which no caller needs to match. Holds a sentence.
    #[error("{1}")]
    Other(ErrorKind, String),
}

impl BesideRefusal {
    /// Builds the refusal of a request that this session cannot satisfy.
    pub fn request(sentence: impl Into<String>) -> Self {
        Self::Other(ErrorKind::Request, sentence.into())
    }

    /// Builds the refusal of input for a program that has ended or has closed its standard input.
    pub fn no_input() -> Self {
        Self::request("the program takes no input: it has ended, or has closed its standard input")
    }

    /// Builds the refusal for a failed system call of this process. `what` describes what failed.
    pub fn of_system(what: &str, errno: Errno) -> Self {
        let sentence = format!("{what}: {}", with_hint(errno));
        Self::Other(ErrorKind::System, sentence)
    }

    /// Builds the refusal for a program whose starter process was lost, or did not report the start in time.
    pub(super) fn without_starter(name: &str, loss: StarterLoss) -> Self {
        // A guest can cause any other loss. The session continues, and a new starter is started on demand.
        let kind = match loss {
            StarterLoss::Unreached => ErrorKind::System,
            _ => ErrorKind::Busy,
        };
        let sentence = format!(
            "`{name}` was not reported to have started: the session's process that starts programs {}; start it again",
            loss.description()
        );
        Self::Other(kind, sentence)
    }
}

/// How the starter process was lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StarterLoss {
    /// The supervisor cannot reach it: the worker has no socket for links, the link or the signal could not be sent, or
    /// the link cannot be read.
    Unreached,
    /// The starter has exited.
    Ended,
    /// The starter does not read its requests.
    NotReading,
    /// The starter does not report.
    NotResponding,
    /// It could not be started itself.
    Unstarted(Errno),
}

impl StarterLoss {
    /// Returns the state of the starter, as part of a sentence.
    pub fn description(self) -> String {
        let text = match self {
            Self::Unreached => "could not be reached",
            Self::Ended => "has ended",
            Self::NotReading => "does not read its requests",
            Self::NotResponding => "does not answer",
            Self::Unstarted(errno) => return format!("could not be started: {}", why_not(errno)),
        };
        text.to_owned()
    }
}

/// Returns the directory of a failed start, as part of a sentence.
fn within(directory: Option<&str>) -> String {
    directory.map_or_else(String::new, |directory| format!(" in `{directory}`"))
}

/// Explains why the kernel refused to start a program.
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
    fn failed_start_names_the_program_and_its_directory() {
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
    fn only_an_unreachable_starter_is_a_system_error() {
        let refusal = |loss| BesideRefusal::without_starter("make", loss);
        assert_eq!(refusal(StarterLoss::Unreached).kind(), ErrorKind::System);
        let unstarted = StarterLoss::Unstarted(Errno::EAGAIN);
        for loss in [
            StarterLoss::Ended,
            StarterLoss::NotReading,
            StarterLoss::NotResponding,
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
