//! Why a policy cannot be enforced on a host.

use std::fmt;
use std::path::Path;

use crate::error::{Cause, ErrorKind};
use crate::policy::Origin;

/// Why there is no plan: a sentence with the problem, the place where it was written, and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The policy is wrong on every host.
    #[error("{0}")]
    Policy(String),
    /// This host cannot enforce it.
    #[error("{0}")]
    Host(String),
}

impl Cause for PlanError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Policy(_) => ErrorKind::Policy,
            Self::Host(_) => ErrorKind::Host,
        }
    }
}

/// The origin of a request to show a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// A policy names it.
    Policy(Origin),
    /// The interpreter needs it.
    Interpreter,
    /// It is one of the system's programs and libraries.
    System,
    /// It is the script that is about to run.
    Script,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(origin) => origin.fmt(f),
            Self::Interpreter => f.write_str("the interpreter"),
            Self::System => f.write_str("the system"),
            Self::Script => f.write_str("the script"),
        }
    }
}

impl Place {
    /// Why the path is not shown as it is to be.
    pub(super) fn refuses(&self, path: &Path, problem: impl fmt::Display) -> PlanError {
        PlanError::Host(format!("{self}: {} {problem}", path.display()))
    }
}
