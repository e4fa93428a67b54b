//! How far each layer holds on a host.

use serde::Serialize;

/// How far a layer holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerState {
    /// The layer holds completely.
    Enforced,
    /// The layer holds in part; the detail names the missing part and what replaces it.
    Degraded,
    /// The layer does not hold.
    Absent,
}
