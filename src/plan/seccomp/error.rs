//! Errors in a policy's lists of system calls.

/// Why a policy's list cannot be compiled: what is wrong with a call in it, and the remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{name}` {problem}")]
pub struct SeccompError {
    /// The name, as the policy writes it.
    pub name: String,
    problem: String,
}

impl SeccompError {
    pub(super) fn new(name: &str, problem: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            problem: problem.into(),
        }
    }
}
