//! Whether an outcome is the expected one.

use serde::Serialize;

/// The result of comparing an outcome with what its task expects. In JSON, the keys `verdict` and, with the first
/// difference, `mismatch`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "verdict", content = "mismatch", rename_all = "kebab-case")]
pub enum Verdict {
    /// All that is expected is there.
    Pass,
    /// The program ended well, and this is the first difference.
    Wrong(String),
    /// The program did not end well, so that nothing was compared.
    Failed,
}
