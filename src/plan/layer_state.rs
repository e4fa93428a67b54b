//! The state of a layer on a host.

use crate::outcome::word_enum;

word_enum! {
    /// The state of a layer.
    pub enum LayerState {
        /// The layer is enforced completely.
        Enforced = "enforced",
        /// The layer is enforced in part. The detail names the missing part and its replacement.
        Degraded = "degraded",
        /// The layer is not enforced.
        Absent = "absent",
    }
}
