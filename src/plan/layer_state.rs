//! How far each layer holds on a host.

use crate::outcome::word_enum;

word_enum! {
    /// How far a layer holds.
    pub enum LayerState {
        /// The layer holds completely.
        Enforced = "enforced",
        /// The layer holds in part; the detail names the missing part and what replaces it.
        Degraded = "degraded",
        /// The layer does not hold.
        Absent = "absent",
    }
}
