//! Errors in a policy's lists of system calls.

/// The error for an invalid call in a policy's lists: the problem and the remedy.
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
