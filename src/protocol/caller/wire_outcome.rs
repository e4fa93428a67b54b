//! The form in which an outcome is sent to a caller. Output and value are sent separately, and the
//! properties of the whole session were sent when the session was opened.

use serde::{Serialize, Serializer};

use crate::outcome::{Outcome, OutcomeJson};

/// An outcome without the parts that are sent separately or were sent before.
#[derive(Clone, Debug, PartialEq)]
pub struct WireOutcome(pub Outcome);

impl Serialize for WireOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OutcomeJson::of(&self.0).serialize(serializer)
    }
}
