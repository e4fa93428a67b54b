//! Errors about paths that cannot be shown.

use std::fmt;
use std::path::Path;

use crate::error::Error;
use crate::policy::Origin;

/// The source of a request to show a path to the guest.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Requester {
    /// A policy names the path.
    Policy(Origin),
    /// The interpreter needs the path.
    Interpreter,
    /// The path belongs to the system's programs and libraries.
    System,
    /// The path is that of the script that is about to run.
    Script,
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(origin) => origin.fmt(f),
            Self::Interpreter => f.write_str("the interpreter"),
            Self::System => f.write_str("the system"),
            Self::Script => f.write_str("the script"),
        }
    }
}

impl Requester {
    /// Creates the error for a path that cannot be shown as requested.
    pub(super) fn error(&self, path: &Path, problem: impl fmt::Display) -> Error {
        let sentence = format!("{self}: {} {problem}", path.display());
        Error::host(sentence)
    }
}
