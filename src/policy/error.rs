//! Policy errors: each is one sentence that names the origin, the problem and the remedy.

use crate::error::{Cause, ErrorKind};

use thiserror::Error;

use super::effective::Policy;
use super::origin::Origin;

/// The error for an invalid policy. Its text is one sentence: file and line, key, problem, remedy.
#[derive(Debug, Error)]
#[error("{}{}{problem}", .origin.lead(), .key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default())]
pub struct PolicyError {
    origin: Origin,
    key: Option<String>,
    problem: String,
}

impl PolicyError {
    pub(super) fn new(origin: Origin, key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            key: Some(key.into()),
            ..Self::of_file(origin, problem)
        }
    }

    pub(super) fn of_file(origin: Origin, problem: impl Into<String>) -> Self {
        Self {
            origin,
            key: None,
            problem: problem.into(),
        }
    }
}

/// A rejected policy, with all of its errors.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The errors, at least one.
    pub(crate) errors: Vec<PolicyError>,
    /// The policy without its invalid values, for further checks. `None` if some of its texts cannot be read.
    pub(crate) rest: Option<Box<Policy>>,
}

impl Refused {
    /// Returns the error to fix first.
    pub(super) fn first(self) -> PolicyError {
        let first = self.errors.into_iter().next();
        first.expect("a refused policy has an error")
    }
}

impl From<Vec<PolicyError>> for Refused {
    fn from(errors: Vec<PolicyError>) -> Self {
        Self { errors, rest: None }
    }
}

/// Accessors for tests.
#[cfg(feature = "internals")]
impl PolicyError {
    /// Returns the file and line of the error.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

impl Cause for PolicyError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Policy
    }
}
