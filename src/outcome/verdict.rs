//! The verdict on whether an outcome is the expected one.

use serde::Serialize;

/// The result of comparing an outcome with the one that its task expects. In JSON, the key `verdict`, and for
/// [`Wrong`](Self::Wrong) the key `mismatch` with the first difference.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "verdict", content = "mismatch", rename_all = "kebab-case")]
pub enum Verdict {
    /// The outcome is the expected one.
    Pass,
    /// The program succeeded, but its outcome differs. Holds the first difference.
    Wrong(String),
    /// The program failed, so nothing was compared.
    Failed,
}
