//! Why a policy cannot be kept on a host.

use std::fmt;
use std::path::PathBuf;

use super::obstacle::Obstacle;
use super::seccomp::SeccompError;
use crate::policy::{Level, Origin};

/// Why there is no plan. Each says what is wrong, where it was written, and what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The level that the policy requires cannot be had here.
    #[error("{origin} requires level `{required}`, which this host cannot give: {}{}", Sentences(.obstacles), Instead(.available))]
    LevelUnavailable {
        /// What the policy requires.
        required: Level,
        /// Where it says so.
        origin: Origin,
        /// The layers that do not hold, each with its cause and its remedy.
        obstacles: Vec<Obstacle>,
        /// The lower level that can be had, if any.
        available: Option<Level>,
    },
    /// A limit that is more than the host has.
    #[error("{origin}: `{key}` is {wanted}, more than this host's {available}: {remedy}")]
    QuotaAboveHost {
        /// Where the limit was written.
        origin: Origin,
        /// The dotted key.
        key: &'static str,
        /// As a person would write it.
        wanted: String,
        /// What the host has, and of what.
        available: String,
        /// A value that the host can keep, and how to raise the host's.
        remedy: String,
    },
    /// A path of the policy that is not there.
    #[error(
        "{origin}: {path} cannot be found ({cause}): create it, or remove it from the policy",
        path = path.display()
    )]
    PathMissing {
        /// Where the path was written.
        origin: Origin,
        /// The path.
        path: PathBuf,
        /// The kernel's answer.
        cause: String,
    },
    /// A path of the policy that is something else than what it is used for.
    #[error("{origin}: {path} is {found}, and {needed} is needed here", path = path.display())]
    PathKind {
        /// Where the path was written.
        origin: Origin,
        /// The path.
        path: PathBuf,
        /// What stands there.
        found: &'static str,
        /// What would do.
        needed: &'static str,
    },
    /// A path that the sandbox's own files would hide, or that would hide them.
    #[error(
        "{place}: {path} cannot be shown, because the sandbox has its own {own}: name another path, \
         or copy what is needed to one", path = path.display()
    )]
    Clash {
        /// Who wants the path shown.
        place: Place,
        /// The path.
        path: PathBuf,
        /// What stands there in every sandbox.
        own: &'static str,
    },
    /// A path that could be written to, and from which code runs.
    #[error(
        "{place}: {path} is where code is run from, and cannot be writable: name a directory of \
         data in `filesystem.write`", path = path.display()
    )]
    WritableCode {
        /// Who wants the path shown.
        place: Place,
        /// The path.
        path: PathBuf,
    },
    /// A system call that a policy may not allow or deny.
    #[error("{origin}: {source}")]
    Syscall {
        /// Where its name was written.
        origin: Origin,
        /// Why not.
        source: SeccompError,
    },
    /// There are no filters for this processor.
    #[error("Sandfork has no system call table for this processor: run on x86_64 or aarch64")]
    UnknownArchitecture,
    /// Without mounts of its own the guest runs as an unprivileged user who must reach the
    /// interpreter where it is.
    #[error(
        "the interpreter {path} cannot be reached by the unprivileged user that the guest runs as \
         at level `landlock`: install one where every user can run it, such as /usr/bin/python3",
        path = path.display()
    )]
    InterpreterOutOfReach {
        /// The binary.
        path: PathBuf,
    },
}

/// What names a path that is to be shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// A policy.
    Policy(Origin),
    /// The interpreter needs it.
    Interpreter,
    /// Programs and libraries of the system.
    System,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(origin) => origin.fmt(f),
            Self::Interpreter => f.write_str("the interpreter"),
            Self::System => f.write_str("the system"),
        }
    }
}

struct Instead<'a>(&'a Option<Level>);

impl fmt::Display for Instead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(level) => write!(
                f,
                "; or accept the weaker level `{level}` (`--set assurance.require={level}`)"
            ),
            None => Ok(()),
        }
    }
}

struct Sentences<'a>(&'a [Obstacle]);

impl fmt::Display for Sentences<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, obstacle) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{obstacle}")?;
        }
        Ok(())
    }
}
