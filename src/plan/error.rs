//! Where a path comes from that cannot be shown.

use std::fmt;
use std::path::Path;

use crate::error::Error;
use crate::policy::Origin;

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
    pub(super) fn refuses(&self, path: &Path, problem: impl fmt::Display) -> Error {
        let sentence = format!("{self}: {} {problem}", path.display());
        Error::host(sentence)
    }
}
